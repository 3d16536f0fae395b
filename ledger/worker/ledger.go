package worker

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Ledger has the methods of a ledger that a worker needs. *ledger.Ledger implements it and documents the methods.
type Ledger interface {
	leases
	registry
	upkeep
	// Subscribe sends the name of a kind on c whenever items of the kind may have become ready, until ctx ends.
	Subscribe(ctx context.Context, c chan<- string)
}

// leases are the methods that claim, keep and end leases.
type leases interface {
	ClaimWithin(ctx context.Context, c ledger.Claim) ([]*ledger.Lease, scheduler.HeldBack, error)
	Start(ctx context.Context, ttl time.Duration, leases ...*ledger.Lease) []error
	Extend(ctx context.Context, ttl time.Duration, leases ...*ledger.Lease) ([]time.Time, []error)
	Held(ctx context.Context, leases ...*ledger.Lease) []error
	Finish(ctx context.Context, e ...ledger.Ending) []error
}

// exchanger is a Ledger that ends leases and claims in one call.
type exchanger interface {
	FinishAndClaim(ctx context.Context, c ledger.Claim, e ...ledger.Ending) (errs []error, leases []*ledger.Lease,
		held scheduler.HeldBack, err error)
}

// registry reads the kinds with their policies, the agents, and counts of unfinished items and ended attempts.
type registry interface {
	Kinds(ctx context.Context) ([]ledger.Kind, error)
	Beat(ctx context.Context, a ledger.Agent, ttl time.Duration) error
	Agents(ctx context.Context) ([]ledger.Agent, error)
	StandingIn(ctx context.Context, kind string, part scheduler.Shard) (stats.Standing, error)
	Counts(ctx context.Context, since time.Time) ([]stats.Counts, error)
	AddTallies(ctx context.Context, tallies ...stats.Minute) error
}

// upkeep keeps a ledger in order. The methods may do nothing if another program does that, as with a ledger over HTTP.
type upkeep interface {
	Promote(ctx context.Context, limit int) (next time.Time, err error)
	Expire(ctx context.Context, limit int) (int, error)
	ExpireGone(ctx context.Context) (int, error)
	Prune(ctx context.Context, limit int) (int, error)
	ForgetTallies(ctx context.Context) error
}

var (
	_ Ledger    = (*ledger.Ledger)(nil)
	_ exchanger = (*ledger.Ledger)(nil)
)
