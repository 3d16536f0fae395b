package setup

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

func ConfigCommand(a *app.App) *cobra.Command {
	return app.Group(app.GroupSetUp, "config", "Check, show or begin the config file", configCheckCommand(a),
		configPrintCommand(a), configInitCommand(a))
}
