package postgres

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
)

// hotLedger opens a ledger by its URL, so that it has a pool of the hot path.
func hotLedger(t *testing.T, url, schema string) (*Store, *ledger.Ledger) {
	t.Helper()
	s, err := Connect(t.Context(), url, Options{Schema: schema})
	must.OK(t, err)
	t.Cleanup(func() { s.Close() })
	return s, ledger.New(s, ledger.Options{})
}

// round adds an item, claims it and ends it.
func round(t *testing.T, l *ledger.Ledger, key string) {
	t.Helper()
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: key}))
	leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 10, TTL: time.Minute})
	if err != nil || len(leases) != 1 {
		t.Fatalf("claimed %d, %v", len(leases), err)
	}
	for _, err := range l.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)}) {
		must.OK(t, err)
	}
}

// prepared counts the statements that the sessions of the hot path have prepared, then runs a statement in each.
func prepared(t *testing.T, s *Store, then string) (n int) {
	t.Helper()
	for _, c := range s.hot.AcquireAllIdle(t.Context()) {
		var here int
		must.OK(t, c.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''").Scan(
			&here))
		n += here
		must.Do(t)(c.Exec(t.Context(), then))
		c.Release()
	}
	return n
}

// A prepared statement of a session may be gone, or be of tables that were changed since: the call is
// repeated in another session.
func TestStatementsThatAreGone(t *testing.T) {
	s, l := hotLedger(t, pgtest.URL(t), pgtest.Schema(t))
	round(t, l, "first")
	if n := prepared(t, s, "DEALLOCATE ALL"); n == 0 {
		t.Fatal("nothing was prepared")
	}
	round(t, l, "after all statements were dropped")
	must.Do(t)(s.pool.Exec(t.Context(), s.render(`ALTER TABLE {{S}}.ledger_items ALTER source TYPE varchar(500)`)))
	round(t, l, "after a column got another type")
}

// Behind a pooler nothing is prepared and no setting is left: the next transaction may run in
// another session, and the next client in this one.
func TestNothingIsPreparedBehindAPooler(t *testing.T) {
	direct, schema := pgtest.URL(t), pgtest.Schema(t)
	hotLedger(t, direct, schema) // makes it
	s, l := hotLedger(t, pgtest.Bouncer(t, direct), schema)
	for _, key := range []string{"a", "b", "c"} {
		round(t, l, key)
		if n := prepared(t, s, "SELECT 1"); n > 0 {
			t.Errorf("%d statements are prepared", n)
		}
	}
	var mode string
	if err := s.hot.QueryRow(t.Context(), "SHOW plan_cache_mode").Scan(&mode); err != nil || mode != "auto" {
		t.Errorf("plan_cache_mode is %s, %v", mode, err)
	}
}

// Both pools together have the connections that the URL allows, and keep no more open than they may have.
func TestSplitPool(t *testing.T) {
	all, err := poolConfig("postgres://u@localhost/d?pool_max_conns=8&pool_min_conns=8&pool_min_idle_conns=4")
	must.OK(t, err)
	hot := splitPool(all)
	if all.MaxConns+hot.MaxConns != 8 || all.MinConns != all.MaxConns || hot.MinConns != hot.MaxConns ||
		all.MinIdleConns > all.MaxConns || hot.MinIdleConns != 4 {
		t.Errorf("%d/%d/%d and %d/%d/%d connections", all.MaxConns, all.MinConns, all.MinIdleConns,
			hot.MaxConns, hot.MinConns, hot.MinIdleConns)
	}
}

// A session that cannot be set up is closed without a request to cancel, as pgcancel explains.
func TestHotSessionIsClosed(t *testing.T) {
	config, err := poolConfig(pgtest.URL(t))
	must.OK(t, err)
	conn, err := pgx.ConnectConfig(t.Context(), config.ConnConfig)
	must.OK(t, err)
	defer conn.Close(t.Context())
	config.AfterConnect = func(context.Context, *pgx.Conn) error { return nil }
	ended, end := context.WithCancel(t.Context())
	end()
	if err := splitPool(config).AfterConnect(ended, conn); err == nil || !conn.IsClosed() {
		t.Errorf("closed: %t, %v", conn.IsClosed(), err)
	}
}

// A claim does not wait for readings that take long, nor does the look at the schema that goes before it now and then.
func TestClaimBesideReadings(t *testing.T) {
	s, l := hotLedger(t, pgtest.URL(t)+"&pool_max_conns=4", pgtest.Schema(t))
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}))
	for range s.pool.Config().MaxConns {
		reading, err := s.pool.Acquire(t.Context())
		must.OK(t, err)
		defer reading.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must.Do(t)(s.Schema(ctx))
	got, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	if err != nil || len(got) != 1 {
		t.Errorf("%d leases, %v", len(got), err)
	}
}

// With one connection all share it, and it is not one of the hot path.
func TestOneConnection(t *testing.T) {
	u, err := url.Parse(pgtest.URL(t))
	must.OK(t, err)
	query := u.Query()
	query.Set("pool_max_conns", "1")
	u.RawQuery = query.Encode()
	s, l := hotLedger(t, u.String(), pgtest.Schema(t))
	if s.hot != s.pool {
		t.Error("two pools for one connection")
	}
	round(t, l, "alone")
}
