package setup

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/dburl"
)

func DbCommand(a *app.App) *cobra.Command {
	return app.Group(app.GroupSetUp, "db", "Make, migrate, check, back up, restore and copy the ledger",
		dbMigrateCommand(a), dbStatusCommand(a), dbEnvironmentCommand(a), dbVerifyCommand(a), dbBackupCommand(a),
		dbRestoreCommand(a), dbRestoredCommand(a), dbCopyCommand(a), dbRolesCommand(a))
}

// schemaStatus is what db status and db migrate print.
type schemaStatus struct {
	Ledger   string `json:"ledger"`
	Schema   int    `json:"schema"` // 0: no ledger
	Known    int    `json:"known"`  // the newest schema that this program knows
	Migrated *int   `json:"migrated_from,omitempty"`
	DryRun   bool   `json:"dry_run,omitempty"`
	Copy     string `json:"copy,omitempty"` // path of the ledger as it was, if one was kept
}

// schemaOf returns the schema of a ledger.
func schemaOf(ctx context.Context, a *app.App, at dburl.Database) (schemaStatus, error) {
	s := schemaStatus{Ledger: at.String()}
	var err error
	if s.Schema, s.Known, err = at.Status(ctx); err != nil {
		err = a.ExplainOpen(at, err)
	}
	return s, err
}
