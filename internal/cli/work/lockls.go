package work

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

func lockLsCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the locks that are held", Args: app.Arguments(0, 0),
		Long: `Lists locks by name. Fields: name, holder, fence, since, until. A lock is held until the time in until,
unless it is renewed; one that was released early is kept for its --at-least.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.OpenDatabase(cmd.Context(), app.ToRead)
			if err != nil {
				return err
			}
			defer l.Close()
			held, err := locks.New(l.Ledger).Held(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([]answer.Lock, len(held))
			for i := range held {
				rows[i] = answer.NewLock(held[i])
			}
			n, err := report.List(a.Printer(), report.Each(rows))
			return a.OrExitEmpty(n, err)
		},
	}
}
