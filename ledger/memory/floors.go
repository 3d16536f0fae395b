package memory

import (
	"context"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Schema implements ledger.Store.
func (s *Store) Schema(context.Context) (ledger.Schema, error) {
	return ledger.Schema{Ledger: "memory", Floors: s.Opened()}, nil
}

// Opened implements ledger.Store: each ledger over the store opens it anew.
func (s *Store) Opened() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.floors)
}

func (t *tx) Floors() ([]int64, int64, error) {
	return slices.Clone(t.s.floors), max(t.s.nextID, t.s.fence), nil
}

func (t *tx) PutHome(string) error { return nil }

func (t *tx) PutFloors(floors []int64, above int64) error {
	t.s.floors = slices.Clone(floors)
	t.s.nextID, t.s.fence = max(t.s.nextID, above), max(t.s.fence, above) // also if it is undone, as any number
	return nil
}

// Home implements ledger.Store.
func (s *Store) Home(context.Context) (string, error) { return "", nil }
