package setup

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// TestLookRefuses: a server that does not wait for its disk is no server to measure on.
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
