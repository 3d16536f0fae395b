package setup

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

func dbMigrateCommand(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Make the ledger, or bring its schema up to date", Args: app.Arguments(0, 0),
		Long: `Makes the ledger if there is none, or applies the migrations that are outstanding. SQLite files are
migrated by whoever opens them; a ledger on Postgres only by this command.

With -o json: {"ledger","schema","known","migrated_from"}.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			at, err := a.Address()
			if err != nil {
				return err
			}
			a.WarnOfPassword()
			s, err := schemaOf(ctx, a, at)
			if err != nil {
				return err
			}
			from := s.Schema
			s.Migrated, s.DryRun = &from, dryRun
			if from < s.Known && !dryRun {
				if err := at.Migrate(ctx); err != nil {
					return a.ExplainOpen(at, err)
				}
				s.Schema = s.Known
			}
			text := fmt.Sprintf("%s: schema %d → %d", at.Brief(), from, max(from, s.Known))
			switch {
			case from >= s.Known:
				text = fmt.Sprintf("%s: schema %d, nothing to do", at.Brief(), from)
			case from == 0:
				text = fmt.Sprintf("%s: made, with schema %d", at.Brief(), s.Known)
			}
			if dryRun && from < s.Known {
				text += "    (dry run: nothing was changed)"
			}
			return app.One(a, s, text)
		},
	}
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be done")
	return cmd
}
