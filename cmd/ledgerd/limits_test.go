package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// shardKeys lists items "h0 1", "h1 2" … of five shard keys; every database takes it.
const shardKeys = `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)
SELECT 'h' || (i % 5) || ' ' || i AS key, 'h' || (i % 5) AS shard_key FROM n`

// TestLimitedWork: several worker processes together never have more than two items of a shard key in
// work, and do all of it.
func TestLimitedWork(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		dir := t.TempDir()
		effects, list := filepath.Join(dir, "effects"), filepath.Join(dir, "list.sql")
		must.OK(t, os.WriteFile(list, []byte(shardKeys), 0o600))
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "effect", "--max-running-per-shard-key", "2")
		m.run(failure.ExitOK, "add", "effect", "--from", list, "--set", "ms=60")
		var workers []*started
		for range 3 {
			workers = append(workers, m.start("work", "--kind", "effect", "--with", "path="+effects, "-j", "6", "--drain"))
		}
		for _, w := range workers {
			m.ends(w, failure.ExitOK)
		}
		if n := len(lines(t, effects, "done")); n != 60 {
			t.Errorf("%d of 60 are done", n)
		}
		text, err := os.ReadFile(effects)
		must.OK(t, err)
		running, most := map[string]int{}, 0
		for line := range strings.Lines(string(text)) {
			var what, key string
			var n int
			if _, err := fmt.Sscan(line, &what, &key, &n); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			running[key] += map[string]int{"start": 1, "done": -1}[what]
			if most = max(most, running[key]); running[key] > 2 {
				t.Fatalf("%d of %s at a time", running[key], key)
			}
		}
		if most != 2 {
			t.Errorf("never more than %d of a shard key at a time", most)
		}
		m.run(failure.ExitOK, "db", "verify")
	})
}
