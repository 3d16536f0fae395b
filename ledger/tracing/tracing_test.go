package tracing

import (
	"context"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// A malformed context is not kept, and a kept one is bounded.
func TestJoin(t *testing.T) {
	long := "a=" + strings.Repeat("v", 250) + ",b=" + strings.Repeat("v", 250)
	for _, c := range []struct{ name, parent, state, want string }{
		{"parent", parent, "", parent},
		{"both", parent, "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7", parent + " congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"},
		{"space in the state", parent, "a=1 2", parent + " a=1 2"},
		{"a later version, with more fields", "cc-" + parent[3:] + "-what-the-future-will-be-like", "", parent},
		{"unsampled", parent[:53] + "00", "", parent[:53] + "00"},
		{"the longest state", parent, long, parent + " " + long},
		{"nothing", "", "", ""},
		{"a state alone", "", "a=1", ""},
		{"version ff", "ff" + parent[2:], "", ""},
		{"version 00 with more", parent + "-00", "", ""},
		{"no trace id", "00-" + strings.Repeat("0", 32) + parent[35:], "", ""},
		{"no span id", parent[:36] + strings.Repeat("0", 16) + "-01", "", ""},
		{"upper case", strings.ToUpper(parent), "", ""},
		{"too short", parent[:54], "", ""},
		{"too long", "cc-" + parent[3:] + "-" + strings.Repeat("f", 1<<16), "", ""},
		{"a line more", parent + "\r\nX-Evil: 1", "", ""},
		{"NUL", parent[:54] + "\x00", "", ""},
		{"no UTF-8", "\xff" + parent[1:], "", ""},
		{"a malformed state", parent, "a=1,\r\nX-Evil=2", parent},
		{"a state that is no UTF-8", parent, "a=\xff", parent},
		{"a state that is too long", parent, long + ",c=" + strings.Repeat("v", 20), parent},
		{"33 members", parent, strings.TrimSuffix(strings.Repeat("a=1,", 33), ","), parent},
	} {
		got := Join(c.parent, c.state)
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if Clean(got) != got || len(got) > Max {
			t.Errorf("%s: %q does not stay as it is", c.name, got)
		}
		if of := Of(Into(t.Context(), got)); of != got {
			t.Errorf("%s: %q came back as %q", c.name, got, of)
		}
	}
	if got := ID(parent + " a=1"); got != traceID || ID("") != "" {
		t.Errorf("the trace id is %q", got)
	}
}

func TestAnyTextIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringMatching(`[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}( .*)?`)).
			Draw(t, "text")
		got := Clean(text)
		if len(got) > Max || Clean(got) != got || got != "" && ID(got) == "" {
			t.Fatalf("%q became %q", text, got)
		}
		if !Context(got).IsValid() && got != "" {
			t.Fatalf("%q is kept, and is no context", got)
		}
		if ctx := context.Background(); got == "" && Into(ctx, text) != ctx {
			t.Fatalf("%q is malformed, and is used", text)
		}
	})
}
