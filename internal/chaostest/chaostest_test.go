package chaostest

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// tries is how many runs of a fault there may be until one counts: on a slow machine a fault may
// come while no process has work in hand.
const tries = 4

type cell struct {
	Database
	Fault
}

// cells are all faults, those that both databases have on one of them.
func cells() []cell {
	var all []cell
	for i, f := range Faults(Postgres) {
		db := Postgres
		if i%2 == 0 && slices.Contains(Faults(SQLite), f) {
			db = SQLite
		}
		all = append(all, cell{db, f})
	}
	for _, f := range Faults(SQLite) {
		if !slices.Contains(Faults(Postgres), f) {
			all = append(all, cell{SQLite, f})
		}
	}
	return all
}

// Every fault once, on one of its databases, as `make chaos` does thousands of times on both.
func TestFaults(t *testing.T) {
	dir, err := os.MkdirTemp("", "ledgerd-chaos-") // leftovers of violations stay
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "ledgerd")
	if err := Build(t.Context(), "../..", program); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	counted := map[cell]bool{}
	broken := false
	c := &Campaign{Program: program, Dir: dir, Parallel: 6, Done: func(r Result) {
		mu.Lock()
		defer mu.Unlock()
		t.Logf("%s: %d daemons, %d items, %d hits, %v %s", r.Plan, r.Plan.Daemons, r.Completed, r.Hit, r.Faults, r.Void())
		for _, v := range r.Violations {
			broken = true
			t.Errorf("%s: %v; see %s", r.Plan, v, filepath.Join(dir, r.Plan.String()))
		}
		if r.Void() == "" {
			counted[cell{r.Plan.Database, r.Plan.Fault}] = true
		}
	}}
	for try := range uint64(tries) {
		var plans []Plan
		for i, c := range cells() {
			if counted[c] || c.Fault == DiskFull && !mayMount(t) {
				continue
			}
			p, err := NewPlan(c.Database, c.Fault, 100*try+uint64(i))
			if err != nil {
				t.Fatal(err)
			}
			p.Patience = 5
			plans = append(plans, p)
		}
		if try == tries-1 {
			for _, p := range plans {
				t.Errorf("%s on %s: %d runs and none counts", p.Fault, p.Database, tries-1)
			}
		} else if err := c.Work(t.Context(), plans); err != nil {
			t.Fatal(err)
		}
	}
	if !broken {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	}
}

// mayMount reports whether this process may make a small disk. Where it may not, TestDiskFull of
// ledger/sqlite, which can do without, has to do.
func mayMount(t *testing.T) bool {
	dir := t.TempDir()
	if err := mount(dir, 1<<20); err != nil {
		t.Logf("no run with a full disk: %v", err)
		return false
	}
	if err := unmount(dir); err != nil {
		t.Fatal(err)
	}
	return true
}
