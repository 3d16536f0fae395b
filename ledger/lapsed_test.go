package ledger_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// lingering is a store whose answer about agents takes a minute.
type lingering struct{ ledger.Store }

func (s lingering) Agents(ctx context.Context) ([]ledger.Agent, error) {
	agents, err := s.Store.Agents(ctx)
	time.Sleep(time.Minute)
	return agents, err
}

// TestLapsedMeanwhile: the heartbeat of a program that is gone runs out while the ledger looks for such programs.
func TestLapsedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := func(ledger.Agent) bool { return true }
		l := ledger.New(lingering{memory.New(memory.Options{})}, ledger.Options{Gone: gone})
		must.OK(t, l.Beat(t.Context(), ledger.Agent{Name: "a", Host: "h"}, 30*time.Second))
		if lapsed, err := l.Lapsed(t.Context()); len(lapsed) != 1 || err != nil {
			t.Errorf("%+v, %v; want one", lapsed, err)
		}
	})
}
