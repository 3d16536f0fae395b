package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// A request to cancel is sent by a connection of its own, and may be late. So the connection of a call that was
// cancelled is not used for another call.
func TestCancelledCallsConnection(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	schema := pgtest.Schema(t)
	s := named(t, schema, schema)
	pool := pgtest.Pool(t)
	// session returns the session that the next call gets: the only idle one, or a new one.
	session := func() (pid int) {
		t.Helper()
		must.Do(t)(s.Now(ctx))
		must.OK(t, pool.QueryRow(ctx,
			`SELECT pid FROM pg_stat_activity WHERE application_name = $1 ORDER BY query_start DESC LIMIT 1`, schema).Scan(
			&pid))
		return pid
	}
	before := session()

	tx, err := pool.Begin(ctx)
	must.OK(t, err)
	defer tx.Rollback(context.WithoutCancel(ctx))
	must.Do(t)(tx.Exec(ctx, `LOCK TABLE `+pgx.Identifier{schema, "ledger_backlog"}.Sanitize()+
		` IN ACCESS EXCLUSIVE MODE`))
	calling, giveUp := context.WithCancel(ctx)
	defer giveUp()
	answer := make(chan error, 1)
	go func() {
		_, err := s.Count(calling, ledger.Filter{States: []ledger.State{ledger.StateReady}})
		answer <- err
	}()
	waits := false
	for !waits {
		must.OK(t, pool.QueryRow(ctx,
			`SELECT coalesce(bool_or(wait_event_type = 'Lock'), false) FROM pg_stat_activity WHERE pid = $1`, before).Scan(
			&waits))
	}
	giveUp()
	if err := <-answer; !errors.Is(err, context.Canceled) {
		t.Errorf("the call that was given up: %v", err)
	}
	must.OK(t, tx.Rollback(ctx))
	if after := session(); after == before {
		t.Error("the connection of the cancelled call is used again")
	}
}

// A pooler outlives requests to cancel: PgBouncer 1.18 ends itself if a client leaves before its request is served.
func TestCancelThroughPooler(t *testing.T) {
	direct := pgtest.SchemaURL(t)
	migrated, err := postgres.Connect(t.Context(), direct, postgres.Options{})
	must.OK(t, err)
	must.OK(t, migrated.Close())
	url := pgtest.BouncerIn(t, "session", direct)
	for range 5 {
		s, err := postgres.Connect(t.Context(), url, postgres.Options{})
		must.OK(t, err)
		var calls sync.WaitGroup
		for i := range 16 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*300*time.Microsecond)
				defer cancel()
				_, _ = s.Count(ctx, ledger.Filter{}) // most are given up
			})
		}
		calls.Wait()
		must.OK(t, s.Close())
	}
}
