package main

import (
	"database/sql"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	_ "modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/schematest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/schema"
)

// nextRelease is a release that may follow this one, with one more migration. The migration only adds, as all of them
// do within a release series. These tests treat this release as the old one, since no release is older.
func nextRelease() {
	schema.Version++
	next := fstest.MapFS{}
	err := fs.WalkDir(schema.Postgres, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(schema.Postgres, path)
		next[path] = &fstest.MapFile{Data: text}
		return err
	})
	if err != nil {
		panic(err)
	}
	for _, database := range []string{"sqlite", "postgres"} {
		next[fmt.Sprintf("%s/%05d_next.sql", database, schema.Version)] = &fstest.MapFile{Data: []byte("-- +goose Up\n" +
			"ALTER TABLE ledger_items ADD COLUMN next text;\nALTER TABLE ledger_backlog ADD COLUMN next text;\n" +
			"ALTER TABLE ledger_attempts ADD COLUMN next text;\n")}
	}
	schema.Postgres, schema.SQLite = next, next
	main()
}

// database returns the machine's database, without the ledger.
func (m *machine) database() *sql.DB {
	m.t.Helper()
	driver, at := "pgx", m.db
	if path, ok := strings.CutPrefix(m.db, "sqlite:"); ok {
		driver, at = "sqlite", "file:"+path+"?_pragma=busy_timeout(10000)"
	}
	db, err := sql.Open(driver, at)
	must.OK(m.t, err)
	m.t.Cleanup(func() { db.Close() })
	return db
}

func (m *machine) onSQLite() bool { return strings.HasPrefix(m.db, "sqlite:") }

const inbox = `
[[source]]
name = "inbox"
type = "folder"
kind = "filecsv"
path = "DIR/inbox"
schedule = "1s"
settle = "0s"
`

// Two releases run on one ledger; the newer one migrates it. The old one continues, is started again, and is stopped
// for good while files are still added. Nothing is lost or done twice. After the ledger refuses old programs, they do
// not use it any more.
func TestServeUpgrade(t *testing.T) {
	t.Parallel()
	next := filepath.Join(t.TempDir(), "ledgerd-next")
	link(t, next)
	onBothHere(t, func(t *testing.T, m *machine) {
		const files = 400
		s := m.site(base[:strings.Index(base, "[")] + inbox)
		must.OK(t, os.Mkdir(filepath.Join(s.dir, "inbox"), 0o700))
		addFiles := func(from, to int) {
			for i := from; i < to; i++ {
				s.write(fmt.Sprintf("inbox/%d.csv", i), fmt.Sprintf("a,b\n%d,1\n", i))
			}
		}
		end := func(p *started) {
			t.Helper()
			s.stop(p, syscall.SIGTERM, failure.ExitOK)
		}
		addFiles(0, files/4)
		old := s.daemon()
		s.until("the old one works", func() bool { return s.done("filecsv") > 0 })
		if !m.onSQLite() { // files are migrated when they are opened
			refused := s.launch(exec.Command(next, "serve", "--config", s.config))
			s.ends(refused, failure.ExitNoLedger, " db migrate")
		}
		newer := s.serves(s.launch(exec.Command(next, "serve", "--config", s.config, "--migrate")))
		addFiles(files/4, files/2)
		again := s.daemon() // as if the user goes back to the old release
		end(old)
		addFiles(files/2, 3*files/4)
		s.until("most are done", func() bool { return s.done("filecsv") > files/2 })
		end(again)
		addFiles(3*files/4, files)
		s.until("all are done", func() bool { return s.done("filecsv") == files })
		if status := s.run(failure.ExitOK, "db", "status", "-o", "json"); !strings.Contains(status,
			fmt.Sprintf(`"schema": %d,`, schema.Version+1)) {
			t.Errorf("not migrated: %s", status)
		}
		// Items that were claimed and not begun are given back at a stop; every other item was worked once.
		ended, err := m.ledger().Ended(t.Context(), ledger.EndedQuery{Limit: bounds.MaxBatch})
		must.OK(t, err)
		completions := 0
		for _, e := range ended {
			switch e.Outcome {
			case ledger.OutcomeDone:
				completions++
			case ledger.OutcomeReleased:
			default:
				t.Errorf("%s ended as %s: %s", e.Key, e.Outcome, e.Error)
			}
		}
		if completions != files || len(ended) == bounds.MaxBatch {
			t.Errorf("%d completions of %d files, in %d attempts", completions, files, len(ended))
		}
		s.run(failure.ExitOK, "db", "verify")

		s.run(failure.ExitOK, "kind", "set", "people", "--input", "line")
		s.run(failure.ExitOK, "add", "people", "letter")
		running := []*started{s.daemon(), s.start("work"), s.start("watch", "-n", "0"), s.start("watch", "letter")}
		s.until("work is known", func() bool {
			return strings.Count(s.run(failure.ExitOK, "agents", "-o", "jsonl"), "\n") == 3
		})
		must.Do(t)(m.database().Exec(fmt.Sprintf("UPDATE ledger_meta SET v = '%d' WHERE k = 'compatible_from'",
			schema.Version+1)))
		for _, args := range [][]string{{"ls"}, {"add", "filecsv", filepath.Join(s.dir, "inbox")}, {"work", "--drain"},
			{"serve", "--migrate", "--config", s.config}, {"db", "migrate"}, {"db", "verify"}} {
			p := s.start(args...)
			s.ends(p, failure.ExitNoLedger, "upgrade ledgerd on this machine")
		}
		for _, p := range running { // these notice it by themselves
			s.ends(p, failure.ExitNoLedger, "upgrade ledgerd on this machine")
			if strings.Contains(p.stderr.String(), "a source does not end") {
				t.Errorf("the daemon printed\n%s", p.stderr.String())
			}
		}
		if list := s.launch(exec.Command(next, "agents", "-o", "jsonl")); s.exit(list) != failure.ExitOK ||
			strings.Count(list.stdout.String(), "\n") != 1 {
			t.Errorf("still at work:\n%s", list.stdout.String())
		}
		addFiles(files, files+1)
		verify := func() int { return s.exit(s.launch(exec.Command(next, "db", "verify"))) }
		s.until("the new one goes on", func() bool {
			p := s.launch(exec.Command(next, "ls", "--state", "done", "--limit", "10000", "-o", "jsonl", "-q"))
			return s.exit(p) == failure.ExitOK && strings.Count(p.stdout.String(), "\n") == files+1
		})
		end(newer)
		if code := verify(); code != failure.ExitOK {
			t.Errorf("db verify: exit %d", code)
		}
	})
}

