package setup

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

func kindResumeCommand(a *app.App) *cobra.Command {
	return pausing(a, "resume", "Claim items of a paused kind again", false, `The journal keeps who resumed it.`)
}
