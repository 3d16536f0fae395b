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
