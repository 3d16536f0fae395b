package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// named opens a store whose sessions have an application_name.
func named(t *testing.T, name, schema string) *postgres.Store {
	t.Helper()
	s, err := postgres.Connect(t.Context(), with(t, pgtest.URL(t), func(u *url.URL) {
		q := u.Query()
		q.Set("application_name", name)
		u.RawQuery = q.Encode()
	}), postgres.Options{Schema: schema})
	must.OK(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// terminate ends one session with an application_name whose last statement begins with a text, as an operator would.
func terminate(ctx context.Context, pool *pgxpool.Pool, name, statement string) (n int, err error) {
	err = pool.QueryRow(ctx, `SELECT count(pg_terminate_backend(pid)) FROM (
 SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND starts_with(query, $2) ORDER BY random() LIMIT 1) s`, name, statement).Scan(&n)
	return n, err
}

// One lease of a batch is being finished in a long transaction: the others are renewed.
func TestRenewPassesOverLockedRows(t *testing.T) {
	r := newRig(t)
	r.add(t, "1", "2", "3")
	ls := r.claim(t, 3)
	tx, err := r.pool.Begin(t.Context())
	must.OK(t, err)
	defer tx.Rollback(t.Context())
	must.OK(t, r.FinishTx(t.Context(), postgres.Wrap(tx), ledger.Ending{Lease: ls[1],
		Result: ledger.Done(nil)}))
	refs := make([]ledger.LeaseRef, len(ls))
	for i, lease := range ls {
		refs[i] = ledger.LeaseRef{ItemID: lease.ID, LockID: lease.LockID}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	// A renewal of all items needs no row of the backlog. Of two, the one that is not locked is renewed; by this the
	// lease is split.
	for _, c := range []struct{ items, renewed int }{{3, 3}, {2, 1}, {3, 2}} {
		got, err := r.store.Renew(ctx, time.Hour, refs[:c.items])
		if err != nil || len(got) != c.renewed {
			t.Fatalf("renewed %d of %d, want %d, %v", len(got), c.items, c.renewed, err)
		}
	}
	ends, errs := r.Extend(ctx, 2*time.Hour, ls...) // nor is the locked one reported as lost; its end has not moved
	for i, err := range errs {
		if moved := ends[i].After(ls[i].ExpiresAt.Add(90 * time.Minute)); err != nil || moved != (i != 1) {
			t.Errorf("lease %d: until %s, %v", i, ends[i], err)
		}
	}
	must.OK(t, tx.Commit(t.Context()))
	if ends, errs = r.Extend(ctx, time.Hour, ls...); !errors.Is(errs[1], ledger.ErrLeaseLost) || !ends[1].IsZero() {
		t.Errorf("finished, yet renewed until %s: %v", ends[1], errs[1])
	}
}

// Groups that were handed out are not handed out again, as they would count twice.
func TestTallyIsNotRepeated(t *testing.T) {
	r := newRig(t)
	r.add(t, "x")
	conflict, groups := &pgconn.PgError{Code: "40001"}, 0
	err := r.store.CountRounds(t.Context(), ledger.Filter{}, stats.ByKind, func(ledger.RoundCount) error {
		groups++
		return conflict
	})
	if groups != 1 || !errors.Is(err, conflict) {
		t.Errorf("%d groups, %v", groups, err)
	}
}

// Connections that are lost before the first group cost a further try each.
func TestTallyIsRepeated(t *testing.T) {
	r := newRig(t)
	r.add(t, "x")
	name := "tally-" + r.schema
	s := named(t, name, r.schema)
	for range 2 {
		groups := 0
		must.OK(t, s.CountRounds(t.Context(), ledger.Filter{}, stats.ByKind,
			func(ledger.RoundCount) error { groups++; return nil }))
		if groups != 1 {
			t.Errorf("%d groups", groups)
		}
		for n := 1; n > 0; { // the pool does not know
			var err error
			n, err = terminate(t.Context(), r.pool, name, "")
			must.OK(t, err)
		}
	}
}

// watch subscribes to a store until the test ends.
func watch(t *testing.T, s *postgres.Store) <-chan string {
	t.Helper()
	woken := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { s.Watch(ctx, func(kind string) { woken <- kind }) })
	t.Cleanup(func() {
		cancel()
		wg.Wait()
	})
	return woken
}

// await returns when a kind was announced, with how many others came before.
func await(t *testing.T, woken <-chan string, want string) (others int) {
	t.Helper()
	timeout := time.After(2 * time.Minute)
	for {
		select {
		case kind := <-woken:
			if kind == "of another ledger" || kind == "of a closed one" {
				t.Errorf("heard %q", kind)
			}
			if kind == want {
				return others
			}
			others++
		case <-timeout:
			t.Fatalf("nothing of kind %q was announced", want)
		}
	}
}

func TestWatch(t *testing.T) {
	schema, elsewhere := pgtest.Schema(t), pgtest.Schema(t)
	watcher := named(t, schema, schema)
	other := named(t, "other "+schema, schema)
	stranger := named(t, "stranger "+schema, elsewhere)
	pool := pgtest.Pool(t)
	woken := watch(t, watcher)
	await(t, woken, "") // it listens
	stranger.Announce("of another ledger")
	other.Announce("k1")
	await(t, woken, "k1")
	must.Do(t)(ledger.New(other, ledger.Options{}).Add(t.Context(), ledger.NewItem{Kind: "k2", Key: "x"}))
	await(t, woken, "k2")
	// The listener is ended; it comes back by itself, and reports that it may have missed notifications.
	if n, err := terminate(t.Context(), pool, schema, "LISTEN"); n != 1 || err != nil {
		t.Fatalf("ended %d listeners, %v", n, err)
	}
	await(t, woken, "")
	other.Announce("k3")
	await(t, woken, "k3")
	// Of a kind, one announcement goes out in 5 ms.
	start := time.Now()
	for range 1000 {
		other.Announce("k4")
	}
	await(t, woken, "k4")
	stranger.Close()
	stranger.Announce("of a closed one")
	other.Announce("last")
	if n, most := 1+await(t, woken, "last"), 2+time.Since(start)/(5*time.Millisecond); n > int(most) {
		t.Errorf("%d announcements of 1000, want at most %d", n, most)
	}
}

// A store that is closed ends its watchers, too.
func TestCloseEndsWatchAndWaits(t *testing.T) {
	r := newRig(t)
	r.add(t, "x")
	woken := watch(t, r.store)
	await(t, woken, "")
	inside, release := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	var order []string
	var mu sync.Mutex
	note := func(s string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, s)
	}
	wg.Go(func() {
		err := r.store.Update(t.Context(), nil, func(tx ledger.Tx) error {
			close(inside)
			<-release
			_, err := tx.Load([]int64{1})
			note("update")
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-inside
	wg.Go(func() {
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
		note("close")
	})
	for { // until Close has been noticed
		if _, err := r.store.Count(t.Context(), ledger.Filter{}); err != nil {
			break
		}
	}
	close(release)
	wg.Wait()
	if strings.Join(order, " ") != "update close" {
		t.Errorf("in the order %v", order)
	}
	if err := r.pool.Ping(t.Context()); err != nil {
		t.Errorf("the caller's pool was closed: %v", err)
	}
}

// Two processes drain one backlog. A process finds at once the items that it makes ready before its own positions. It
// finds those of the other process, too.
func TestPositionsFindLateRows(t *testing.T) {
	schema := pgtest.Schema(t)
	a := ledger.New(named(t, "a "+schema, schema), ledger.Options{Jitter: func() float64 { return 0 }})
	b := ledger.New(named(t, "b "+schema, schema), ledger.Options{Jitter: func() float64 { return 0 }})
	ctx := t.Context()
	add := func(l *ledger.Ledger, items ...ledger.NewItem) {
		t.Helper()
		must.Do(t)(l.Add(ctx, items...))
	}
	claim := func(l *ledger.Ledger, n int) []*ledger.Lease {
		t.Helper()
		ls, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "x", Limit: n})
		must.OK(t, err)
		return ls
	}
	// find claims until it gets the key, or at the first claim.
	find := func(l *ledger.Ledger, key string, atOnce bool) *ledger.Lease {
		t.Helper()
		start := time.Now()
		for {
			for _, lease := range claim(l, 1) {
				if lease.Key == key {
					return lease
				}
				if atOnce {
					t.Fatalf("found %q first, want %q", lease.Key, key)
				}
			}
			if atOnce || time.Since(start) > time.Minute {
				t.Fatalf("%q was not found in %v", key, time.Since(start))
			}
		}
	}
	now := time.Now()
	for i := range 300 {
		add(a, ledger.NewItem{Kind: "k", Key: fmt.Sprint("plain ", i), Due: now.Add(time.Duration(i-1000) * time.Second)})
	}
	held := claim(a, 200) // its position is now at the 200th
	claim(b, 1)
	// Items of its own.
	add(a, ledger.NewItem{Kind: "k", Key: "own urgent", Priority: -1, Due: now.Add(-time.Hour)})
	find(a, "own urgent", true)
	add(a, ledger.NewItem{Kind: "k", Key: "own old", Due: now.Add(-time.Hour)})
	find(a, "own old", true)
	must.OK(t, a.Finish(ctx, ledger.Ending{Lease: held[0], Result: ledger.Release()})[0])
	find(a, held[0].Key, true)
	// Items of the other process.
	add(b, ledger.NewItem{Kind: "k", Key: "late urgent", Priority: -2, Due: now.Add(-time.Hour)})
	find(a, "late urgent", false)
	add(b, ledger.NewItem{Kind: "k", Key: "late old", Due: now.Add(-time.Hour)})
	find(a, "late old", false)
	if n, err := b.ForceRelease(ctx, "test", ledger.IDs(held[1].ID)); n != 1 || err != nil {
		t.Fatalf("released %d, %v", n, err)
	}
	find(a, held[1].Key, false)
	// A paused kind that the other resumes.
	must.OK(t, b.SetKind(ctx, "test", ledger.Kind{Name: "k", Paused: true}))
	if n := len(claim(a, 10)); n != 0 {
		t.Fatalf("claimed %d of a paused kind", n)
	}
	add(b, ledger.NewItem{Kind: "k", Key: "after the pause", Priority: -2, Due: now.Add(-2 * time.Hour)})
	must.OK(t, b.SetKind(ctx, "test", ledger.Kind{Name: "k"}))
	find(a, "after the pause", false)
}

// Idle polls must not keep the disk busy: they take no transaction id.
func TestIdlePollsCommitNothing(t *testing.T) {
	server := pgtest.Start(t, pgtest.Options{Settings: map[string]string{"autovacuum": "off"}})
	open := func() *ledger.Ledger {
		s, err := postgres.Connect(t.Context(), server.URL(), postgres.Options{})
		must.OK(t, err)
		return ledger.New(s, ledger.Options{})
	}
	l := open()
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "later", Due: time.Now().Add(time.Hour)},
		ledger.NewItem{Kind: "k", Key: "held"}))
	if ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 10, TTL: time.Hour}); err != nil ||
		len(ls) != 1 {
		t.Fatalf("%d leases, %v", len(ls), err)
	}
	l.Close() // with what it announced
	l = open()
	defer l.Close()
	next := func() (xid string) {
		conn, err := pgx.Connect(t.Context(), server.URL())
		must.OK(t, err)
		defer conn.Close(t.Context())
		must.OK(t, conn.QueryRow(t.Context(), "SELECT pg_snapshot_xmax(pg_current_snapshot())::text").Scan(&xid))
		return xid
	}
	before := next()
	for range 20 {
		if ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "b", Limit: 100}); err != nil || len(ls) != 0 {
			t.Fatalf("%d leases, %v", len(ls), err)
		}
		if n, err := l.Expire(t.Context(), 100); err != nil || n != 0 {
			t.Fatalf("%d expired, %v", n, err)
		}
		if due, err := l.Promote(t.Context(), 100); err != nil || due.IsZero() {
			t.Fatalf("next due %v, %v", due, err)
		}
	}
	if after := next(); after != before {
		t.Errorf("the next transaction id was %s and is %s", before, after)
	}
}

