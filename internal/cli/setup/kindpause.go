package setup

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

func kindPauseCommand(a *app.App) *cobra.Command {
	return pausing(a, "pause", "Stop claiming items of a kind", true,
		`Items in work are finished. New items wait. Running daemons notice the pause by themselves.
The journal keeps who paused the kind and the text of --reason. stats, doctor, show and kind show print both.`)
}
