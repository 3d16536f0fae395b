package setup

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/report"
)

// settingRow is the effective value of a key.
type settingRow struct {
	Key    string `json:"key"`
	Value  any    `json:"value"`
	Origin string `json:"origin"`
}

func configPrintCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "print", Short: "Print what is effective, and where each value is from", Args: app.Arguments(0, 0),
		Annotations: map[string]string{app.WithoutConfig: "yes"},
		Long: `Lists the effective settings: all at the top, and what is set of kinds, sources and plugins. The
origin is default, FILE:LINE, the name of a variable, or a flag. Secrets are not shown.
Fields: key, value, origin.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return configPrint(a, cmd)
		},
	}
}

func configPrint(a *app.App, cmd *cobra.Command) error {
	ctx := cmd.Context()
	c, err := a.LoadConfig()
	if err != nil {
		return err
	}
	a.UseConfig(c, cmd.Flags())
	var rows []settingRow
	for _, s := range c.Settings(a.World(ctx)) {
		row := settingRow{s.Key, s.Value, s.Origin.String()}
		if row.Value == "" && (s.Key == "db" || s.Key == "data_dir") {
			if row.Value, err = effective(a, s.Key); err != nil {
				return err
			}
		}
		rows = append(rows, row)
	}
	_, err = report.List(a.Printer(), report.Each(rows), "key", "value", "origin")
	return err
}

// effective returns the default of db or data_dir on this machine.
func effective(a *app.App, key string) (string, error) {
	if key == "data_dir" {
		return a.DataDir()
	}
	at, err := a.Address()
	return at.String(), err
}
