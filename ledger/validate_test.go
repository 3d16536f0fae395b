package ledger

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

func TestCutText(t *testing.T) {
	for _, c := range []struct{ in, head, tail string }{{"abc", "abc", "abc"}, {"äöü", "ä", "ü"}, {"abcdef", "abc", "def"},
		{"", "", ""}} {
		if h, l := head(c.in, 3), tail(c.in, 3); h != c.head || l != c.tail {
			t.Errorf("%q: head %q, tail %q", c.in, h, l)
		}
	}
}

// A reason of an act is cut to what is stored, also that of an option that a program makes itself.
func TestReasonIsCut(t *testing.T) {
	long := "\x00" + strings.Repeat("r", bounds.MaxError)
	want := "\uFFFD" + strings.Repeat("r", bounds.MaxError-3)
	for name, set := range map[string]ActOption{"WithReason": WithReason(long),
		"Option": ActOptions{Reason: long}.Option(), "own": func(o *ActOptions) { o.Reason = long }} {
		o, err := actOptions([]ActOption{set})
		if sent := (ActOptions{}).Of(set).Reason; o.Reason != want || sent != want || err != nil {
			t.Errorf("%s: %.9q, %d bytes; sent %.9q; %v", name, o.Reason, len(o.Reason), sent, err)
		}
	}
}

// The hint of a cause is found if the error around it has none.
func TestHintOfTheCause(t *testing.T) {
	for _, err := range []error{errNilTx, &Error{Message: "m", Err: errNilTx}, &Error{Hint: errNilTx.Hint},
		&Error{Message: "m", Err: &Error{Hint: errNilTx.Hint}}} {
		if got := Hint(fmt.Errorf("adding: %w", err)); got != errNilTx.Hint {
			t.Errorf("%#v: hint %q", err, got)
		}
	}
}
