package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// other is the address of an empty place on the other database.
func (m *machine) other() string {
	if strings.HasPrefix(m.db, "sqlite:") {
		return pgtest.SchemaURL(m.t)
	}
	return "sqlite:" + filepath.Join(m.t.TempDir(), "other.db")
}

// list writes a file with so many lines.
func list(t testing.TB, n int) string {
	t.Helper()
	var lines strings.Builder
	for i := range n {
		fmt.Fprintf(&lines, "item %d\n", i)
	}
	path := filepath.Join(t.TempDir(), "list")
	if err := os.WriteFile(path, []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// paused are the kinds of a ledger that are.
func (m *machine) paused(db string) (names []string) {
	m.t.Helper()
	var kinds []struct {
		Kind   string
		Paused bool
	}
	if err := json.Unmarshal([]byte(m.run(exitOK, "kind", "ls", "-o", "json", "--db", db)), &kinds); err != nil {
		m.t.Fatal(err)
	}
	for _, k := range kinds {
		if k.Paused {
			names = append(names, k.Kind)
		}
	}
	return names
}

// A ledger moves to the other database once nobody works it, and all commands find there what they
// found before.
func TestCopyToTheOtherDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		till, to := filepath.Join(t.TempDir(), "go"), m.other()
		m.run(exitUnfinished, "run", "effect", "bad", "--set", "how=permanent")
		m.run(exitOK, "kind", "set", "people")
		m.run(exitOK, "kind", "set", "halted")
		m.run(exitOK, "kind", "pause", "halted")
		busy := m.start("run", "effect", "long", "--set", "till="+till)
		m.until("it is begun", func() bool { return strings.Contains(m.run(exitOK, "ls", "--columns", "state"), "leased") })
		early := m.start("db", "copy", "--to", to)
		if code := m.exit(early); code != exitTaken || !strings.Contains(early.stderr.String(), "is not quiet: agents at work: ") ||
			!strings.Contains(early.stderr.String(), "1 leased, by ") {
			t.Errorf("while a worker is there: exit %d\n%s", code, early.stderr.String())
		}
		m.run(exitNoLedger, "ls", "--db", to)
		if late := m.start("db", "copy", "--to", to, "--wait", "1s"); m.exit(late) != exitTaken || !strings.Contains(late.stderr.String(), "paused for the copy: effect, people; ") {
			t.Errorf("in vain: %s", late.stderr.String())
		}
		if got := m.paused(m.db); !slices.Equal(got, []string{"halted"}) {
			t.Errorf("paused after a copy that did not come about: %s", got)
		}
		stopped := m.start("db", "copy", "--to", to, "--wait", "5m")
		m.until("it waits", func() bool { return slices.Equal(m.paused(m.db), []string{"effect", "halted", "people"}) })
		if err := stopped.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code, got := m.exit(stopped), m.paused(m.db); code != 143 || !slices.Equal(got, []string{"halted"}) {
			t.Errorf("after a copy that was stopped: exit %d, paused: %s", code, got)
		}
		waiting := m.start("db", "copy", "--to", to, "--wait", "5m", "-o", "json")
		m.until("it waits", func() bool { return len(m.paused(m.db)) == 3 })
		if err := os.WriteFile(till, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if code := m.exit(busy); code != exitOK {
			t.Fatalf("exit %d\n%s", code, busy.stderr.String())
		}
		if code := m.exit(waiting); code != exitOK {
			t.Fatalf("exit %d\n%s", code, waiting.stderr.String())
		}
		var res copied
		if err := json.Unmarshal([]byte(waiting.stdout.String()), &res); err != nil || res.Rows < 5 || len(res.Tables) == 0 {
			t.Errorf("%v\n%s", err, waiting.stdout.String())
		}
		if here, there := m.paused(m.db), m.paused(to); len(here) != 3 || !slices.Equal(there, []string{"halted"}) {
			t.Errorf("paused in the source: %s, in the copy: %s", here, there)
		}
		m.run(exitOK, "kind", "resume", "effect", "people")
		for _, args := range [][]string{{"ls", "-o", "csv"}, {"show", "bad", "-o", "json"}, {"kind", "ls", "-o", "json"}} {
			here, there := m.run(exitOK, args...), m.run(exitOK, append(args, "--db", to)...)
			if here != there {
				t.Errorf("%s differs:\n%s\n%s", args, here, there)
			}
		}
		m.run(exitOK, "db", "verify", "--db", to)
		m.run(exitUsage, "db", "copy", "--to", to)
		m.run(exitOK, "retry", "bad", "--db", to)
		m.run(exitUnfinished, "work", "--drain", "--db", to)
		m.run(exitOK, "run", "effect", "new", "--db", to)
	})
}

