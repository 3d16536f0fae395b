package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger/storetest/exclusivetest"
)

// TestKilledWorkersOfResources: four processes work items that need two of ten resources.
// Two of the processes are killed in the middle. No resource was ever used by two at once, by the ledger's
// clock, and what the dead ones held comes free when their leases end.
func TestKilledWorkersOfResources(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		const items = 400
		dir := t.TempDir()
		effects := filepath.Join(dir, "effects")
		for r := range 10 { // each tenth shares one of its two with the next tenth
			args := []string{"add", "effect", "--set", "ms=5", "--resource", fmt.Sprint("r", r), "--resource",
				fmt.Sprint("r", (r+1)%10)}
			for i := r; i < items; i += 10 {
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
			if err := w.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-w.done
		}
		for _, w := range workers[2:] {
			if code := m.exit(w); code != failure.ExitOK {
				t.Fatalf("exit %d\n%s%s", code, w.stdout.String(), w.stderr.String())
			}
		}
		if done := lines(t, effects, "done"); len(done) != items {
			t.Errorf("%d of %d items were done", len(done), items)
		}
		m.run(failure.ExitOK, "db", "verify")
		at, err := app.ParseAddress(m.db, "test")
		if err != nil {
			t.Fatal(err)
		}
		l, err := testApp(new(bytes.Buffer)).OpenAt(t.Context(), at, app.ToRead)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if n := exclusivetest.Check(t.Context(), t, l.Ledger); n < items {
			t.Errorf("only %d attempts", n)
		}
	})
}
