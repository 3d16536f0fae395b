package intake

import (
	"io"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// slow is a pipe through which lines come slowly.
type slow struct {
	lines []string
	asked func()
}

func (s *slow) Read(p []byte) (n int, err error) {
	if s.asked(); len(s.lines) == 0 {
		return 0, io.EOF
	}
	n = copy(p, s.lines[0])
	s.lines = s.lines[1:]
	return n, nil
}

// TestSlowRows: a row of a table is an item before the next row has come.
func TestSlowRows(t *testing.T) {
	n, come := 0, []int{}
	in := &slow{[]string{"key\n", "a\n", "b\n", "c\n"}, func() { come = append(come, n) }}
	for _, err := range (&Source{Template: ledger.NewItem{Kind: "k"}, CSV: Stdin, Key: "key",
		Stdin: in}).Items(t.Context()) {
		must.OK(t, err)
		n++
	}
	if want := []int{0, 0, 1, 2, 3}; !slices.Equal(come, want) {
		t.Errorf("items at each read: %v, want %v", come, want)
	}
}
