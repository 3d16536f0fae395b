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
func TestCompare(t *testing.T) {
	storetest.Compare(t, func(t testing.TB, now func() time.Time) ledger.Store {
		return memory.New(memory.Options{Now: now})
	})
}
