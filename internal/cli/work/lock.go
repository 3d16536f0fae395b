package work

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
)

func LockCommand(a *app.App) *cobra.Command {
	return app.Group(app.GroupWork, "lock", "Run a command under a named lock, and see who holds which", lockRunCommand(a),
		lockLsCommand(a), lockReleaseCommand(a))
}

const lockHint = "ledgerd lock ls"

// lockNames are for [app.FieldError].
var lockNames = map[string]string{"name": "name of the lock"}
