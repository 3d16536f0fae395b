package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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

// A user with the privileges of a role can do what the role is for, without the right to create tables. Each of the
// privileges is needed: without it, an error names its table. What the role is not for is refused.
func TestGrants(t *testing.T) {
	type call = func(context.Context, *ledger.Ledger) error
	setsKind := func(ctx context.Context, l *ledger.Ledger) error { return l.SetKind(ctx, "me", limited("plain")) }
	claims := func(ctx context.Context, l *ledger.Ledger) error {
		_, err := l.Claim(ctx, ledger.Claim{Kind: "plain", Agent: "me", Limit: 1})
		return err
	}
	readsJournal := func(ctx context.Context, l *ledger.Ledger) error {
		_, err := l.Journal(ctx, ledger.JournalQuery{Limit: 1})
		return err
	}
	addsOne := func(ctx context.Context, l *ledger.Ledger) error {
		_, err := l.Add(ctx, ledger.NewItem{Kind: "plain", Key: newName()})
		return err
	}
	for _, tt := range []struct {
		role    schema.Role
		does    func(context.Context, *postgres.Store) error
		refused map[string]call // by table
	}{
		{schema.Operator, everything, nil},
		{schema.Worker, func(ctx context.Context, s *postgres.Store) error { return works(ctx, s, "plain", "limited") },
			map[string]call{"ledger_kinds": setsKind, "ledger_journal": readsJournal}},
		{schema.Adder, func(ctx context.Context, s *postgres.Store) error { return adds(ctx, s, "plain") },
			map[string]call{"ledger_kinds": setsKind, "ledger_journal": readsJournal, "ledger_leases": claims}},
		{schema.Reader, reads, map[string]call{"ledger_items": addsOne, "ledger_backlog": claims}},
	} {
		t.Run(string(tt.role), func(t *testing.T) {
			ctx := t.Context()
			role, super, as := newRole(t)
			o := postgres.Options{Schema: "work"}
			setUp(t, super, o)
			execute(t, super, strings.Join(postgres.Grants("work", role, tt.role), "\n"))
			admin, err := pgx.Connect(ctx, super)
			must.OK(t, err)
			defer admin.Close(ctx)
			pool, err := pgxpool.New(ctx, as)
			must.OK(t, err)
			defer pool.Close()
			does := func() error { // in a new process, as it were, but not in new sessions: those take the server long
				s, err := postgres.Open(ctx, pool, o)
				must.OK(t, err)
				defer s.Close()
				return tt.does(ctx, s)
			}
			if err := does(); err != nil {
				t.Fatalf("with all grants: %v", err)
			}
			for _, table := range schema.Tables {
				for _, privilege := range table.Privileges(tt.role) {
					on := fmt.Sprintf("%s ON work.%s", privilege, table.Name)
					must.Do(t)(admin.Exec(ctx, "REVOKE "+on+" FROM "+role))
					switch err := does(); {
					case err == nil:
						t.Errorf("without %s everything works: it is not to be granted", on)
					case !errors.Is(err, ledger.ErrDenied) || !strings.Contains(err.Error(), "table "+table.Name) ||
						!strings.Contains(ledger.Hint(err), privilege):
						t.Errorf("without %s: %v", on, err)
					}
					must.Do(t)(admin.Exec(ctx, "GRANT "+on+" TO "+role))
				}
			}
			if err := does(); err != nil {
				t.Errorf("afterwards: %v", err)
			}
			s, err := postgres.Connect(ctx, as, o)
			must.OK(t, err)
			defer s.Close()
			for table, call := range tt.refused {
				if err := call(ctx, ledger.New(s, ledger.Options{})); !errors.Is(err, ledger.ErrDenied) ||
					!strings.Contains(err.Error(), table) {
					t.Errorf("what needs more on %s: %v", table, err)
				}
			}
		})
	}
}

// setUp makes a ledger with a kind for each role, and with a dead item.
func setUp(t *testing.T, super string, o postgres.Options) {
	t.Helper()
	ctx := t.Context()
	s, err := postgres.Connect(ctx, super, o)
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	must.OK(t, l.SetKind(ctx, "ann", ledger.Kind{Name: "plain", Keep: time.Microsecond}))
	must.OK(t, l.SetKind(ctx, "ann", limited("limited")))
	must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "plain", Key: "dead"}, ledger.NewItem{Kind: "limited", Key: "ready"}))
	leases, err := l.Claim(ctx, ledger.Claim{Kind: "plain", Agent: "a", Limit: 1})
	must.OK(t, err)
	must.OK(t, l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Permanent(errors.New("no"))})[0])
}

func limited(name string) ledger.Kind {
	return ledger.Kind{Name: name, Limits: scheduler.Limits{MaxRunning: 1, Rate: scheduler.Rate{Count: 100_000,
		Per: time.Second}}}
}

func newName() string { return fmt.Sprint("k", time.Now().UnixNano()) }

// upTo returns a context that ends with the first error that do gets, and where that error is.
func upTo(ctx context.Context) (_ context.Context, do func(error), failed *error) {
	ctx, stop := context.WithCancel(ctx)
	failed = new(error)
	return ctx, func(err error) {
		if *failed == nil && err != nil {
			*failed = err
			stop()
		}
	}, failed
}

