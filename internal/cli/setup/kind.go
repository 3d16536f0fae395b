package setup

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

func KindCommand(a *app.App) *cobra.Command {
	return app.Group(app.GroupSetUp, "kind",
		"List kinds of work, show one, set how each is treated, pause and resume them", kindLsCommand(a), kindShowCommand(a),
		kindSetCommand(a), kindPauseCommand(a), kindResumeCommand(a))
}

// warnOfConfig warns of values of a policy that were set now and that the config has other values for: the config
// replaces them. isSet reports whether a key was set now.
func warnOfConfig(a *app.App, have ledger.Kind, isSet func(key string) bool) {
	for _, d := range a.Config.PolicyDifferences(a.Config.Kind(have.Name), have) {
		if isSet(d.Key) {
			fmt.Fprintf(a.Stderr, "warning: the config has another value (%s): %s = %s of kind %s. The next command that adds "+
				"to the kind or works it with this config, and the next start of a daemon, set that again: change it there as "+
				"well\n", d.Origin, d.Key, d.Want, have.Name)
		}
	}
}

type pausedRow struct {
	Kind    string `json:"kind"`
	Paused  bool   `json:"paused"`
	Changed bool   `json:"changed"`
}

// pausing makes kind pause and kind resume.
func pausing(a *app.App, name, short string, paused bool, long string) *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use: name + " KIND…", Short: short, Args: app.Arguments(1, -1),
		Long:    short + ".\n\n" + long + "\n\nWith -o json: [{\"kind\",\"paused\",\"changed\"}].",
		Example: "  ledgerd kind " + name + " urlcheck",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := ledger.OneAct(cmd.Context(), reason)
			l, err := a.Open(ctx, app.ToWork)
			if err != nil {
				return err
			}
			defer l.Close()
			known, err := app.CheckKinds(ctx, l.Any, args) // all of them, or none
			if err != nil {
				return err
			}
			var rows []pausedRow
			for _, kind := range args {
				if known[kind].Paused != paused {
					stored, err := l.EditKind(ctx, app.Actor(), kind, func(k *ledger.Kind, _ bool) { k.Paused = paused })
					if err != nil {
						return err
					}
					warnOfConfig(a, stored, func(key string) bool { return key == "paused" })
				}
				rows = append(rows, pausedRow{kind, paused, known[kind].Paused != paused})
			}
			if p := a.Printer(); p.Format != report.Table {
				_, err = report.List(p, report.Each(rows))
				return err
			}
			for _, r := range rows {
				text := name + "d"
				if !r.Changed {
					text = "was " + text + " already"
				}
				fmt.Fprintf(a.Stdout, "%s %s\n", r.Kind, text)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` for the journal: why")
	return cmd
}
