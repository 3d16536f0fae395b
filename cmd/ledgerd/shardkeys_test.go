package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// Four processes work items of ten shard keys, of each of which one item at a time may be leased. Two of the processes
// are killed while they work. By the ledger's clock no two attempts of a shard key overlap, and the items of the dead
// processes are worked when their leases have ended.
func TestKilledWorkersOfShardKeys(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		const items, keys = 400, 10
		effects := filepath.Join(t.TempDir(), "effects")
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "effect", "--max-running-per-shard-key", "1")
		for k := range keys {
			args := []string{"add", "effect", "--set", "ms=5", "--shard-key", fmt.Sprint("customer ", k)}
			for i := k; i < items; i += keys {
				args = append(args, fmt.Sprint("item ", i))
			}
			m.run(failure.ExitOK, args...)
		}
		work := []string{"work", "--drain", "--kind", "effect", "--with", "path=" + effects, "--lease", "5s", "-o", "json"}
		var workers []*started
		for range 4 {
			workers = append(workers, m.start(work...))
		}
		m.until("a third is done", func() bool { return len(lines(t, effects, "done")) > items/3 })
		for _, w := range workers[:2] {
			must.OK(t, w.Process.Kill())
			<-w.done
		}
		for _, w := range workers[2:] {
			m.ends(w, failure.ExitOK)
		}
		if done := lines(t, effects, "done"); len(done) != items {
			t.Errorf("%d of %d items were done", len(done), items)
		}
		m.run(failure.ExitOK, "db", "verify")
		l := m.ledger()
		attempts := map[string][]ledger.Attempt{} // by shard key
		for it, err := range l.List(t.Context(), ledger.Filter{}, 0) {
			must.OK(t, err)
			ended, err := l.Attempts(t.Context(), it.ID)
			must.OK(t, err)
			attempts[it.ShardKey] = append(attempts[it.ShardKey], ended...)
		}
		for key, all := range attempts {
			slices.SortFunc(all, func(a, b ledger.Attempt) int { return a.LeasedAt.Compare(b.LeasedAt) })
			for i := 1; i < len(all); i++ {
				if a, b := all[i-1], all[i]; b.LeasedAt.Before(a.FinishedAt) {
					t.Errorf("%s: an attempt on item %d began %v before one on item %d ended", key, b.ItemID,
						a.FinishedAt.Sub(b.LeasedAt), a.ItemID)
				}
			}
		}
		if len(attempts) != keys {
			t.Errorf("%d shard keys, want %d", len(attempts), keys)
		}
	})
}
