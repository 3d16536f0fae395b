package ledger

import "testing"

func TestCutText(t *testing.T) {
	for _, c := range []struct{ in, head, tail string }{{"abc", "abc", "abc"}, {"äöü", "ä", "ü"}, {"abcdef", "abc", "def"},
		{"", "", ""}} {
		if h, l := head(c.in, 3), tail(c.in, 3); h != c.head || l != c.tail {
			t.Errorf("%q: head %q, tail %q", c.in, h, l)
		}
	}
}
