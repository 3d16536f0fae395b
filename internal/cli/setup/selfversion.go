package setup

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func versionCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version and the commit", Args: app.Arguments(0, 0),
		Annotations: map[string]string{app.WithoutConfig: "yes"},
		Long: `Prints the version, and the commit that the program was built from with its time, if that is known. With
-o json: {"version","schema","protocol","go","platform","commit","built"}.`,
		RunE: func(*cobra.Command, []string) error {
			v := answer.NewVersion(wire.Version)
			text := fmt.Sprintf("ledgerd %s   schema %d   plugin protocol %d   %s %s", v.Version, v.Schema, v.Protocol, v.Go,
				v.Platform)
			if v.Commit != "" {
				text += fmt.Sprintf("\ncommit %s of %s", v.Commit, v.Built)
			}
			return app.One(a, v, text)
		},
	}
}
