package setup

import (
	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
)

func completionCommand(a *app.App) *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print a script that completes commands in your shell",
		Args: app.Arguments(1, 1), ValidArgs: shells, Annotations: map[string]string{app.WithoutConfig: "yes"},
		Example: `  ledgerd self completion bash > ~/.local/share/bash-completion/completions/ledgerd
  ledgerd self completion zsh > "${fpath[1]}/_ledgerd"
  ledgerd self completion fish > ~/.config/fish/completions/ledgerd.fish`,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.Stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.Stdout)
			case "fish":
				return root.GenFishCompletion(a.Stdout, true)
			}
			return failure.Usage("usage", "there are bash, zsh and fish", "completion: no shell %q", args[0])
		},
	}
}
