package main

import (
	"os"
	"strings"
	"testing"
)

// A plugin takes no more than a page: 25 lines, comments and empty lines not counted.
func TestFitsOnAPage(t *testing.T) {
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "//") {
			count++
		}
	}
	if count > 25 {
		t.Errorf("main.go has %d lines of code", count)
	}
}
