package main

import (
	"github.com/spf13/cobra"
)

func (a *app) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish"}
	return &cobra.Command{
		Use: "completion bash|zsh|fish", Short: "Print a script that completes commands in your shell",
		Args: arguments(1, 1), ValidArgs: shells, Annotations: map[string]string{withoutConfig: "yes"},
		Example: `  ledgerd self completion bash > ~/.local/share/bash-completion/completions/ledgerd
  ledgerd self completion zsh > "${fpath[1]}/_ledgerd"
  ledgerd self completion fish > ~/.config/fish/completions/ledgerd.fish`,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			}
			return usage("usage", "there are bash, zsh and fish", "completion: no shell %q", args[0])
		},
	}
}
