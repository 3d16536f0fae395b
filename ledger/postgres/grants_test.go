package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/schema"
)

// newRole makes a role in a database of its own where roles have no rights beyond connecting, and
// returns the role and the database as the superuser and as the role.
func newRole(t *testing.T) (role, super, as string) {
	t.Helper()
	super = pgtest.Database(t)
	role = fmt.Sprint("worker_", time.Now().UnixNano())
	database := strings.TrimPrefix(with(t, super, func(u *url.URL) {
		u.RawQuery, u.User, u.Host, u.Scheme = "", nil, "", ""
	}), "/")
	execute(t, super, "CREATE ROLE "+role+" LOGIN PASSWORD '"+secret+"'; REVOKE CREATE ON SCHEMA public FROM PUBLIC; "+
		"REVOKE CREATE, TEMP ON DATABASE "+database+" FROM PUBLIC")
	t.Cleanup(func() {
		conn, err := pgx.Connect(context.Background(), super)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close(context.Background())
		if _, err := conn.Exec(context.Background(), "DROP OWNED BY "+role+"; DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	return role, super, with(t, super, func(u *url.URL) { u.User = url.UserPassword(role, secret) })
}

// A role with the documented privileges can work, without the right to create tables. Each of the privileges is needed:
// without it, an error names its table.
func TestGrants(t *testing.T) {
	ctx := t.Context()
	role, super, as := newRole(t)
	o := postgres.Options{Schema: "work"}
	if _, err := postgres.Connect(ctx, as, o); !errors.Is(err, ledger.ErrDenied) || strings.Contains(err.Error(), secret) {
		t.Fatalf("making a ledger without the right to: %v", err)
	}
	if _, _, err := postgres.Migrate(ctx, super, o); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Connect(ctx, as, o); !errors.Is(err, ledger.ErrDenied) ||
		!strings.Contains(err.Error(), "permission denied for schema work") {
		t.Fatalf("without grants: %v", err)
	}
	grants := postgres.Grants("work", role)
	execute(t, super, strings.Join(grants, "\n"))
	s, err := postgres.Connect(ctx, as, o)
	must.OK(t, err)
	defer s.Close()
	if err := everything(ctx, s); err != nil {
		t.Fatalf("with all grants: %v", err)
	}
	for _, table := range schema.Tables {
		for _, privilege := range table.Grants {
			on := fmt.Sprintf("%s ON work.%s", privilege, table.Name)
			execute(t, super, "REVOKE "+on+" FROM "+role)
			switch err := everything(ctx, s); {
			case err == nil:
				t.Errorf("without %s everything works: it is not to be granted", on)
			case !errors.Is(err, ledger.ErrDenied) || !strings.Contains(err.Error(), "table "+table.Name) ||
				!strings.Contains(ledger.Hint(err), privilege):
				t.Errorf("without %s: %v", on, err)
			}
			execute(t, super, "GRANT "+on+" TO "+role)
		}
	}
	for _, table := range []string{schema.Meta, schema.Table} {
		execute(t, super, "REVOKE SELECT ON work."+table+" FROM "+role)
		if s, err := postgres.Connect(ctx, as, o); !errors.Is(err, ledger.ErrDenied) ||
			!strings.Contains(err.Error(), table) {
			t.Errorf("without SELECT on %s: %v", table, err)
			if err == nil {
				s.Close()
			}
		}
		execute(t, super, "GRANT SELECT ON work."+table+" TO "+role)
	}
	if err := everything(ctx, s); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// everything does all that a ledger can do, with items of its own, up to the first failure.
func everything(ctx context.Context, s *postgres.Store) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l := ledger.New(s, ledger.Options{})
	kind := fmt.Sprint("k", time.Now().UnixNano())
	var failed error
	do := func(err error) {
		if failed == nil && err != nil {
			failed = err
			stop() // what follows ends at once
		}
	}
	of := func(_ any, err error) { do(err) }
	do(l.SetKind(ctx, "ann", ledger.Kind{Name: kind, Keep: time.Microsecond}))
	of(l.Kinds(ctx))
	of(l.Journal(ctx, ledger.JournalQuery{Limit: 1}))
	of(l.Add(ctx, ledger.NewItem{Kind: kind, Key: "a", Payload: []byte("{}"), Fingerprint: "old"},
		ledger.NewItem{Kind: kind, Key: "b"}, ledger.NewItem{Kind: kind, Key: "c"},
		ledger.NewItem{Kind: kind, Key: "later", Due: time.Now().Add(10 * time.Millisecond)}))
	of(l.Add(ctx, ledger.NewItem{Kind: kind, Key: "a", Fingerprint: "new"}))
	do(l.Beat(ctx, ledger.Agent{Name: kind, Host: "h", StartedAt: time.Now()}, time.Minute))
	of(l.Agents(ctx))
	leases, err := l.Claim(ctx, ledger.Claim{Kind: kind, Agent: kind, Limit: 3})
	if do(err); len(leases) == 3 {
		do(errors.Join(l.Renew(ctx, time.Minute, leases...)...))
		do(errors.Join(l.Start(ctx, time.Minute, leases...)...))
		// Any of the items may come first, so each gets an output: pruning needs something to remove.
		do(errors.Join(l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done([]byte("1"))},
			ledger.Ending{Lease: leases[1], Result: ledger.Permanent(errors.New("no"))})...))
	}
	of(s.Prune(ctx, kind, time.Now().Add(time.Hour), 10))
	of(l.Claim(ctx, ledger.Claim{Kind: kind, Agent: kind, Limit: 3, Resume: true}))
	of(l.Promote(ctx, 10))
	of(l.Expire(ctx, 10))
	mine := ledger.Filter{Kinds: []string{kind}}
	of(l.ForceRelease(ctx, "ann", mine))
	of(l.Retry(ctx, "ann", mine))
	of(l.Cancel(ctx, "ann", mine))
	of(l.Reopen(ctx, "ann", mine))
	of(l.Count(ctx, mine))
	of(l.Counts(ctx, time.Now()))
	of(l.Standing(ctx, kind))
	do(l.AddTallies(ctx, stats.Minute{At: time.Now().Truncate(time.Minute).Add(-2 * stats.MinutesKept), Kind: kind,
		Agent: kind, Done: 1}))
	do(l.ForgetTallies(ctx))
	of(l.Stats(ctx))
	of(l.Recent(ctx, mine, 10))
	for _, err := range l.Verify(ctx) {
		do(err)
	}
	of(l.Cancel(ctx, "ann", mine))
	_, _, err = l.Forget(ctx, "ann", mine)
	do(err)
	do(l.Beat(ctx, ledger.Agent{Name: kind}, 0))
	do(withLimits(ctx, l, kind+"-limited"))
	m := locks.New(l)
	do(m.Do(ctx, kind, locks.Options{}, func(context.Context, *locks.Lock) error { return nil }))
	_, err = m.ForceRelease(ctx, "ann", kind)
	do(err)
	return failed
}

// withLimits works items under limits.
func withLimits(ctx context.Context, l *ledger.Ledger, kind string) error {
	if err := l.SetKind(ctx, "ann", ledger.Kind{Name: kind, Limits: scheduler.Limits{MaxRunning: 1,
		Rate: scheduler.Rate{Count: 100_000, Per: time.Second}}}); err != nil {
		return err
	}
	if _, err := l.Add(ctx, ledger.NewItem{Kind: kind, Key: "a"}, ledger.NewItem{Kind: kind, Key: "b"}); err != nil {
		return err
	}
	for range 2 {
		leases, err := l.Claim(ctx, ledger.Claim{Kind: kind, Agent: "a", Limit: 10})
		if err != nil {
			return err
		}
		for _, ls := range leases {
			if err := l.Finish(ctx, ledger.Ending{Lease: ls, Result: ledger.Done(nil)})[0]; err != nil {
				return err
			}
		}
	}
	return nil
}

// The documentation and the program name the same grants.
func TestGrantsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/care.md")
	must.OK(t, err)
	want := strings.ReplaceAll(strings.Join(postgres.Grants("public", "worker"), "\n"), `"`, "")
	if !strings.Contains(string(text), want) {
		t.Errorf("docs/care.md does not say:\n%s", want)
	}
}
