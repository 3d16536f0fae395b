package dburl

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
	"github.com/ledgerd/ledgerd/ledger"
)

// The commands that are printed for a backup and for its restoration do it, with any name of a schema and any
// parameters of the URL.
func TestPrintedCommands(t *testing.T) {
	if _, err := os.Stat(filepath.Join(os.Getenv(cluster.BinEnv), "pg_dump")); err != nil {
		t.Setenv(cluster.BinEnv, "") // packages of npm have no pg_dump
	}
	server := pgtest.Start(t, pgtest.Options{})
	t.Setenv("PATH", server.Bin+":"+os.Getenv("PATH"))
	t.Setenv("PGPASSWORD", server.Password)
	conn, err := pgx.Connect(t.Context(), server.URL())
	must.OK(t, err)
	defer conn.Close(t.Context())
	shell := func(command string) {
		t.Helper()
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", command, err, out)
		}
	}
	printed := func(err error) string {
		t.Helper()
		tool, ok := errors.AsType[*ToolError](err)
		if !ok {
			t.Fatal(err)
		}
		return tool.Command
	}
	open := func(url string, make bool, do func(Store)) {
		t.Helper()
		at, err := Parse(url, "--db")
		must.OK(t, err)
		s, err := at.Open(t.Context(), Options{Make: make})
		must.OK(t, err)
		do(s)
		must.OK(t, s.Close())
	}
	hasItem := func(s Store) {
		t.Helper()
		if n, err := s.Count(t.Context(), ledger.Filter{}); n != 1 || err != nil {
			t.Errorf("%d items, %v", n, err)
		}
	}
	for _, path := range []string{"shop", "%22App%22"} {
		query := "&jit=on&statement_timeout=0&pool_max_conns=4&search_path=" + path
		open(server.URL()+query, true, func(s Store) {
			must.Do(t)(ledger.New(s, ledger.Options{}).Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}))
		})
		at, err := Parse(server.URL()+query, "--db")
		must.OK(t, err)
		file := filepath.Join(t.TempDir(), "a dump")
		dump, back, _ := strings.Cut(printed(at.Backup(t.Context(), file)), "\n")
		shell(dump)
		name := strings.ReplaceAll(path, "%22", `"`)
		must.Do(t)(conn.Exec(t.Context(), "DROP SCHEMA "+name+" CASCADE"))
		_, back, _ = strings.Cut(back, ": ")
		shell(strings.ReplaceAll(back, "…", "'"+server.URL()+"'"))
		open(server.URL()+query, false, hasItem)

		must.Do(t)(conn.Exec(t.Context(), "DROP SCHEMA "+name+" CASCADE; CREATE SCHEMA "+name))
		_, err = at.Restore(t.Context(), file, RestoreHooks{})
		_, restore, _ := strings.Cut(printed(err), "and run: ")
		restore, makeSchema, _ := strings.Cut(restore, "\n")
		shell(restore)
		open(server.URL()+query, false, hasItem)
		if !strings.Contains(makeSchema, "psql ") {
			t.Errorf("how to make the schema: %q", makeSchema)
		}
	}
}
