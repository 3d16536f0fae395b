package work

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/runner"
)

// workFlags are the flags of work.
type workFlags struct {
	kinds       []string
	with        []string
	drain       bool
	wait        app.DurationFlag
	maxDuration app.DurationFlag
	shard       app.ShardFlag
	lease       app.DurationFlag
	concurrency int
	grace       app.DurationFlag
}

// giveUpAfter is how long run and work --drain wait for a ledger that is unavailable. It begins anew with each end that
// is recorded.
const giveUpAfter = 30 * time.Second

// options returns the options of the pool.
func (w *workFlags) options(ctx context.Context, a *app.App) runner.PoolOptions {
	o := runner.PoolOptions{Kinds: w.kinds, With: w.with, UntilIdle: w.drain, Wait: w.wait.Duration,
		Shard: w.shard.Shard, Lease: w.lease.Duration, Grace: w.grace.Duration, Concurrency: w.concurrency, Stop: a.Hard,
		Ended: a.Program.Ended, Tracer: a.TracerProvider(ctx)}
	if w.drain { // other workers wait without end
		o.GiveUp = giveUpAfter
	}
	return o
}

func checkConcurrency(n int) error {
	if n < 0 {
		return failure.Usage("bad_flag", "", "--concurrency (-j) %d: must not be negative", n)
	}
	return nil
}
