package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

func (a *app) pruneCommand() *cobra.Command {
	var f filter
	var older duration
	var dryRun bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove what old items carry, or end a scope", GroupID: groupSetUp, Args: arguments(0, 0),
		Long: `Daemons remove payload, output, log and all but the newest attempt of items that were done or cancelled
30 days ago, or as long ago as ledgerd kind set KIND --keep says (forever: never). What is dead or in
doubt stays as it is, for ever, until a person decides. The identity of an item stays in any case: it
is not worked again because it is given again.

Without flags, prune does now what daemons do. With --older it removes the same of all that ended longer
ago than that, whatever the kinds say; --kind: only of these.

With --scope or --where it removes finished items altogether, identity included: their keys may be added
and worked again. That is how a scope ends. Unfinished items are left, and counted: also recurring ones, which wait
for their next round, and dead ones. Withdrawn by ledgerd cancel, these are removed, too. With --older: only what
ended longer ago; with --limit: only the first by id.

It asks before it removes, on a terminal; elsewhere that takes -y. It works in small steps; one that was
interrupted is gone on with by the same command. The journal keeps who did it.

With -o json: {"pruned","dry_run"}; with --scope or --where {"matched","changed","unchanged","dry_run"}.`,
		Example: `  ledgerd prune --older 7d --kind urlcheck
  ledgerd prune --scope spring-2025
  ledgerd prune --where 'scope:test kind:filecsv' --dry-run`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.parse(); err != nil {
				return err
			}
			switch {
			case len(f.scopes)+len(f.where)+len(f.states)+len(f.agent) > 0:
				if cmd.Flags().Changed("older") {
					f.where = append(f.where, "until:"+older.Duration.String())
				}
				return a.forget(cmd.Context(), f, dryRun)
			case cmd.Flags().Changed("limit"):
				return usage("usage", "ledgerd prune --where kind:K --limit 10", "--limit goes with --scope or --where")
			case cmd.Flags().Changed("older"):
				return a.pruneOlder(cmd.Context(), f.kinds, older.Duration, dryRun)
			case len(f.kinds) > 0 || dryRun:
				return usage("usage", "ledgerd prune --older 30d --kind K", "--kind and --dry-run go with --older, --scope or --where")
			}
			return a.pruneKept(cmd.Context())
		},
	}
	f.define(cmd)
	f.defineFirst(cmd)
	cmd.Flags().Var(&older, "older", "what ended longer ago than this")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say how many there are")
	return cmd
}

// pruned is what prune says.
type pruned struct {
	Pruned int64 `json:"pruned"` // items; in a dry run, how many at most
	DryRun bool  `json:"dry_run"`
}

// forget removes finished items altogether.
func (a *app) forget(ctx context.Context, f filter, dryRun bool) error {
	remove := change{apply: func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error) {
		n, _, err := l.Forget(ctx, actor(), f)
		return n, err
	}}
	return a.act(ctx, act{name: "prune", hint: "only what has ended is removed", final: true, ended: true,
		on:   map[ledger.State]change{ledger.StateDone: remove, ledger.StateCancelled: remove},
		fine: ledger.States}, f, nil, dryRun)
}

// pruneOlder removes what items carry that ended long ago.
func (a *app) pruneOlder(ctx context.Context, kinds []string, older time.Duration, dryRun bool) error {
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := checkKinds(ctx, l.Ledger, kinds); err != nil {
		return err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	n, err := l.Count(ctx, ledger.Filter{Kinds: kinds, States: []ledger.State{ledger.StateDone, ledger.StateCancelled}, Until: now.Add(-older)})
	if err != nil {
		return err
	}
	if dryRun {
		return one(a, pruned{n, true}, fmt.Sprintf("would prune up to %s that ended more than %s ago", plural(n, "item"), older))
	}
	if n > 0 {
		if err := a.confirm(fmt.Sprintf("remove payload, output and history of up to %s?", plural(n, "item")), "see how many: --dry-run"); err != nil {
			return err
		}
	}
	n, err = l.PruneOlder(ctx, actor(), older, kinds...)
	return a.tellPruned(n, err)
}

// pruneKept does what daemons do.
func (a *app) pruneKept(ctx context.Context) error {
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	var total int64
	for n := upkeepLimit; n == upkeepLimit && err == nil; {
		n, err = l.Prune(ctx, upkeepLimit)
		total += int64(n)
	}
	return a.tellPruned(total, err)
}

func (a *app) tellPruned(n int64, err error) error {
	if err != nil {
		if n > 0 && !a.quiet {
			fmt.Fprintf(a.stderr, "pruned %s before that; the same command goes on\n", plural(n, "item"))
		}
		return err
	}
	err = one(a, pruned{n, false}, "pruned "+report.Count(n))
	if err == nil && n == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}
