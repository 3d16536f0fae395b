package setup

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
)

func dbStatusCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Print which schema the ledger has; exit 10 if it does not fit", Args: app.Arguments(0, 0),
		Long: `Prints which schema the ledger has, and which one this program knows. Exit 10 if there is no ledger
or a migration is outstanding. With -o json: {"ledger","schema","known"}.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			at, err := a.Address()
			if err != nil {
				return err
			}
			a.WarnOfPassword()
			s, err := schemaOf(cmd.Context(), a, at)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("%s: schema %d, up to date", at.Brief(), s.Schema)
			switch {
			case s.Schema == 0:
				text = fmt.Sprintf("%s: no ledger; make one: %s", at.Brief(), a.Typed("ledgerd db migrate"))
			case s.Schema < s.Known:
				text = fmt.Sprintf("%s: schema %d, this ledgerd needs %d; run: %s", at.Brief(), s.Schema, s.Known,
					a.Typed("ledgerd db migrate"))
			case s.Schema > s.Known:
				text = fmt.Sprintf("%s: schema %d, newer than the %d that this ledgerd knows, and fit for it", at.Brief(), s.Schema,
					s.Known)
			}
			if err := app.One(a, s, text); err != nil {
				return err
			}
			if s.Schema < s.Known {
				return failure.Status(failure.ExitNoLedger)
			}
			return nil
		},
	}
}
