package ledger_test

import (
	"context"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// contended is a store in which other processes change items of the first page between the search and the write.
type contended struct {
	ledger.Store
	left []int // the results of the next calls of Prune
}

func (s *contended) Prune(context.Context, string, time.Time, int) (n int, err error) {
	n, s.left = s.left[0], s.left[1:]
	return n, nil
}

// TestPruneOlderGoesOn: a page of which not all could be pruned is not the last one.
func TestPruneOlderGoesOn(t *testing.T) {
	s := &contended{memory.New(memory.Options{}), []int{499, 500, 20, 0}}
	l := ledger.New(s, ledger.Options{})
	must.OK(t, l.SetKind(t.Context(), "test", ledger.Kind{Name: "k"}))
	if n, err := l.PruneOlder(t.Context(), "ann", time.Minute); n != 1019 || err != nil || len(s.left) > 0 {
		t.Errorf("%d are pruned, %v; left %d", n, err, s.left)
	}
}
