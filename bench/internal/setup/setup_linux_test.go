package setup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/pgtest"

	"github.com/ledgerd/ledgerd/bench/internal/peers"
)

// A server that does not wait for its disk is refused.
func TestLookRefuses(t *testing.T) {
	ask := func(off string) (About, error) {
		settings := map[string]string{"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
		if off != "" {
			settings[off] = "off"
		}
		a := About{Versions: map[string]string{}, Postgres: map[string]string{}}
		return a, a.askPostgres(t.Context(), pgtest.Start(t, pgtest.Options{Settings: settings}).URL())
	}
	if a, err := ask(""); err != nil || a.Postgres["fsync"] != "on" || a.Versions["Postgres"] == "" {
		t.Errorf("in order, and refused: %v; %+v", err, a)
	}
	for _, name := range durable {
		if _, err := ask(name); err == nil || !strings.Contains(err.Error(), name+" = off") {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

func TestInMemory(t *testing.T) {
	for dir, want := range map[string]bool{"/dev/shm": true, "/dev/shm/x": true, "/": false} {
		if got := inMemory(dir); got != want {
			t.Errorf("%s in memory: %v", dir, got)
		}
	}
}

// Without Node.js, with a version that is too old, or without npm, the error names what is missing and what to do.
func TestGraphileNeedsNode(t *testing.T) {
	path := t.TempDir()
	t.Setenv("PATH", path)
	for _, c := range []struct{ node, want string }{
		{"", "`node --version` failed"}, {"v18.20.8", "`node` is 18.20.8"}, {"v20.1.0", "`npm --version` failed"},
	} {
		if c.node != "" {
			script := "#!/bin/sh\necho " + c.node + "\n"
			if err := os.WriteFile(filepath.Join(path, "node"), []byte(script), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		err := Graphile(t.Context(), t.TempDir(), &About{Versions: map[string]string{}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "Node.js 20 or newer") ||
			!strings.Contains(err.Error(), "-only") {
			t.Errorf("node %q: %v", c.node, err)
		}
	}
}

// The program is installed, adds, drains and waits for starts, and its schema is removed. A drain of another number of
// jobs than was asked for is an error.
func TestGraphile(t *testing.T) {
	t.Chdir("../..")
	programs, a := t.TempDir(), About{Versions: map[string]string{}}
	if err := Graphile(t.Context(), programs, &a); err != nil {
		t.Fatal(err)
	}
	if a.Versions[peers.GraphileWorker] != "0.18.0" || a.Versions["Node.js"] == "" {
		t.Errorf("versions %v", a.Versions)
	}
	url := pgtest.Start(t, pgtest.Options{}).URL()
	start := func() *peers.Graphile {
		g, err := peers.NewGraphile(t.Context(), programs, url)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	g := start()
	s, err := g.AddAndDrain(t.Context(), 6000)
	if err != nil || s["add"] <= 0 || s["drain"] <= 0 || s["cpu"] <= 0 || s["wal"] <= 0 {
		t.Errorf("add and drain: %v, %v", s, err)
	}
	if took, err := g.StartLatency(3); err != nil || len(took) != 3 || took[0] <= 0 {
		t.Errorf("starts: %v, %v", took, err)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	g = start()
	if _, err := g.Add(20, 2); err != nil {
		t.Error(err)
	}
	if s, err := g.AddAndDrain(t.Context(), 300); err == nil {
		t.Errorf("300 jobs drained, where there were 320: %v", s)
	}
	if err := g.Remove(); err == nil {
		t.Error("the program failed, and that is no error")
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	left := 0
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'graphile%'").
		Scan(&left); err != nil || left > 0 {
		t.Errorf("%d schemas are left, %v", left, err)
	}
}
