// Package setup has the commands that prepare and examine: kind, config, token, db, doctor and self, and the hidden
// docs. refused.go finds the programs that wait because others work a kind with other settings, for kind show and
// doctor.
package setup

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

// SelfCommand holds the commands that are about the program and not about a ledger.
func SelfCommand(a *app.App) *cobra.Command {
	return app.Group(app.GroupSetUp, "self", "Version, manual pages and shell completion", versionCommand(a), manCommand(a),
		completionCommand(a))
}
