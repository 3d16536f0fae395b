package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/cli/setup"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
)

// bench prints results, uses a ledger of its own, and leaves nothing behind.
func TestBench(t *testing.T) {
	measure := func(t *testing.T, m *machine, database string) {
		out := m.run(failure.ExitOK, "self", "bench", "--items", "300", "-o", "json")
		var b setup.Benched
		must.OK(t, json.Unmarshal([]byte(out), &b))
		if b.Items != 300 || !strings.HasPrefix(b.Database, database+" ") || b.Cores < 1 ||
			b.AddPerSecond <= 0 || b.Drain <= 0 || b.P50 <= 0 || b.P99 < b.P50 {
			t.Errorf("%+v", b)
		}
	}
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		measure(t, newMachine(t, "sqlite:"+filepath.Join(dir, "ledger.db")), "sqlite")
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		// It uses a separate database: a schema of another test would be taken for a leftover.
		url := pgtest.Database(t)
		measure(t, newMachine(t, url), "postgres")
		ctx := context.Background()
		conn, err := pgx.Connect(ctx, url)
		must.OK(t, err)
		defer conn.Close(ctx)
		var left int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE "+
			"relname LIKE 'ledger%' OR nspname LIKE 'ledgerd%'").Scan(&left); err != nil || left > 0 {
			t.Errorf("%d relations left behind, %v", left, err)
		}
	})
}
