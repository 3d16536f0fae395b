package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// A slow process takes a free lock. Meanwhile another process takes and releases the lock. The slow process then holds
// the lock, and its fence is greater. (A trigger delays the slow process after its insert has drawn a number, before
// the row is visible.)
func TestFenceOfASlowHolder(t *testing.T) {
	ctx, pool, schema := t.Context(), pgtest.Pool(t), pgtest.Schema(t)
	s, err := postgres.Open(ctx, pool, postgres.Options{Schema: schema})
	must.OK(t, err)
	defer s.Close()
	const gate = 7206461320
	must.Do(t)(pool.Exec(ctx, `CREATE FUNCTION `+schema+`.wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
 IF NEW.holder = 'slow' THEN PERFORM pg_advisory_xact_lock(7206461320); END IF; RETURN NEW; END $$;
 CREATE TRIGGER wait BEFORE INSERT ON `+schema+`.ledger_locks FOR EACH ROW EXECUTE FUNCTION `+schema+`.wait()`))
	shut, err := pool.Begin(ctx)
	must.OK(t, err)
	must.Do(t)(shut.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, gate))
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
	look := time.Tick(10 * time.Millisecond)
	for waits := false; !waits; <-look {
		must.OK(t, pool.QueryRow(ctx,
			`SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1::bigint & 4294967295)`, gate).Scan(&waits))
	}
	quick, err := fence(ctx, "quick")
	must.OK(t, err)
	must.OK(t, shut.Rollback(ctx))
	if later := <-slow; later <= quick {
		t.Errorf("fence %d after %d", later, quick)
	}
}
