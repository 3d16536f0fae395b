package work

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// lockReleased is what lock release prints.
type lockReleased struct {
	answer.Lock
	Released bool `json:"released"`
}

func lockReleaseCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "release NAME", Short: "Take a lock from its holder", Args: app.Arguments(1, 1),
		Long: `Takes a lock from whoever holds it, for when its holder is known to be gone and its TTL is long. A
holder that still runs learns of it after a third of its TTL, and until then runs beside the next one.
Asks, on a terminal; elsewhere that takes -y. It goes into the ledger's journal.

With -o json: {"name","holder","fence","since","until","released"}; released is false if it was free.`,
		Example: "  ledgerd lock release nightly-mail",
		RunE: func(cmd *cobra.Command, args []string) error {
			return lockRelease(cmd.Context(), a, args[0])
		},
	}
}

func lockRelease(ctx context.Context, a *app.App, name string) error {
	l, err := a.OpenDatabase(ctx, app.ToWork)
	if err != nil {
		return err
	}
	defer l.Close()
	m := locks.New(l.Ledger)
	all, err := m.Held(ctx)
	if err != nil {
		return err
	}
	for _, h := range all {
		if h.Name == name {
			question := fmt.Sprintf("take lock %q from %s, who has it since %s?", name, h.Holder, report.Local(h.Since))
			if err := a.Confirm(question, "who holds what: "+lockHint); err != nil {
				return err
			}
		}
	}
	from, err := m.ForceRelease(ctx, app.Actor(), name)
	if err != nil {
		return app.FieldError(err, "invalid", lockNames)
	}
	if from == nil {
		err = app.One(a, lockReleased{Lock: answer.Lock{Name: name}}, fmt.Sprintf("lock %q is free", name))
		return a.OrExitEmpty(0, err)
	}
	return app.One(a, lockReleased{answer.NewLock(*from), true}, fmt.Sprintf("lock %q was taken from %s", name,
		report.Safe(from.Holder)))
}
