package main

import (
	"os"
	"strings"
	"testing"
)

// The code of the author's guide is from this program and its tests.
func TestGuide(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	code := read("main.go") + read("main_test.go")
	blocks := strings.Split(read("../../docs/plugins/testing.md"), "```go\n")[1:]
	if len(blocks) < 5 {
		t.Fatalf("only %d blocks of code in the guide", len(blocks))
	}
	for _, block := range blocks {
		if block, _, _ = strings.Cut(block, "```"); !strings.Contains(code, block) {
			t.Errorf("not in this example:\n%s", block)
		}
	}
}
