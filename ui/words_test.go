package ui

import (
	"strings"
	"testing"
)

// A text that is cut ends with a whole character.
func TestTextIsCut(t *testing.T) {
	got := text([]byte("x" + strings.Repeat("é", mostText)))
	if want := "x" + strings.Repeat("é", mostText/2-1) + "\n… of 32769 bytes"; got != want {
		t.Errorf("…%q", got[max(0, len(got)-40):])
	}
}
