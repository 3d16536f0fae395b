package work

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
)

func LockCommand(a *app.App) *cobra.Command {
	return app.Group(app.GroupWork, "lock", "Run a command under a named lock, and see who holds which", lockRunCommand(a),
		lockLsCommand(a), lockReleaseCommand(a))
}

const lockHint = "ledgerd lock ls"

// lockError makes an error for people of a *ledger.InvalidError: it names the flag or argument instead of the field.
func lockError(err error) error {
	if bad, ok := errors.AsType[*ledger.InvalidError](err); ok && bad.Field == "name" {
		return failure.Usage("invalid", "", "name of the lock: %s", bad.Reason)
	}
	return app.PolicyError(err)
}
