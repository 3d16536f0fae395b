package ui

import (
	"strings"
	"testing"
)

// JSON is indented, and its signs stay as they are.
func TestTextOfJSON(t *testing.T) {
	if got := text([]byte(`{"u":"https://h/?a=1&b=<2>"}`)); got != "{\n  \"u\": \"https://h/?a=1&b=<2>\"\n}" {
		t.Error(got)
	}
}

// JSON that is nested deeply is not indented: that would take far more memory than the page shows.
func TestTextOfDeepJSON(t *testing.T) {
	deep := strings.Repeat("[", 9_990) + strings.Repeat("]", 9_990)
	if want := deep[:maxText] + "\n… of 19980 bytes"; text([]byte(deep)) != want {
		t.Errorf("%.20s…", text([]byte(deep)))
	}
}

// A text that is cut ends with a whole character.
func TestTextIsCut(t *testing.T) {
	got := text([]byte("x" + strings.Repeat("é", maxText)))
	if want := "x" + strings.Repeat("é", maxText/2-1) + "\n… of 32769 bytes"; got != want {
		t.Errorf("…%q", got[max(0, len(got)-40):])
	}
}
