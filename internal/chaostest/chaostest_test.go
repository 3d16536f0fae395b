//go:build unix

package chaostest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
)

// tries is the number of runs of a fault until one must count. On a slow machine a fault may come while no process
// holds a lease.
const tries = 4

// TestSmoke makes a short run of one fault on each database. make chaos has all faults, and makes thousands of runs.
func TestSmoke(t *testing.T) {
	dir, err := os.MkdirTemp("", "ledgerd-chaos-") // it keeps the files of runs with violations
	must.OK(t, err)
	program := filepath.Join(dir, "ledgerd")
	must.OK(t, Build(t.Context(), "../..", program, Plain))
	for try := range uint64(tries) {
		var plans []Plan
		for _, c := range []struct {
			Database
			Fault
		}{{SQLite, Kill}, {Postgres, Terminate}} {
			p, err := NewPlan(c.Database, c.Fault, try)
			must.OK(t, err)
			p.Busy, p.Patience = time.Second, 10
			plans = append(plans, p)
		}
		var mu sync.Mutex
		counted := 0
		c := &Campaign{Program: program, Dir: dir, Parallel: 2, Done: func(r Result) {
			mu.Lock()
			defer mu.Unlock()
			t.Logf("%s: %d daemons, %d items, %d hits, %v %s", r.Plan, r.Plan.Daemons, r.Completed, r.Hit, r.Faults, r.Void())
			for _, v := range r.Violations {
				t.Errorf("%s: %v; see %s", r.Plan, v, filepath.Join(dir, r.Plan.String()))
			}
			if r.Void() == "" {
				counted++
			}
		}}
		must.OK(t, c.Work(t.Context(), plans))
		if t.Failed() {
			return
		}
		if counted == len(plans) {
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			return
		}
	}
	t.Errorf("%d times a fault came while no process had work in hand", tries)
}
