package item

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

func PruneCommand(a *app.App) *cobra.Command {
	var f app.FilterFlags
	var older app.DurationFlag
	var dryRun bool
	cmd := &cobra.Command{
		Use: "prune", Short: "Remove what old items carry, or end a scope", GroupID: app.GroupSetUp, Args: app.Arguments(0,
			0),
		Long: `Daemons remove payload, output, log and all but the newest attempt of items that were done or cancelled
30 days ago, or the time of ledgerd kind set KIND --keep (forever: never). Items that are dead or in doubt stay as
they are until a person decides. The identity of an item always stays, so an item that is added again is not
worked again.

Without flags, prune does now what daemons do. With --older it removes the same from all items that ended longer
ago than that, whatever keep of their kind is; --kind: only these kinds.

With --scope or --where it removes finished items altogether, identity included: their keys may be added
and worked again. That is how a scope ends. Unfinished items are left, and counted: also recurring ones, which wait
for their next round, and dead ones. Withdrawn by ledgerd cancel, these are removed, too. With --older: only what
ended longer ago; with --limit: only the first by id.

With --older, --scope or --where it asks before it removes, on a terminal; elsewhere that takes -y. It works in small steps; one that was
interrupted is gone on with by the same command. The journal keeps who did it.

With -o json: {"pruned","dry_run"}; with --scope or --where {"matched","changed","unchanged","dry_run"}.`,
		Example: `  ledgerd prune --older 7d --kind urlcheck
  ledgerd prune --scope spring-2025
  ledgerd prune --where 'scope:test kind:filecsv' --dry-run`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := f.Parse(); err != nil {
				return err
			}
			switch whole := len(f.Scopes)+len(f.Where) > 0; {
			case !whole && len(f.States)+len(f.Agents) > 0:
				return failure.Usage("usage", "ledgerd prune --where 'kind:K state:done'",
					"--state and --agent go with --scope or --where: these remove items with their identity")
			case whole:
				if cmd.Flags().Changed("older") {
					f.Where = append(f.Where, "until:"+config.FormatDuration(older.Duration))
				}
				return forget(cmd.Context(), a, f, dryRun)
			case cmd.Flags().Changed("limit"):
				return failure.Usage("usage", "ledgerd prune --where kind:K --limit 10", "--limit goes with --scope or --where")
			case cmd.Flags().Changed("older"):
				return pruneOlder(cmd.Context(), a, f.Kinds, older.Duration, dryRun)
			case len(f.Kinds) > 0 || dryRun:
				return failure.Usage("usage", "ledgerd prune --older 30d --kind K",
					"--kind and --dry-run go with --older, --scope or --where")
			}
			return pruneKept(cmd.Context(), a)
		},
	}
	f.Define(cmd)
	f.DefineLimit(cmd)
	cmd.Flags().Var(&older, "older", "what ended longer ago than this")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print how many there are")
	return cmd
}

// pruned is the output of prune.
type pruned struct {
	Pruned int64 `json:"pruned"` // items; in a dry run, how many at most
	DryRun bool  `json:"dry_run"`
}

// forget removes items that have ended, with their identity.
func forget(ctx context.Context, a *app.App, f app.FilterFlags, dryRun bool) error {
	return apply(ctx, a, bulk{name: "prune", hint: "only what has ended is removed", final: true, onlyEnded: true,
		mayStay: ledger.States,
		changes: map[ledger.State]eligible{ledger.StateDone: {}, ledger.StateCancelled: {}},
		change: func(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.ActOption) error {
			_, _, err := l.Forget(ctx, app.Actor(), f, tell)
			return err
		}}, f, nil, dryRun)
}

// pruneOlder removes payload, output and history of items that ended longer ago than older.
func pruneOlder(ctx context.Context, a *app.App, kinds []string, older time.Duration, dryRun bool) error {
	l, err := a.OpenDatabase(ctx, app.ToAct(dryRun))
	if err != nil {
		return err
	}
	defer l.Close()
	if _, err := app.CheckKinds(ctx, l.Ledger, kinds); err != nil {
		return err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	n, err := l.Count(ctx, ledger.Filter{Kinds: kinds, States: []ledger.State{ledger.StateDone, ledger.StateCancelled},
		Until: now.Add(-older)})
	if err != nil {
		return err
	}
	if dryRun {
		return app.One(a, pruned{n, true}, fmt.Sprintf("would prune up to %s that ended more than %s ago",
			report.Plural(n, "item"), older))
	}
	if n > 0 {
		if err := a.Confirm(fmt.Sprintf("remove payload, output and history of up to %s?", report.Plural(n, "item")),
			"see how many: --dry-run"); err != nil {
			return err
		}
	}
	n, err = l.PruneOlder(ctx, app.Actor(), older, kinds...)
	return tellPruned(a, n, err)
}

// pruneKept prunes each kind by its keep, as daemons do.
func pruneKept(ctx context.Context, a *app.App) error {
	l, err := a.OpenDatabase(ctx, app.ToWork)
	if err != nil {
		return err
	}
	defer l.Close()
	var total int64
	for n := upkeepLimit; n == upkeepLimit && err == nil; {
		n, err = l.Prune(ctx, upkeepLimit)
		total += int64(n)
	}
	return tellPruned(a, total, err)
}

func tellPruned(a *app.App, n int64, err error) error {
	if err != nil {
		if n > 0 && !a.Quiet {
			fmt.Fprintf(a.Stderr, "pruned %s before that; the same command goes on\n", report.Plural(n, "item"))
		}
		return err
	}
	err = app.One(a, pruned{n, false}, "pruned "+report.Count(n))
	return a.OrExitEmpty(int(n), err)
}
