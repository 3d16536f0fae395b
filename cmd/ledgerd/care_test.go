package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/cli/setup"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/schema"
)

// other returns the address of an empty place on the other database.
func (m *machine) other() string {
	if strings.HasPrefix(m.db, "sqlite:") {
		return pgtest.SchemaURL(m.t)
	}
	return "sqlite:" + filepath.Join(m.t.TempDir(), "other.db")
}

// paused returns the names of the paused kinds of a ledger.
func (m *machine) paused(db string) (names []string) {
	m.t.Helper()
	var kinds []struct {
		Kind   string
		Paused bool
	}
	must.OK(m.t, json.Unmarshal([]byte(m.run(failure.ExitOK, "kind", "ls", "-o", "json", "--db", db)), &kinds))
	for _, k := range kinds {
		if k.Paused {
			names = append(names, k.Kind)
		}
	}
	return names
}

// A ledger that is not worked is moved to the other database, and all commands have the same results there.
func TestCopyToTheOtherDatabase(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		till, to := filepath.Join(t.TempDir(), "go"), m.other()
		m.run(failure.ExitUnfinished, "run", "effect", "bad", "--set", "how=permanent")
		m.run(failure.ExitOK, "kind", "set", "people")
		m.run(failure.ExitOK, "kind", "set", "halted")
		m.run(failure.ExitOK, "kind", "pause", "halted")
		busy := m.start("run", "effect", "long", "--set", "till="+till)
		m.until("it is begun", func() bool {
			return strings.Contains(m.run(failure.ExitOK, "ls", "--columns", "state"), "leased")
		})
		early := m.start("db", "copy", "--to", to)
		m.ends(early, failure.ExitTaken, "is not quiet: agents at work: ", "1 leased, by ")
		m.run(failure.ExitNoLedger, "ls", "--db", to)
		m.ends(m.start("db", "copy", "--to", to, "--wait", "1s"), failure.ExitTaken, "paused for the copy: effect, people; ")
		if got := m.paused(m.db); !slices.Equal(got, []string{"halted"}) {
			t.Errorf("paused after a copy that did not come about: %s", got)
		}
		stopped := m.start("db", "copy", "--to", to, "--wait", "5m")
		m.until("it waits", func() bool { return slices.Equal(m.paused(m.db), []string{"effect", "halted", "people"}) })
		must.OK(t, stopped.Process.Signal(syscall.SIGTERM))
		if code, got := m.exit(stopped), m.paused(m.db); code != 143 || !slices.Equal(got, []string{"halted"}) {
			t.Errorf("after a copy that was stopped: exit %d, paused: %s", code, got)
		}
		waiting := m.start("db", "copy", "--to", to, "--wait", "5m", "-o", "json")
		m.until("it waits", func() bool { return len(m.paused(m.db)) == 3 })
		must.OK(t, os.WriteFile(till, nil, 0o600))
		m.ends(busy, failure.ExitOK)
		m.ends(waiting, failure.ExitOK)
		var res setup.Copied
		if err := json.Unmarshal([]byte(waiting.stdout.String()), &res); err != nil || res.Rows < 5 || len(res.Tables) == 0 {
			t.Errorf("%v\n%s", err, waiting.stdout.String())
		}
		if here, there := m.paused(m.db), m.paused(to); len(here) != 3 || !slices.Equal(there, []string{"halted"}) {
			t.Errorf("paused in the source: %s, in the copy: %s", here, there)
		}
		m.run(failure.ExitOK, "kind", "resume", "effect", "people")
		for _, args := range [][]string{{"ls", "-o", "csv"}, {"show", "bad", "-o", "json"}, {"kind", "ls", "-o", "json"}} {
			here, there := m.run(failure.ExitOK, args...), m.run(failure.ExitOK, append(args, "--db", to)...)
			address := regexp.MustCompile(` --db [^ ]+`) // in hints
			if address.ReplaceAllString(here, "") != address.ReplaceAllString(there, "") {
				t.Errorf("%s differs:\n%s\n%s", args, here, there)
			}
		}
		m.run(failure.ExitOK, "db", "verify", "--db", to)
		m.run(failure.ExitUsage, "db", "copy", "--to", to) // the target is not empty
		m.run(failure.ExitOK, "retry", "bad", "--db", to)
		m.run(failure.ExitUnfinished, "work", "--drain", "--db", to)
		m.run(failure.ExitOK, "run", "effect", "new", "--db", to)
	})
}

