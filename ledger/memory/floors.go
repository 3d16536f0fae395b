package memory

import (
	"context"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Schema implements ledger.Store.
func (s *Store) Schema(context.Context) (ledger.Schema, error) {
	return s.Opened(), nil
}

// Opened implements ledger.Store. The store is opened by each ledger over it, so the values are the present ones.
func (s *Store) Opened() ledger.Schema {
	s.mu.Lock()
	defer s.mu.Unlock()
	return ledger.Schema{Ledger: "memory", Floors: slices.Clone(s.floors), Environment: s.env}
}

func (t *tx) Floors() ([]int64, int64, error) {
	return slices.Clone(t.s.floors), max(t.s.nextID, t.s.fence), nil
}

func (t *tx) PutHome(string) error { return nil }

func (t *tx) PutEnvironment(name string, replace bool) error {
	if replace || t.s.env == "" {
		t.s.env = name
	}
	return nil
}

func (t *tx) PutFloors(floors []int64, above int64) error {
	t.s.floors = slices.Clone(floors)
	t.s.nextID, t.s.fence = max(t.s.nextID, above), max(t.s.fence, above) // undo does not lower them
	return nil
}

// Home implements ledger.Store.
func (s *Store) Home(context.Context) (string, error) { return "", nil }
