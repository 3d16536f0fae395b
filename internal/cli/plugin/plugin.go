// Package plugin has the commands for plugins: make, try, check, add, list and remove them. author.go has what run and
// check share.
package plugin

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

func Command(a *app.App) *cobra.Command {
	return app.Group(app.GroupSetUp, "plugin", "Make, try, check, add, list and remove plugins", pluginNewCommand(a),
		pluginRunCommand(a), pluginCheckCommand(a), pluginProtoCommand(a), pluginAddCommand(a), pluginFetchCommand(a),
		pluginLsCommand(a), pluginRmCommand(a))
}
