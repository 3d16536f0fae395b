package setup

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/dburl"
)

func dbMigrateCommand(a *app.App) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use: "migrate", Short: "Make the ledger, or bring its schema up to date", Args: app.Arguments(0, 0),
		Long: `Makes the ledger if there is none, or applies the migrations that are outstanding. A ledger on Postgres
is migrated only by this command and by serve --migrate. One in an SQLite file is also migrated by the
first command that changes something, such as run, work and serve; commands that only read refuse it.

A ledger in a file that has items is copied first, to a new file beside it: ledger.db.schema-17.bak. Remove
it once all is well. To go back to it, stop what uses the ledger and run db restore with the ledgerd of that
schema. If there is no room for the copy, nothing is changed.

With -o json: {"ledger","schema","known","migrated_from","copy"}; copy only where one was made.`,
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
				m, err := at.Migrate(ctx)
				if err != nil {
					return a.ExplainOpen(at, err)
				}
				s.Schema, s.Copy = s.Known, m.Copy
				if from == 0 {
					l, err := a.OpenAt(ctx, at, app.ToMake) // which gives it its environment
					if err != nil {
						return err
					}
					l.Close()
				}
			}
			text := fmt.Sprintf("%s: schema %d → %d", at.Brief(), from, max(from, s.Known))
			switch {
			case from >= s.Known:
				text = fmt.Sprintf("%s: schema %d, nothing to do", at.Brief(), from)
			case from == 0:
				text = fmt.Sprintf("%s: made, with schema %d", at.Brief(), s.Known)
			}
			if s.Copy != "" {
				text += "   the ledger as it was: " + dburl.ShortPath(s.Copy)
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
