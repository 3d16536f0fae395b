package item

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// claimRow is what claim prints of a lease.
type claimRow struct {
	Token   string       `json:"token"`
	ID      int64        `json:"id"`
	Attempt int64        `json:"attempt"`
	Key     string       `json:"key"`
	Scope   string       `json:"scope"`
	Payload report.Bytes `json:"payload"`
	Expires report.Time  `json:"expires_at"`
	Resumed bool         `json:"resumed"`
}

func ClaimCommand(a *app.App) *cobra.Command {
	c := ledger.Claim{}
	lease, part := app.DurationFlag{Duration: time.Hour}, app.ShardFlag{}
	var items []string
	cmd := &cobra.Command{
		Use: "claim KIND", Short: "Claim items for a person or a script: first those that the agent holds, then new ones",
		GroupID: app.GroupWork, Args: app.Arguments(1, 1),
		Long: `Leases items of the kind KIND to an agent, which is a person or a script. Each lease lasts for the time of --lease.

Items that the agent already holds come first, and their leases are extended. So claim again to renew leases. New
items follow, until there are --limit items in all. They include items whose lease another agent let expire.

With --item, only the items that it names are claimed, wherever they stand in the order. An item that cannot be claimed
is an error that names its holder, or what it waits for, unless --limit is reached.

Each item has a token, ID.ATTEMPT. End its attempt before the lease expires: ledgerd finish TOKEN. Otherwise the item
is ready again. If its kind has on_lost = doubt, it is in doubt instead, and a person decides.

Fields of a row: token, id, attempt, key, scope, payload, expires_at, resumed. The field resumed is true if the agent
held the item before this call.`,
		Example: `  ledgerd claim article --agent alice --limit 5
  ledgerd claim article --agent alice --item 17,18
  ledgerd claim page --agent crawler-1 --limit 100 --lease 10m -o jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Kind, c.TTL, c.Shard, c.Resume = args[0], lease.Duration, part.Shard, true
			if len(items) > 0 && cmd.Flags().Changed("shard") {
				return failure.Usage("bad_flag", "", "--shard goes without --item")
			}
			if len(items) > 0 && !cmd.Flags().Changed("limit") {
				c.Limit = len(items)
			}
			return claim(cmd.Context(), a, c, items)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Agent, "agent", "", "`name` of the agent that claims, chosen by you; required")
	f.IntVar(&c.Limit, "limit", 1, "maximum number of `items`, including those that the agent already holds")
	f.StringSliceVar(&items, "item", nil, "claim only these items: `ID` or KEY, separated by commas; without --limit all of them")
	f.Var(&lease, "lease", "how long each lease lasts")
	f.Var(&part, "shard", "claim new items only from shard i of n; i counts from 0")
	return cmd
}

func claim(ctx context.Context, a *app.App, c ledger.Claim, items []string) error {
	if err := kinds.CheckKind(c.Kind); err != nil {
		return err
	}
	if c.Agent == "" {
		return failure.Usage("usage", "give a name of your own: --agent $USER", "who claims? --agent is missing")
	}
	if c.TTL < bounds.MinTTL { // 0 would be the ledger's own default
		return failure.Usage("bad_flag", "", "--lease %s: at least %s", c.TTL, bounds.MinTTL)
	}
	l, err := a.Open(ctx, app.ToWork)
	if err != nil {
		return err
	}
	defer l.Close()
	k, err := l.Kind(ctx, c.Kind)
	if errors.Is(err, ledger.ErrNotFound) {
		return a.UnknownKind(ctx, l.Any, c.Kind)
	}
	if err != nil {
		return err
	}
	for _, name := range items {
		it, err := app.Find(ctx, l.Any, name, []string{c.Kind}, nil)
		if err != nil && failure.Explain(err).Code == "not_found" {
			err = failure.New(failure.ExitError, "not_found", fmt.Sprintf("no item %s of kind %s", name, c.Kind),
				failure.Explain(err).Hint)
		}
		if err != nil {
			return err
		}
		c.Items = append(c.Items, it.ID)
	}
	leases, err := take(ctx, l.Any, c, k)
	if err != nil {
		return app.FieldError(err, "bad_flag", map[string]string{"ttl": "--lease", "items": "--item"})
	}
	rows := make([]claimRow, len(leases))
	for i, ls := range leases {
		rows[i] = claimRow{ls.Token(), ls.ID, ls.Attempt, ls.Key, ls.Scope, ls.Payload, report.Time(ls.ExpiresAt), ls.Resumed}
	}
	n, err := report.List(a.Printer(), report.Each(rows), "token", "key", "scope", "expires_at", "resumed")
	switch {
	case err == nil && n < c.Limit && len(c.Items) > 0:
		return notClaimed(ctx, a, l.Any, c.Items, leases)
	case err != nil || n > 0:
		return err
	case !a.Quiet && k.Paused:
		a.Advise(a.Stderr, "nothing to claim: kind %s is paused; ledgerd kind resume %[1]s\n", c.Kind)
	case !a.Quiet:
		a.Advise(a.Stderr, "nothing to claim: %s\n", whyNothing(ctx, l.Any, c, k))
	}
	return a.OrExitEmpty(0, nil)
}

// whyNothing describes why a claim of a kind that is not paused got no item.
func whyNothing(ctx context.Context, l ledgers.Any, c ledger.Claim, k ledger.Kind) string {
	if st, err := l.StandingIn(ctx, c.Kind, c.Shard); err == nil && st.Ready > 0 && k.Limits.Any() {
		return fmt.Sprintf("limits of kind %s hold back its items: ledgerd kind show %[1]s", c.Kind)
	}
	part := app.ShardFlag{Shard: c.Shard}
	return fmt.Sprintf("nothing of kind %s is ready%s", c.Kind, report.Prefixed(" in shard ", part.String()))
}

// notClaimed returns the error about the first of the items that was not leased, and prints those about the others.
func notClaimed(ctx context.Context, a *app.App, l ledgers.Any, items []int64, leases []*ledger.Lease) (first error) {
	for _, id := range items {
		if slices.ContainsFunc(leases, func(ls *ledger.Lease) bool { return ls.ID == id }) {
			continue
		}
		why, err := l.Why(ctx, id)
		if err != nil {
			return err
		}
		hint := cmp.Or(app.Words(why.Acts...), fmt.Sprintf("ledgerd show %d", id))
		if why.Code == "leased" {
			hint = fmt.Sprintf("take it from its holder: ledgerd finish --outcome released --where id:%d --force", id)
		}
		if err = lending.NotClaimed(id, why, hint); first == nil {
			first = err
		} else {
			a.Tell(failure.Explain(err))
		}
	}
	return first
}

// take claims up to c.Limit items. If fewer are ready, it ends expired leases and makes due items ready, as a daemon
// does, and claims again: a ledger that people work may have no daemon.
func take(ctx context.Context, l ledgers.Any, c ledger.Claim, k ledger.Kind) ([]*ledger.Lease, error) {
	got, err := l.Claim(ctx, c)
	if err == nil && len(got) < c.Limit {
		if _, err := l.Expire(ctx, upkeepLimit); err != nil {
			return nil, err
		}
		if _, err := l.Promote(ctx, upkeepLimit); err != nil {
			return nil, err
		}
		rest := c
		rest.Resume = false
		for more := true; more && err == nil && len(got) < c.Limit; { // a call ends at an item that is claimed alone
			rest.Limit = c.Limit - len(got)
			var next []*ledger.Lease
			next, err = l.Claim(ctx, rest)
			got, more = append(got, next...), len(next) > 0
		}
	}
	if err != nil || k.OnLost != ledger.OnLostDoubt {
		return got, err
	}
	return markStarted(ctx, l, c.TTL, got)
}

// markStarted marks leases of a kind with on_lost = doubt as started: a person does not report the beginning of work.
// Leases that are lost already are left out.
func markStarted(ctx context.Context, l ledgers.Any, ttl time.Duration, got []*ledger.Lease) ([]*ledger.Lease,
	error) {
	var kept []*ledger.Lease
	for i, err := range l.Start(ctx, ttl, got...) {
		switch {
		case err == nil:
			kept = append(kept, got[i])
		case !errors.Is(err, ledger.ErrLeaseLost): // cancelled this very moment
			return nil, err
		}
	}
	return kept, nil
}