// A program that is gone without a message is named, with the leases that it holds and the command that takes them
// back.
func TestDoctorFindsForgottenLeases(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "add", "effect", "a", "b", "c")
		l := m.ledger()
		must.Do(t)(l.Claim(t.Context(), ledger.Claim{Kind: "effect", Agent: "far/4711", Limit: 2}))
		doctor := func() string {
			p := m.start("doctor")
			m.exit(p)
			return p.stdout.String()
		}
		if said := doctor(); !strings.Contains(said, "agents         0 programs at work, no lease is forgotten") {
			t.Errorf("a lease of a person is not forgotten:\n%s", said)
		}
		must.OK(t, l.Beat(t.Context(), ledger.Agent{Name: "far/4711", Host: "far", PID: 4711}, 1)) // it runs out at once
		if said := doctor(); !strings.Contains(said, "far/4711 has given no sign since ") ||
			!strings.Contains(said, "and holds 2 items") ||
			!strings.Contains(said, "the last at 20") ||
			!strings.Contains(said, "ledgerd finish -y --outcome released --where agent:far/4711 --force") {
			t.Errorf("two leases are forgotten:\n%s", said)
		}
	})
}

// A role that has only the documented rights can do everything except make and change tables.
func TestRuntimeRole(t *testing.T) {
	t.Parallel()
	super := pgtest.Database(t)
	role := fmt.Sprint("worker_", time.Now().UnixNano())
	as, err := url.Parse(super)
	must.OK(t, err)
	as.User = url.UserPassword(role, "hunter2")
	owner, m := newMachine(t, super), newMachine(t, as.String())
	execute := func(statements ...string) {
		t.Helper()
		conn, err := pgx.Connect(context.Background(), super)
		must.OK(t, err)
		defer conn.Close(context.Background())
		must.Do(t)(conn.Exec(context.Background(), strings.Join(statements, ";")))
	}
	execute("CREATE ROLE "+role+" LOGIN PASSWORD 'hunter2'", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	t.Cleanup(func() {
		execute("DROP OWNED BY "+role, "DROP ROLE "+role)
		for _, r := range schema.Roles {
			execute(fmt.Sprintf("DROP OWNED BY %s_%s", role, r), fmt.Sprintf("DROP ROLE %s_%s", role, r))
		}
	})
	m.run(failure.ExitDenied, "db", "migrate")
	owner.run(failure.ExitOK, "db", "migrate")
	m.run(failure.ExitDenied, "ls")
	execute(owner.run(failure.ExitOK, "db", "roles", "--prefix", role+"_"))
	execute("GRANT " + role + "_operator TO " + role)
	for _, args := range [][]string{
		{"db", "migrate"}, {"db", "status"}, {"kind", "set", "article", "--input", "line"}, {"kind", "ls"},
		{"add", "article", "x", "y", "z"}, {"run", "effect", "a"}, {"work", "--drain", "--kind", "effect"},
		{"claim", "article", "--agent", "ann", "--limit", "2"}, {"finish", "1.1", "--agent", "ann"}, {"finish", "2.1",
			"--outcome", "released"},
		{"ls"}, {"show", "1"}, {"stats"}, {"cancel", "z"}, {"retry", "1", "--again"}, {"lock", "run", "nightly", "--",
			"true"}, {"lock", "ls"},
		{"db", "verify"},
	} {
		var stderr string
		if m.simple(args) {
			_, stderr = m.printed(failure.ExitOK, args...)
		} else {
			p := m.start(args...)
			m.ends(p, failure.ExitOK)
			stderr = p.stderr.String()
		}
		if strings.Contains(stderr, "hunter2") {
			t.Errorf("ledgerd %s prints the password\n%s", strings.Join(args, " "), stderr)
		}
	}
	m.run(failure.ExitDenied, "db", "copy", "--to", "sqlite:"+filepath.Join(t.TempDir(), "copy.db"))
	execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO "+role, "GRANT SELECT ON ALL SEQUENCES IN SCHEMA public TO "+
		role)
	m.run(failure.ExitOK, "db", "copy", "--to", "sqlite:"+filepath.Join(t.TempDir(), "copy.db"))
	execute("REVOKE SELECT ON ALL TABLES IN SCHEMA public FROM "+role, "REVOKE SELECT ON ALL SEQUENCES IN SCHEMA public FROM "+
		role)
	m.run(failure.ExitOK, "kind", "pause", "article")
	for may, does := range map[schema.Role][][]string{ // TestGrants has each privilege
		schema.Worker: {{"add", "effect", "w"}, {"work", "--drain", "--kind", "effect"}},
		schema.Adder:  {{"add", "article", "v"}},
		schema.Reader: {{"ls"}},
	} {
		execute(fmt.Sprintf("REVOKE %s_operator, %[1]s_worker, %[1]s_adder, %[1]s_reader FROM %[1]s; GRANT %[1]s_%[2]s TO %[1]s",
			role, may))
		for _, args := range does {
			m.run(failure.ExitOK, args...)
		}
	}
	execute(fmt.Sprintf("GRANT %s_operator TO %[1]s; REVOKE UPDATE ON ledger_backlog FROM %[1]s_operator, %[1]s_worker, %[1]s_adder",
		role))
	p := m.start("claim", "article", "--agent", "ann")
	m.ends(p, failure.ExitDenied, "permission denied for table ledger_backlog",
		"on ledger_backlog: reader SELECT; adder SELECT, INSERT, UPDATE; worker SELECT, INSERT, UPDATE, DELETE")
	if said := m.run(failure.ExitError, "doctor"); !strings.Contains(said, `GRANT UPDATE ON "public".ledger_backlog TO "`+
		role+`";`) {
		t.Errorf("the doctor does not say what is missing:\n%s", said)
	}
}

