package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// claimRow is a lease as claim prints it.
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

func (a *app) claimCommand() *cobra.Command {
	c := ledger.Claim{}
	lease, part := duration{time.Hour}, shard{}
	noResume := false
	cmd := &cobra.Command{
		Use: "claim KIND", Short: "Take items for a person or a script: what the agent holds, extended, then new ones", GroupID: groupWork, Args: arguments(1, 1),
		Long: `Lends items to an agent until their lease ends. What the agent holds of the kind comes first, its
lease extended: to renew is to claim again. New ones follow, up to --limit in all. What others let
expire is claimed again, too. Each claim has a token, ID.ATTEMPT, with which it is ended: see finish
and release. Of a kind with on_lost = doubt a claim that is not ended leaves its item in doubt.

Fields of a row: token, id, attempt, key, scope, payload, expires_at, resumed.`,
		Example: `  ledgerd claim article --agent alice --limit 5
  ledgerd claim page --agent crawler-1 --limit 100 --lease 10m -o jsonl`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Kind, c.TTL, c.Shard, c.Resume = args[0], lease.Duration, part.Shard, !noResume
			return a.claim(cmd.Context(), c)
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.Agent, "agent", "", "who claims: a `name` that nobody else has; required")
	f.IntVar(&c.Limit, "limit", 1, "most `items`, those included that the agent holds")
	f.Var(&lease, "lease", "how long the agent has them")
	f.Var(&part, "shard", "take new ones only of part i of n, from 0")
	f.BoolVar(&noResume, "no-resume", false, "only new ones: for a script that runs several times under one name")
	return cmd
}

func (a *app) claim(ctx context.Context, c ledger.Claim) error {
	if err := checkKind(c.Kind); err != nil {
		return err
	}
	if c.Agent == "" {
		return usage("usage", "a name that nobody else has: --agent $USER", "who claims? --agent is missing")
	}
	if c.TTL < ledger.MinTTL { // 0 would be the ledger's own default
		return usage("bad_flag", "", "--lease %s: at least %s", c.TTL, ledger.MinTTL)
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	k, err := l.Kind(ctx, c.Kind)
	if errors.Is(err, ledger.ErrNotFound) {
		return a.unknownKind(ctx, l.Ledger, c.Kind, pluginDirs{})
	}
	if err != nil {
		return err
	}
	leases, err := take(ctx, l.Ledger, c, k)
	if err != nil {
		return flagOfClaim(err)
	}
	rows := make([]claimRow, len(leases))
	for i, ls := range leases {
		rows[i] = claimRow{ls.Token(), ls.ID, ls.Attempt, ls.Key, ls.Scope, ls.Payload, report.Time(ls.ExpiresAt), ls.Resumed}
	}
	n, err := report.List(a.printer(), each(rows), "token", "key", "scope", "expires_at", "resumed")
	switch {
	case err != nil || n > 0:
		return err
	case !a.quiet && k.Paused:
		fmt.Fprintf(a.stderr, "nothing to claim: kind %s is paused; ledgerd kind set %[1]s --paused=false\n", c.Kind)
	case !a.quiet:
		fmt.Fprintf(a.stderr, "nothing to claim: nothing of kind %s is ready\n", c.Kind)
	}
	if a.errorOnEmpty {
		return status(exitEmpty)
	}
	return nil
}

// upkeepLimit is how many items a claim promotes, and how many it takes from agents whose time is over.
const upkeepLimit = 1000

// take claims, and if that is too little does what daemons do elsewhere: people may work a ledger
// that has none.
func take(ctx context.Context, l *ledger.Ledger, c ledger.Claim, k ledger.Kind) ([]*ledger.Lease, error) {
	got, err := l.Claim(ctx, c)
	if err == nil && len(got) < c.Limit {
		if _, err := l.Expire(ctx, upkeepLimit); err != nil {
			return nil, err
		}
		if _, err := l.Promote(ctx, upkeepLimit); err != nil {
			return nil, err
		}
		rest := c
		rest.Resume, rest.Limit = false, c.Limit-len(got)
		var more []*ledger.Lease
		more, err = l.Claim(ctx, rest)
		got = append(got, more...)
	}
	if err != nil || k.OnLost != ledger.OnLostDoubt {
		return got, err
	}
	return markStarted(ctx, l, c.TTL, got)
}

// markStarted marks leases as started where that matters: nobody says later that work has begun.
func markStarted(ctx context.Context, l *ledger.Ledger, ttl time.Duration, got []*ledger.Lease) ([]*ledger.Lease, error) {
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

// flagOfClaim names the flag instead of the field.
func flagOfClaim(err error) error {
	if bad, ok := errors.AsType[*ledger.InvalidError](err); ok {
		flag := map[string]string{"ttl": "lease"}[bad.Field]
		return usage("bad_flag", "", "--%s: %s", cmp.Or(flag, bad.Field), bad.Reason)
	}
	return err
}