// A daemon that is asked to migrates a ledger of the oldest schema, with items, and works it. Otherwise, on Postgres,
// it changes nothing and prints what to do.
func TestServeMigrate(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		m.older()
		s := m.site(base + "[kinds.renamed.with]\npath = \"DIR/effects\"\n") // only the ledger knows the plugin of this kind
		if !m.onSQLite() {
			for range 2 {
				refused := s.start("serve", "--config", s.config)
				s.ends(refused, failure.ExitNoLedger, fmt.Sprintf("has schema %d,", schema.Oldest))
			}
		}
		daemon := s.daemon("--migrate")
		s.until("it is worked", func() bool { return s.done("effect") == 1 })
		s.stop(daemon, syscall.SIGTERM, failure.ExitOK)
		s.run(failure.ExitOK, "db", "verify")
	})
}

// older makes the ledger one of the oldest schema, with an item.
func (m *machine) older() {
	m.t.Helper()
	folder, dialect, files := "postgres", goose.DialectPostgres, schema.Postgres
	if m.onSQLite() {
		folder, dialect, files = "sqlite", goose.DialectSQLite3, schema.SQLite
	}
	db := m.database()
	schematest.Migrate(m.t, db, dialect, files, folder, fmt.Sprintf("%05d_ledger.sql", schema.Oldest))
	for _, statement := range []string{"INSERT INTO ledger_kinds (kind, plugin) VALUES ('effect', ''), ('renamed', 'effect')",
		"INSERT INTO ledger_items (kind, key, slot, created_at, payload) VALUES ('effect', 'old', SLOT, TIME, BYTES)",
		"INSERT INTO ledger_backlog (item_id, kind, STATE, slot, due_at) VALUES (1, 'effect', 1, SLOT, TIME)"} {
		state, now, payload := "stage", "now()", `convert_to('{"text":"old"}', 'UTF8')`
		if m.onSQLite() {
			state, now, payload = "state", "1", `CAST('{"text":"old"}' AS BLOB)`
		}
		if _, err := db.Exec(strings.NewReplacer("STATE", state, "TIME", now, "BYTES", payload, "SLOT",
			"928").Replace(statement)); err != nil {
			m.t.Fatalf("%s: %v", statement, err)
		}
	}
}