// A claim is not repeated because what it reads after its commit is locked: that would lease
// more, under a token that no caller gets.
func TestClaimIsNotRepeatedForHistory(t *testing.T) {
	ctx, schema, pool := t.Context(), pgtest.Schema(t), pgtest.Pool(t)
	config, err := pgxpool.ParseConfig(pgtest.URL(t))
	must.OK(t, err)
	config.ConnConfig.RuntimeParams["lock_timeout"] = "100ms"
	impatient, err := pgxpool.NewWithConfig(ctx, config)
	must.OK(t, err)
	defer impatient.Close()
	s, err := postgres.Open(ctx, impatient, postgres.Options{Schema: schema})
	must.OK(t, err)
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	for i := range 20 {
		must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)}))
	}
	claim := ledger.Claim{Kind: "k", Agent: "a", Limit: 20}
	if got, err := l.Claim(ctx, claim); len(got) != 20 || err != nil {
		t.Fatal(len(got), err)
	}
	must.Do(t)(l.ForceRelease(ctx, "test", ledger.Filter{}))
	tx, err := pool.Begin(ctx)
	must.OK(t, err)
	defer tx.Rollback(ctx)
	must.Do(t)(tx.Exec(ctx, `LOCK TABLE `+pgx.Identifier{schema, "ledger_attempts"}.Sanitize()+
		` IN ACCESS EXCLUSIVE MODE`))
	claim.Limit = 1
	if got, err := l.Claim(ctx, claim); len(got) != 1 || err != nil {
		t.Errorf("claimed %d, %v", len(got), err)
	}
	must.OK(t, tx.Rollback(ctx))
	if n, err := l.Count(ctx, ledger.Filter{States: []ledger.State{ledger.StateLeased}}); n != 1 || err != nil {
		t.Errorf("%d items are leased, %v", n, err)
	}
}
