//go:build unix

package locks_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// TestClockOff: a difference of an hour between the clock of the programs and the database's clock changes nothing.
// The test moves the database's clock for its own sessions only: their search_path begins with a schema that has its
// own clock_timestamp.
func TestClockOff(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			clock := pgtest.Schema(t)
			_, err := pgtest.Pool(t).Exec(t.Context(), `CREATE FUNCTION `+clock+
				`.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
 $$ SELECT pg_catalog.clock_timestamp() + interval '`+off.String()+`' $$`)
			must.OK(t, err)
			p := newPlace(t, "pgx", ","+clock+",pg_catalog")
			other := openPlace(t, "pgx", p.url)
			ctx := t.Context()
			asked := time.Now()
			held, l, err := p.locks.Acquire(ctx, "l", locks.Options{Holder: "a", TTL: time.Second})
			must.OK(t, err)
			first := p.held(t, "l")
			if d := first.Since.Sub(asked) - off; d < -time.Minute || d > time.Minute {
				t.Fatalf("the clock is off by %v, not by %v", d+off, off)
			}
			if left := first.Until.Sub(first.Since); left < time.Second || left > time.Minute { // it may be renewed
				t.Errorf("held for %v", left)
			}
			must.Eventually(t, "it is renewed", func() bool { return p.held(t, "l").Until.After(first.Until.Add(time.Second)) })
			if _, _, err := other.locks.Acquire(ctx, "l", locks.Options{}); !errors.As(err, new(*locks.HeldError)) {
				t.Errorf("somebody else: %v", err)
			}
			if held.Err() != nil {
				t.Errorf("the holder was told that it is lost")
			}
			must.OK(t, p.locks.Release(ctx, l))
			dies := other.spawn(t, "holder")
			dies.Expect(t, "held")
			must.OK(t, dies.Process.Kill())
			_, l, err = p.locks.Acquire(ctx, "mail", locks.Options{Wait: patience})
			must.OK(t, err)
			must.OK(t, p.locks.Release(ctx, l))
		})
	}
}

// holder acquires a lock and never releases it.
func holder(ctx context.Context, p *place, _ []string) error {
	if _, _, err := p.locks.Acquire(ctx, "mail", locks.Options{TTL: time.Second}); err != nil {
		return err
	}
	childtest.Ask("held")
	return nil
}
