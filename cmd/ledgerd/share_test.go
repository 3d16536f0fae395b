package main

import (
	"encoding/json"
	"os"
	"path/filepath"
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
