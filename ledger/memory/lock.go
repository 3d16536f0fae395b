package memory

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Locks implements ledger.Store.
func (s *Store) Locks(_ context.Context, name string) ([]ledger.Lock, time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []ledger.Lock
	for _, l := range s.locks {
		if name == "" || l.Name == name {
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b ledger.Lock) int { return cmp.Compare(a.Name, b.Name) })
	return out, s.now(), nil
}

func (t *tx) LoadLock(name string) (ledger.Lock, bool, time.Time, error) {
	l, held := t.s.locks[name]
	return l, held, t.now, nil
}

func (t *tx) GrantLock(l ledger.Lock) (int64, error) {
	t.s.fence++ // a rollback does not return the number, so none is given twice
	l.Fence = t.s.fence
	return l.Fence, t.PutLock(l)
}

func (t *tx) PutLock(l ledger.Lock) error {
	t.s.locks[l.Name] = l
	return nil
}

func (t *tx) DropLock(name string) error {
	delete(t.s.locks, name)
	return nil
}
