package memory_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t testing.TB, now func() time.Time) ledger.Store {
		return memory.New(memory.Options{Now: now})
	})
}

// TestCompare compares the store with itself: what it finds is in the rules or in the harness.
func TestCompare(t *testing.T) { storetest.Compare(t, place) }

func FuzzCompare(f *testing.F) { storetest.FuzzCompare(f, place) }

// place forgets nothing when it is closed.
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
