package item

import (
	"context"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/attention"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// sayAttention prints below stats what needs a person, each with a command.
func sayAttention(ctx context.Context, a *app.App, l ledgers.Any, s stats.Summary) error {
	live, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return err
	}
	pauses, err := l.Pauses(ctx, kinds...)
	if err != nil {
		return err
	}
	for _, c := range s.Kinds {
		k := attention.KindOf(c.Kind, kinds)
		worker := func(kind string, k ledger.Kind) (string, bool) { return a.Worker(ctx, kind, k) }
		if what, next := attention.HeldUp(c.Counts, k, pauses[k.Name], live, worker); what != "" {
			a.Advise(a.Stderr, "%s\n  %s\n", report.Safe(what), next)
		}
		if c.Doubt > 0 {
			what, next := attention.DoubtOf(c.Counts)
			a.Advise(a.Stderr, "%s\n  %s\n", what, next)
		}
		if c.Dead == 0 {
			continue
		}
		what, next, err := attention.DeadOf(ctx, l, c.Counts)
		if err != nil {
			return err
		}
		a.Advise(a.Stderr, "%s\n  %s\n", report.Safe(what), report.Safe(next))
	}
	return nil
}