// A ledger that a daemon has open cannot be restored. After the daemon has ended it can, and the next daemon works it.
// db restored refuses a ledger that is worked. With --force the daemon notices it and ends.
func TestRestoreUnderDaemon(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		s, backup := m.site("listen = \"127.0.0.1:0\"\n[kinds.effect]\n"), filepath.Join(t.TempDir(), "kept.db")
		m.run(failure.ExitOK, "add", "effect", "a", "b")
		m.run(failure.ExitOK, "db", "backup", backup)
		done := func() bool {
			return strings.Count(m.run(failure.ExitOK, "ls", "--all", "--columns", "state"), "done") == 2
		}
		daemon := s.daemon()
		m.until("the items are done", done)
		m.ends(m.start("db", "restore", "-y", backup), failure.ExitTemporary, "is open in another program: agents at work: ",
			"stop every program")
		m.stop(daemon, syscall.SIGTERM, failure.ExitOK)
		m.run(failure.ExitOK, "db", "restore", "-y", backup)
		if done() {
			t.Error("the items of the backup are done")
		}
		daemon = s.daemon()
		m.until("the items are done again", done)
		m.ends(m.start("db", "restored", "-y"), failure.ExitTaken, "is worked by ", "stop those programs")
		m.run(failure.ExitOK, "db", "restored", "-y", "--force")
		m.ends(daemon, failure.ExitNoLedger, "was restored while this program had it open", "start this program again")
	})
}
