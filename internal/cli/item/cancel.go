package item

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

func CancelCommand(a *app.App) *cobra.Command {
	var reason string
	cmd := actCommand(a, "cancel", "Withdraw unfinished items, also running ones",
		`An item in work is told to stop at once, and ends with its attempt: as cancelled, or as done if it is worked once and
that attempt does it. The command goes on until nothing that matches is unfinished. If new items still come in after ten
passes, it exits with 1. A cancelled item keeps the code of its last failure. --reason is the text of the attempt that is
cancelled, also of an item in work. The journal and show have the reason in any case.

A cancelled item stays so when it is listed again, also a recurring one: retry --again has it worked, prune forgets it.

With -o json: {"matched","changed","unchanged":{"done":3},"dry_run"}.`,
		`  ledgerd cancel 17 18
  ledgerd cancel --where 'kind:urlcheck key:https://old.example/*' --reason 'the site is gone'`,
		func(*app.FilterFlags, bool) (bulk, error) { return cancelAct(a, reason), nil })
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for the journal, and for the items: why")
	return cmd
}

// cancelAct makes the act of cancel; reason may be "".
func cancelAct(a *app.App, reason string) bulk {
	x := bulk{name: "cancel", repeat: true, mayStay: []ledger.State{ledger.StateCancelled, ledger.StateLeased},
		asked: reasonFlag("reason", reason), hint: "what is done stays done",
		changes: map[ledger.State]eligible{ledger.StateWaiting: {}, ledger.StateReady: {}, ledger.StateLeased: {},
			ledger.StateDead: {}, ledger.StateDoubt: {}},
		change: func(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.ActOption) error {
			_, err := l.Cancel(ctx, app.Actor(), f, tell, ledger.WithReason(reason))
			return err
		}}
	x.print = func(ctx context.Context, l ledgers.Any, _ ledger.Filter, res Acted) error {
		if res.leased > 0 && !a.Quiet {
			fmt.Fprintf(a.Stderr, "%s still in work: told to stop, cancelled as soon as the attempt ends\n",
				report.Plural(res.leased, "item"))
		}
		if err := app.One(a, res, res.text()); err != nil || a.Quiet || res.DryRun {
			return err
		}
		return warnRecurring(ctx, a, l, res.ids)
	}
	return x
}

// warnRecurring explains, if a recurring item was cancelled, that adding it again does not bring it back. It looks at
// the first 1000 items.
func warnRecurring(ctx context.Context, a *app.App, l ledgers.Any, ids []int64) error {
	for it, err := range l.List(ctx, ledger.IDs(ids[:min(len(ids), 1000)]...), 0) {
		if err != nil {
			return err
		}
		if it.Every != "" {
			a.Advise(a.Stderr, "a recurring item that is cancelled is not worked when it is listed again; to have it worked: "+
				"ledgerd retry %[1]d --again; to forget it, so that a list brings it anew: ledgerd prune --where id:%[1]d\n", it.ID)
			return nil
		}
	}
	return nil
}