// A copy that was killed is marked, is refused by all other commands, and goes on.
func TestKilledCopy(t *testing.T) {
	t.Parallel()
	m := newMachine(t, pgtest.SchemaURL(t))
	m.run(exitOK, "add", "effect", "--from", list(t, 40_000))
	for try := range 5 {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.db", try))
		p := m.start("db", "copy", "--to", "sqlite:"+path)
		m.until("rows arrive", func() bool { // what is committed is in the log beside the file
			info, err := os.Stat(path + "-wal")
			select {
			case <-p.done:
				return true
			default:
				return err == nil && info.Size() > 1<<20
			}
		})
		_ = p.Process.Kill()
		<-p.done
		if p.ProcessState.ExitCode() == exitOK {
			continue // it was quicker
		}
		for _, args := range [][]string{{"ls"}, {"db", "status"}, {"db", "migrate"}, {"db", "verify"}, {"work", "--drain"}, {"db", "backup", path + ".b"}} {
			refused := m.start(append(args, "--db", "sqlite:"+path)...)
			if code := m.exit(refused); code != exitNoLedger || !strings.Contains(refused.stderr.String(), "is not complete: another one (id ") {
				t.Errorf("%s of half a copy: exit %d\n%s", args, code, refused.stderr.String())
			}
		}
		var res copied
		if err := json.Unmarshal([]byte(m.run(exitOK, "db", "copy", "--to", "sqlite:"+path, "-o", "json")), &res); err != nil {
			t.Fatal(err)
		}
		for _, table := range res.Tables {
			if table.Table == "ledger_items" && (table.Rows != 40_000 || table.Copied >= 40_000) {
				t.Errorf("%+v: what was there was copied again, or is missing", table)
			}
		}
		m.run(exitOK, "db", "verify", "--db", "sqlite:"+path)
		return
	}
	t.Error("five copies were quicker than the test: it needs more items")
}

// A backup is taken while a worker works: each is a sound ledger, and the work goes on.
func TestBackupWhileWorkGoesOn(t *testing.T) {
	t.Parallel()
	m := newMachine(t, "sqlite:"+filepath.Join(t.TempDir(), "ledger.db"))
	m.run(exitOK, "add", "effect", "--from", list(t, 5_000))
	worker := m.start("work", "--drain", "--kind", "effect")
	done := func(db string) int64 {
		s, err := sqlite.Open(t.Context(), db, sqlite.Options{MustExist: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		n, err := s.Count(t.Context(), ledger.Filter{States: []ledger.State{ledger.StateDone}})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	m.until("it works", func() bool { return done(strings.TrimPrefix(m.db, "sqlite:")) > 0 })
	var last int64
	for i := range 3 {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("%d.db", i))
		m.run(exitOK, "db", "backup", path)
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%v %v", info.Mode(), err)
		}
		check, err := exec.Command(m.program, "db", "verify", "--db", "sqlite:"+path).CombinedOutput()
		if err != nil {
			t.Errorf("backup %d: %v\n%s", i, err, check)
		}
		n := done(path)
		if n < last {
			t.Errorf("backup %d has %d items done, the one before %d", i, n, last)
		}
		last = n
	}
	if code := m.exit(worker); code != exitOK {
		t.Errorf("the worker: exit %d\n%s", code, worker.stderr.String())
	}
	if n := done(strings.TrimPrefix(m.db, "sqlite:")); n != 5_000 {
		t.Errorf("%d items are done", n)
	}
}

// A program that has gone without a word is named, with what it holds, until somebody takes it back.
func TestDoctorFindsForgottenLeases(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		m.run(exitOK, "add", "effect", "a", "b", "c")
		at, err := parseAddress(m.db, "--db")
		if err != nil {
			t.Fatal(err)
		}
		s, err := at.Open(t.Context(), dburl.Options{})
		if err != nil {
			t.Fatal(err)
		}
		l := ledger.New(s, ledger.Options{})
		defer l.Close()
		if _, err := l.Claim(t.Context(), ledger.Claim{Kind: "effect", Agent: "far/4711", Limit: 2}); err != nil {
			t.Fatal(err)
		}
		doctor := func() string {
			p := m.start("doctor")
			m.exit(p)
			return p.stdout.String()
		}
		if said := doctor(); !strings.Contains(said, "agents         0 programs at work, no lease is forgotten") {
			t.Errorf("a lease of a person is not forgotten:\n%s", said)
		}
		if err := s.Beat(t.Context(), ledger.Agent{Name: "far/4711", Host: "far", PID: 4711}, 1); err != nil { // out at once
			t.Fatal(err)
		}
		if said := doctor(); !strings.Contains(said, "far/4711 has given no sign since ") || !strings.Contains(said, "and holds 2 items") ||
			!strings.Contains(said, "the last at 20") || !strings.Contains(said, "ledgerd finish --outcome released --where agent:far/4711 --force") {
			t.Errorf("two leases are forgotten:\n%s", said)
		}
	})
}

