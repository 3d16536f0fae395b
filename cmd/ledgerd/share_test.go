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

// While a kind is worked with one config, no process works it with another one.
func TestOtherSettings(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		dir := t.TempDir()
		effects, till := filepath.Join(dir, "effects"), filepath.Join(dir, "go")
		first := m.start("run", "effect", "a", "--set", "till="+till, "--with", "path="+effects)
		m.until("it is begun", func() bool { return len(lines(t, effects, "start")) == 1 })
		for _, args := range [][]string{{"run", "effect", "b", "--with", "path=" + effects + "2"},
			{"run", "effect", "b", "--with", "path="}, {"work", "--kind", "effect", "--with", "path="}} {
			second := m.start(args...)
			m.ends(second, failure.ExitUsage)
			for _, want := range []string{`kind "effect" is worked with other settings by `, `path is "` + effects +
				`" there and `, "another name for the kind is no way round"} {
				if !strings.Contains(second.stderr.String(), want) {
					t.Errorf("ledgerd %s printed %q, without %q", args, second.stderr.String(), want)
				}
			}
		}
		m.run(failure.ExitOK, "run", "other", "b", "--plugin", "effect", "--with", "path="+effects+"2")
		// Secrets are not compared.
		same := m.start("run", "effect", "a", "--set", "till="+till, "--with", "path="+effects, "--with", "token=secret")
		must.OK(t, os.WriteFile(till, nil, 0o600))
		for _, p := range []*started{first, same} {
			m.ends(p, failure.ExitOK)
		}
		m.run(failure.ExitOK, "add", "effect", "left", "--due", "1d")
		// No process works the kind: other settings hold now, also with items left.
		m.run(failure.ExitOK, "run", "effect", "c", "--with", "path=")
	})
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

// The context of a running item ends when it is cancelled, wherever it runs.
func TestCancelRunning(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	dir := t.TempDir()
	effects := filepath.Join(dir, "effects")
	run := m.start("run", "effect", "a", "--set", "till="+filepath.Join(dir, "never"), "--with", "path="+effects)
	m.until("it is begun", func() bool { return len(lines(t, effects, "start")) == 1 })
	m.run(failure.ExitOK, "cancel", "a")
	m.ends(run, failure.ExitOK)
	if s := m.show("a"); s.Item.State != "cancelled" || len(s.Attempts) != 1 {
		t.Errorf("%+v", s)
	}
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