// everything does all that a ledger can do, with items of its own, up to the first failure.
func everything(ctx context.Context, s *postgres.Store) error {
	l, kind := ledger.New(s, ledger.Options{}), newName()
	ctx, do, failed := upTo(ctx)
	try := func(_ any, err error) { do(err) }
	do(l.SetKind(ctx, "ann", ledger.Kind{Name: kind, Keep: time.Microsecond}))
	try(l.Kinds(ctx))
	try(l.Journal(ctx, ledger.JournalQuery{Limit: 1}))
	do(l.SetKind(ctx, "ann", limited(kind+"-limited")))
	do(works(ctx, s, kind, kind+"-limited"))
	mine := ledger.Filter{Kinds: []string{kind}}
	try(l.ForceRelease(ctx, "ann", mine))
	try(l.Retry(ctx, "ann", mine))
	try(l.Cancel(ctx, "ann", mine))
	try(l.Reopen(ctx, "ann", mine))
	try(l.Count(ctx, mine))
	try(l.Counts(ctx, time.Now()))
	try(l.Standing(ctx, kind))
	try(l.Stats(ctx))
	try(l.Recent(ctx, mine, 10))
	for _, err := range l.Verify(ctx) {
		do(err)
	}
	_, _, err := l.Forget(ctx, "ann", mine)
	do(err)
	_, err = locks.New(l).ForceRelease(ctx, "ann", kind)
	do(err)
	return *failed
}

// works does what workers do, with items of its own.
func works(ctx context.Context, s *postgres.Store, kind, withLimits string) error {
	l, key := ledger.New(s, ledger.Options{}), newName()
	ctx, do, failed := upTo(ctx)
	try := func(_ any, err error) { do(err) }
	try(l.Kinds(ctx))
	do(adds(ctx, s, kind))
	try(l.Add(ctx, ledger.NewItem{Kind: kind, Key: key}, ledger.NewItem{Kind: kind, Key: key + "b"},
		ledger.NewItem{Kind: kind, Key: key + "later", Due: time.Now().Add(10 * time.Millisecond)}))
	do(l.Beat(ctx, ledger.Agent{Name: key, Host: "h", StartedAt: time.Now()}, time.Minute))
	try(l.Agents(ctx))
	leases, err := l.Claim(ctx, ledger.Claim{Kind: kind, Agent: key, Limit: 3})
	if do(err); len(leases) == 3 {
		_, errs := l.Extend(ctx, time.Minute, leases...)
		do(errors.Join(errs...))
		do(errors.Join(l.Start(ctx, time.Minute, leases...)...))
		do(errors.Join(l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done([]byte("1"))},
			ledger.Ending{Lease: leases[1], Result: ledger.Permanent(errors.New("no"))},
			ledger.Ending{Lease: leases[2], Result: ledger.Release()})...))
	}
	leases, err = l.Claim(ctx, ledger.Claim{Kind: kind, Agent: key, Limit: 1})
	if do(err); len(leases) == 1 { // its second attempt
		do(l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Done([]byte("1"))})[0])
	}
	try(s.Prune(ctx, kind, time.Now(), 1000))
	try(l.Claim(ctx, ledger.Claim{Kind: kind, Agent: key, Limit: 3, Resume: true}))
	try(l.Promote(ctx, 10))
	try(l.Expire(ctx, 10))
	try(l.Counts(ctx, time.Now()))
	try(l.Standing(ctx, kind))
	do(l.AddTallies(ctx, stats.Minute{At: time.Now().Truncate(time.Minute).Add(-2 * stats.MinutesKept), Kind: kind,
		Agent: key, Done: 1}))
	do(l.ForgetTallies(ctx))
	try(l.Add(ctx, ledger.NewItem{Kind: withLimits, Key: key}, ledger.NewItem{Kind: withLimits, Key: key + "b"}))
	for range 2 {
		leases, err := l.Claim(ctx, ledger.Claim{Kind: withLimits, Agent: "a", Limit: 10})
		do(err)
		for _, ls := range leases {
			do(l.Finish(ctx, ledger.Ending{Lease: ls, Result: ledger.Done(nil)})[0])
		}
	}
	do(l.Beat(ctx, ledger.Agent{Name: key}, 0))
	m := locks.New(l)
	if _, lock, err := m.Acquire(ctx, key, locks.Options{}); err != nil {
		do(err)
	} else {
		do(m.Release(ctx, lock))
	}
	return *failed
}

// adds adds new items, a new version of one, and one again.
func adds(ctx context.Context, s *postgres.Store, kind string) error {
	l, key := ledger.New(s, ledger.Options{}), newName()
	for _, fingerprint := range []string{"old", "new", "new"} {
		if _, err := l.Add(ctx, ledger.NewItem{Kind: kind, Key: key, Payload: []byte("{}"),
			Fingerprint: fingerprint}); err != nil {
			return err
		}
	}
	_, err := l.Find(ctx, kind, "", key)
	return err
}

// reads asks for all that a ledger answers.
func reads(ctx context.Context, s *postgres.Store) error {
	l := ledger.New(s, ledger.Options{})
	ctx, do, failed := upTo(ctx)
	try := func(_ any, err error) { do(err) }
	for kind, key := range map[string]string{"plain": "dead", "limited": "ready"} {
		it, err := l.Find(ctx, kind, "", key)
		do(err)
		try(l.Why(ctx, it.ID))
	}
	try(l.Kinds(ctx))
	try(l.Agents(ctx))
	try(l.Journal(ctx, ledger.JournalQuery{Limit: 1}))
	try(l.Counts(ctx, time.Now()))
	try(l.Stats(ctx))
	try(l.Recent(ctx, ledger.Filter{}, 10))
	try(locks.New(l).Held(ctx))
	for _, err := range l.Verify(ctx) {
		do(err)
	}
	return *failed
}
