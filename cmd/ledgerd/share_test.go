package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// attempt is an attempt in the output of show.
type attempt struct{ Outcome, Code, Error, Agent string }

// show returns the fields of show -o json that these tests use.
func (m *machine) show(item string) (s struct {
	Item     struct{ State, Agent string }
	Attempts []attempt
}) {
	m.t.Helper()
	must.OK(m.t, json.Unmarshal([]byte(m.run(failure.ExitOK, "show", item, "-o", "json")), &s))
	return s
}

// Workers that were started on an empty ledger work new items, also of a kind that is added later, and share them.
func TestSharedWork(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		dir := t.TempDir()
		m.run(failure.ExitOK, "db", "migrate")
		var list strings.Builder
		for i := range 400 {
			fmt.Fprintf(&list, "item %d\n", i)
		}
		must.OK(t, os.WriteFile(filepath.Join(dir, "list"), []byte(list.String()), 0o600))
		workers := []*started{m.start("work", "-o", "json"), m.start("work", "-o", "json")}
		// More work than one worker can do between two checks for new kinds.
		m.run(failure.ExitOK, "add", "effect", "--from", filepath.Join(dir, "list"), "--set", "ms=100")
		m.until("all is done", func() bool { return m.count("state:done") == 400 })
		for _, w := range workers {
			m.stop(w, syscall.SIGINT, 130)
			var sum struct{ Outcomes map[string]int }
			must.OK(t, json.Unmarshal([]byte(w.stdout.String()), &sum))
			if n := sum.Outcomes["done"]; n == 0 || n == 400 {
				t.Errorf("one of two workers did %d of 400", n)
			}
		}
		m.run(failure.ExitOK, "db", "verify")
	})
}

// The ledger has the meaning of INPUT and its field, so items can be added where the plugin is not installed.
func TestAddWithoutPlugin(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	plugins := t.TempDir()
	must.OK(t, os.Chmod(plugins, 0o700))
	link(t, filepath.Join(plugins, "ledgerd-plugin-hello"))
	m.run(failure.ExitUsage, "add", "hello", "ann")
	m.run(failure.ExitOK, "run", "hello", "ann", "--plugin-dir", plugins)
	m.run(failure.ExitOK, "add", "hello", " bob ")
	if s := m.show("bob"); s.Item.State != "ready" {
		t.Errorf("state %s", s.Item.State)
	}
	m.run(failure.ExitUsage, "work", "--kind", "hello", "--drain")
	m.run(failure.ExitOK, "work", "--drain") // this machine has no plugin for the kinds
	m.run(failure.ExitOK, "work", "--drain", "--plugin-dir", plugins)
	if s := m.show("bob"); s.Item.State != "done" {
		t.Errorf("state %s", s.Item.State)
	}
}
