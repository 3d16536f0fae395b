package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/ledger"
)

func (a *app) releaseCommand() *cobra.Command {
	var f filter
	var expired, force, dryRun bool
	cmd := &cobra.Command{
		Use: "release [TOKEN]…", Short: "Hand claims back undone, or take them from agents that are gone", GroupID: groupWork,
		Long: `Hands claims back by their tokens: their items are ready again, which counts as no failure.

With --expired: takes back what agents have let expire. Claims and daemons do that by themselves.

With --where and --force: takes items from who holds them, though their time is not over. A holder that
still works is refused when it reports; until then two may be at it.

With -o json: [{"token","recorded","state"}] as of finish; {"released"} with --expired;
{"matched","changed","unchanged","dry_run"} with --where.`,
		Example: `  ledgerd release 17.3 18.1
  ledgerd release --expired
  ledgerd release --where 'agent:crawler-7' --force`,
		RunE: func(cmd *cobra.Command, args []string) error {
			chosen := len(f.where)+len(f.kinds)+len(f.scopes) > 0
			switch {
			case expired && (chosen || len(args) > 0), chosen && len(args) > 0:
				return usage("usage", "", "name tokens, or choose with --where, or say --expired: one of them")
			case expired:
				return a.releaseExpired(cmd.Context())
			case chosen && !force:
				return usage("not_forced", "who still works on them is refused when they report, and may be at it together with the next one until then\ndo it: --force   see what it would do: --force --dry-run", "release takes items from who holds them")
			case chosen:
				return a.act(cmd.Context(), forced, f, nil, dryRun)
			case len(args) == 0:
				return usage("usage", "ledgerd release 17.3   ledgerd release --expired   ledgerd release --where agent:bob --force", "release what? name tokens, or choose items with --where")
			}
			return a.release(cmd.Context(), args)
		},
	}
	f.define(cmd)
	cmd.Flags().BoolVar(&expired, "expired", false, "all whose lease has ended")
	cmd.Flags().BoolVar(&force, "force", false, "with --where: also what is in somebody's hands")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "with --where: only say what would be changed")
	return cmd
}

// forced takes leases from their holders.
var forced = act{name: "release", hint: "only what somebody holds can be taken",
	fine: []ledger.State{ledger.StateReady, ledger.StateWaiting},
	on: map[ledger.State]change{ledger.StateLeased: {apply: func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error) {
		return l.ForceRelease(ctx, actor(), f)
	}}}}

func (a *app) release(ctx context.Context, tokens []string) error {
	for _, token := range tokens {
		if _, _, err := ledger.ParseToken(token); err != nil {
			return usage("usage", "claim prints them; by id or filter: ledgerd release --where id:17 --force", "%q is no token ID.ATTEMPT, such as 17.3", token)
		}
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	return a.end(tokens, func(token string) (endRow, error) {
		id, attempt, err := ledger.ParseToken(token)
		if err != nil {
			return endRow{}, err
		}
		return endClaim(ctx, l.Ledger, id, attempt, ledger.Release(), "")
	})
}

// releaseExpired takes back all that has expired, step by step.
func (a *app) releaseExpired(ctx context.Context) error {
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	released := 0
	for {
		n, err := l.Expire(ctx, upkeepLimit)
		if err != nil {
			return err
		}
		if released += n; n == 0 {
			break
		}
	}
	err = one(a, struct {
		Released int `json:"released"`
	}{released}, fmt.Sprintf("released %d", released))
	if err == nil && released == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}
