package setup

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/report"
)

func kindLsCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "ls", SuggestFor: []string{"list"}, Short: "List the kinds of this ledger", Args: app.Arguments(0, 0),
		Long: `Lists kinds and how they are treated. Fields: kind, plugin, input, input_field, match, on_lost,
max_failures, max_crashes, max_lost, backoff_base_s, backoff_cap_s, timeout_s, keep_s (null: for ever), paused, definition,
and the limits, of which 0 is none: max_running, max_running_per_shard_key, rate, rate_per_shard_key, burst,
and all of them in words: limits.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.Open(cmd.Context(), app.ToRead)
			if err != nil {
				return err
			}
			defer l.Close()
			kinds, err := l.Kinds(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([]answer.Kind, len(kinds))
			for i, k := range kinds {
				rows[i] = answer.NewKind(k)
			}
			n, err := report.List(a.Printer(), report.Each(rows), "kind", "plugin", "input", "on_lost", "max_failures", "limits",
				"paused", "definition")
			return a.OrExitEmpty(n, err)
		},
	}
}
