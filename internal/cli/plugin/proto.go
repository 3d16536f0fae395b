package plugin

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func pluginProtoCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "proto", Short: "Print the protocol of plugins, plugin.proto", Args: app.Arguments(0, 0),
		Annotations: map[string]string{app.WithoutConfig: "yes"},
		Long: `Prints the protocol that this ledgerd speaks with plugins, as the file plugin.proto from which gRPC code is
generated. docs/plugins/any-language.md describes how a plugin uses it.`,
		Example: "  ledgerd plugin proto > plugin.proto",
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.Stdout, wire.Proto)
			return err
		},
	}
}