// A role that has the documented rights, and no others, can do everything but make and change tables.
func TestRuntimeRole(t *testing.T) {
	t.Parallel()
	super := pgtest.Database(t)
	role := fmt.Sprint("worker_", time.Now().UnixNano())
	as, err := url.Parse(super)
	if err != nil {
		t.Fatal(err)
	}
	as.User = url.UserPassword(role, "geheim")
	owner, m := newMachine(t, super), newMachine(t, as.String())
	execute := func(statements ...string) {
		t.Helper()
		conn, err := pgx.Connect(context.Background(), super)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), strings.Join(statements, ";")); err != nil {
			t.Fatal(err)
		}
	}
	execute("CREATE ROLE "+role+" LOGIN PASSWORD 'geheim'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	t.Cleanup(func() { execute("DROP OWNED BY "+role, "DROP ROLE "+role) })
	m.run(exitDenied, "db", "migrate")
	owner.run(exitOK, "db", "migrate")
	m.run(exitDenied, "ls")
	execute(postgres.Grants("public", role)...)
	for _, args := range [][]string{
		{"db", "migrate"}, {"db", "status"}, {"kind", "set", "article", "--input", "line"}, {"kind", "ls"},
		{"add", "article", "x", "y", "z"}, {"run", "effect", "a"}, {"work", "--drain", "--kind", "effect"},
		{"claim", "article", "--agent", "ann", "--limit", "2"}, {"finish", "1.1", "--agent", "ann"}, {"finish", "2.1", "--outcome", "released"},
		{"ls"}, {"show", "1"}, {"stats"}, {"cancel", "z"}, {"retry", "1", "--again"}, {"lock", "run", "nightly", "--", "true"}, {"lock", "ls"},
		{"db", "verify"},
	} {
		p := m.start(args...)
		if code := m.exit(p); code != exitOK || strings.Contains(p.stderr.String(), "geheim") {
			t.Errorf("ledgerd %s: exit %d\n%s", strings.Join(args, " "), code, p.stderr.String())
		}
	}
	m.run(exitDenied, "db", "copy", "--to", "sqlite:"+filepath.Join(t.TempDir(), "copy.db"))
	execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+role, "GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO "+role)
	m.run(exitOK, "db", "copy", "--to", "sqlite:"+filepath.Join(t.TempDir(), "copy.db"))
	execute("REVOKE UPDATE ON ledger_backlog FROM " + role)
	p := m.start("claim", "article", "--agent", "ann")
	if code := m.exit(p); code != exitDenied || !strings.Contains(p.stderr.String(), "permission denied for table ledger_backlog") ||
		!strings.Contains(p.stderr.String(), "needs SELECT, INSERT, UPDATE, DELETE on ledger_backlog") {
		t.Errorf("without UPDATE: exit %d\n%s", code, p.stderr.String())
	}
	if said := m.run(exitError, "doctor"); !strings.Contains(said, `GRANT UPDATE ON "public".ledger_backlog TO "`+role+`";`) {
		t.Errorf("the doctor does not say what is missing:\n%s", said)
	}
}
