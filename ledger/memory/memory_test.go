package memory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB, now func() time.Time) ledger.Store {
		return memory.New(memory.Options{Now: now})
	})
}

// TestCompare compares the store with itself: a difference is a fault of the rules or of the harness.
func TestCompare(t *testing.T) { storetest.Compare(t, place) }

// place makes a store that is not closed between two calls of Open.
func place(_ testing.TB, now func() time.Time) storetest.Place {
	s := memory.New(memory.Options{Now: now})
	return storetest.Place{
		Open: func() (ledger.Store, error) { return s, nil },
		Begin: func() (ledger.Conn, func(bool) error, error) {
			tx := s.Begin()
			return tx, func(commit bool) error { tx.End(commit); return nil }, nil
		},
	}
}

// TestGroupsEnd: a count by a value that differs from item to item ends at the bound of groups.
func TestGroupsEnd(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	must.OK(t, l.SetKind(t.Context(), "ann", ledger.Kind{Name: "k"}))
	for part := range 11 {
		items := make([]ledger.NewItem, 1000)
		for i := range items {
			items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprint(part, "-", i)}
		}
		must.Do(t)(l.Add(t.Context(), items...))
	}
	groups, whole, err := l.Groups(t.Context(), ledger.Filter{}, stats.ByShardKey, time.Hour)
	if len(groups) != 10_000 || whole || err != nil {
		t.Errorf("%d groups, whole %v, %v", len(groups), whole, err)
	}
	if _, _, err := l.Groups(t.Context(), ledger.Filter{}, stats.ByShardKey, 0); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("without a time: %v", err)
	}
}
