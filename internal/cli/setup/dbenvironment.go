package setup

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

// environment is what db environment prints.
type environment struct {
	Ledger      string `json:"ledger"`
	Environment string `json:"environment"` // "": none
}

func dbEnvironmentCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "environment [NAME]", Short: "Print or set the environment of the ledger: production, staging",
		Args: app.Arguments(0, 1),
		Long: `Without NAME, prints the environment of the ledger. With NAME, sets it; "" removes it. From then on only
programs of that environment work, add to, change and list the ledger. A program takes its environment from the key
environment of the config, or LEDGERD_ENVIRONMENT. Programs of another one, or without one, are refused (exit 12).
Those at work notice it within 5 s, end what they have begun and stop. A program that reaches the ledger over HTTP is
refused if it names another environment than the server.

A ledger that is made by a program with an environment is of that one. The environment goes with every backup and copy.
So a copy of production that is put up for staging is not worked there until it is of staging:

  ledgerd db environment staging -y

Set the key on all machines first, then the environment of the ledger. On a terminal the command asks; elsewhere it
takes -y. On Postgres it needs the rights of the owner of the tables. The commands of db work in every environment.

With -o json: {"ledger","environment"}.`,
		RunE: func(cmd *cobra.Command, args []string) error { return dbEnvironment(cmd.Context(), a, args) },
	}
}

func dbEnvironment(ctx context.Context, a *app.App, args []string) error {
	purpose := app.ToRead
	if len(args) > 0 {
		purpose = app.ToWork
	}
	l, err := a.OpenDatabase(ctx, purpose)
	if err != nil {
		return err
	}
	defer l.Close()
	have := l.Store.Opened().Environment
	if len(args) > 0 && args[0] != have {
		if err := a.Confirm(fmt.Sprintf("%s is of %s; make it of %s, so that programs of another one, or of none, stop using it?",
			l.Address.Brief(), named(have), named(args[0])), "who uses it: ledgerd agents"); err != nil {
			return err
		}
		if err := l.SetEnvironment(ctx, app.Actor(), args[0]); err != nil {
			return err
		}
		have = args[0]
	}
	return app.One(a, environment{Ledger: l.Address.String(), Environment: have},
		fmt.Sprintf("%s: %s", l.Address.Brief(), named(have)))
}

func named(environment string) string {
	if environment == "" {
		return "no environment"
	}
	return "environment " + environment
}
