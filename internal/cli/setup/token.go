package setup

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

func TokenCommand(a *app.App) *cobra.Command {
	return app.Group(app.GroupSetUp, "token", "Make tokens for the HTTP API", tokenNewCommand(a))
}
