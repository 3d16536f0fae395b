package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"net/url"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/schema"
)

// Who is slow to take a lock that nobody has may be overtaken by somebody who takes it and gives it
// back, and holds it afterwards all the same: then its fence is the greater one. (A trigger holds the
// slow one up after its insert has drawn a number and before the row can be found.)
func TestFenceOfASlowHolder(t *testing.T) {
	ctx, pool, schema := t.Context(), pgtest.Pool(t), pgtest.Schema(t)
	s, err := postgres.Open(ctx, pool, postgres.Options{Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const gate = 7206461320
	if _, err := pool.Exec(ctx, `CREATE FUNCTION `+schema+`.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
 IF NEW.holder = 'slow' THEN PERFORM pg_advisory_xact_lock(7206461320); END IF; RETURN NEW; END $$;
 CREATE TRIGGER wait BEFORE INSERT ON `+schema+`.ledger_locks FOR EACH ROW EXECUTE FUNCTION `+schema+`.wait()`); err != nil {
		t.Fatal(err)
	}
	shut, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := shut.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, gate); err != nil {
		t.Fatal(err)
	}
	m := locks.New(ledger.New(s, ledger.Options{}))
	fence := func(ctx context.Context, holder string) (fence int64, err error) {
		err = m.Do(ctx, "l", locks.Options{Holder: holder}, func(_ context.Context, l *locks.Lock) error {
			fence = l.Fence
			return nil
		})
		return fence, err
	}
	slow := make(chan int64)
	go func() {
		n, err := fence(ctx, "slow")
		if err != nil {
			t.Error(err)
		}
		slow <- n
	}()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for waits := false; !waits; <-look.C {
		if err := pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1::bigint & 4294967295)`, gate).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	quick, err := fence(ctx, "quick")
	if err != nil {
		t.Fatal(err)
	}
	if err := shut.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if later := <-slow; later <= quick {
		t.Errorf("fence %d after %d", later, quick)
	}
}

// A ledger made before there were locks is refused until it was migrated, and keeps what is in it.
func TestLocksAreAdded(t *testing.T) {
	ctx, pool, o := t.Context(), pgtest.Pool(t), postgres.Options{Schema: pgtest.Schema(t)}
	db, err := sql.Open("pgx", with(t, pgtest.URL(t), func(u *url.URL) {
		q := u.Query()
		q.Set("search_path", o.Schema)
		u.RawQuery = q.Encode()
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	const name = "00001_ledger.sql"
	first, err := fs.ReadFile(schema.Postgres, "postgres/"+name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := goose.NewProvider(goose.DialectPostgres, db, fstest.MapFS{name: {Data: first}}, goose.WithTableName(schema.Table), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(ctx, `INSERT INTO ledger_kinds (kind) VALUES ('k'); INSERT INTO ledger_items (kind, key, slot, created_at) VALUES ('k', 'x', 0, now());
 INSERT INTO ledger_backlog (item_id, kind, slot, state, due_at) VALUES (1, 'k', 0, 1, now())`); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.Open(ctx, pool, o); !errors.Is(err, ledger.ErrSchema) {
		t.Fatalf("before it was migrated: %v", err)
	}
	if from, to, err := postgres.Migrate(ctx, pgtest.URL(t), o); from != 1 || to != schema.Version || err != nil {
		t.Fatalf("migrated from %d to %d, %v", from, to, err)
	}
	s, err := postgres.Open(ctx, pool, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	if it, err := l.Find(ctx, "k", "", "x"); it.State != ledger.StateReady || err != nil {
		t.Errorf("%+v, %v", it, err)
	}
	if err := locks.New(l).Do(ctx, "l", locks.Options{}, func(context.Context, *locks.Lock) error { return nil }); err != nil {
		t.Error(err)
	}
}