// Commands that only read refuse a ledger of an older schema and do not change it. On SQLite the first command that
// works migrates it, keeps a copy and reports that; on Postgres only db migrate does.
func TestOlderLedger(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		m.older()
		has := func(want int) {
			t.Helper()
			code := failure.ExitNoLedger
			if want == schema.Version {
				code = failure.ExitOK
			}
			if got := m.run(code, "db", "status", "-o", "json"); !strings.Contains(got, fmt.Sprintf(`"schema": %d,`, want)) {
				t.Errorf("want schema %d: %s", want, got)
			}
		}
		refused := func(args ...string) {
			t.Helper()
			want := fmt.Sprintf("has schema %d, this program needs %d\n  migrate it: ledgerd db migrate", schema.Oldest,
				schema.Version)
			if _, stderr := m.printed(failure.ExitNoLedger, args...); !strings.Contains(stderr, want) {
				t.Errorf("%s: without %s\n%s", args, want, stderr)
			}
		}
		for _, args := range [][]string{{"ls"}, {"show", "1"}, {"stats"}, {"errors"}, {"watch", "-n", "0"}, {"journal"},
			{"agents"}, {"kind", "ls"}, {"kind", "show", "effect"}, {"lock", "ls"}, {"db", "verify"},
			{"ui", "--listen", "127.0.0.1:0"}, {"db", "copy", "--to", "sqlite:" + filepath.Join(t.TempDir(), "to.db")},
			{"add", "effect", "x", "--dry-run"}, {"retry", "1", "--dry-run"}, {"cancel", "1", "--dry-run"},
			{"prune", "--older", "1h", "--dry-run"}} {
			refused(args...)
		}
		if got := m.run(failure.ExitError, "doctor"); !strings.Contains(got, "schema 17, this program makes") &&
			!strings.Contains(got, "has schema 17, this program needs") {
			t.Errorf("doctor: %s", got)
		}
		has(schema.Oldest)
		if !m.onSQLite() {
			refused("add", "effect", "x")
			refused("claim", "effect", "--agent", "ann")
			m.run(failure.ExitOK, "db", "migrate")
			has(schema.Version)
			return
		}
		path := strings.TrimPrefix(m.db, "sqlite:")
		kept := filepath.Join(t.TempDir(), "backup.db") // making a backup changes nothing either
		m.run(failure.ExitOK, "db", "backup", kept)
		has(schema.Oldest)
		p := m.start("claim", "effect", "--agent", "ann")
		line := fmt.Sprintf("migrated: schema 17 → %d   the ledger as it was: %s.schema-17.bak\n", schema.Version, path)
		if code := m.exit(p); code != failure.ExitOK || strings.Count(p.stderr.String(), line) != 1 {
			t.Errorf("exit %d, want %s\n%s", code, line, p.stderr.String())
		}
		has(schema.Version)
		if p := m.start("ls"); m.exit(p) != failure.ExitOK || strings.Contains(p.stderr.String(), "migrated") {
			t.Error(p.stderr.String())
		}
		// The copy and the backup are the ledger as it was.
		for _, old := range []string{path + ".schema-17.bak", kept} {
			m.run(failure.ExitNoLedger, "db", "status", "--db", "sqlite:"+old)
			got := m.run(failure.ExitOK, "db", "migrate", "--db", "sqlite:"+old, "-o", "json")
			if !strings.Contains(got, `"migrated_from": 17`) || !strings.Contains(got, `"copy": "`+old+`.schema-17.bak"`) {
				t.Error(got)
			}
			got = m.run(failure.ExitOK, "ls", "--db", "sqlite:"+old, "--columns", "key,state", "-o", "csv")
			if !strings.Contains(got, "old,ready") {
				t.Errorf("%s has %s", old, got)
			}
		}
	})
}
