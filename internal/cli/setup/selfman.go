package setup

import (
	"bytes"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/version"
)

func manCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "man [DIR]", Short: "Print the manual page of ledgerd, or write those of all commands into a folder",
		Args: app.Arguments(0, 1), Annotations: map[string]string{app.WithoutConfig: "yes"},
		Long: `Prints ledgerd(1), or writes ledgerd.1, ledgerd-run.1 and so on into a folder, which is made if there is
none. The pages have the text of --help and docs/cli.md. Their date is SOURCE_DATE_EPOCH if it is set.`,
		Example: `  ledgerd self man | man -l -
  ledgerd self man ~/.local/share/man/man1`,
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.DisableAutoGenTag = true
			page := doc.GenManHeader{Section: "1", Source: "ledgerd " + version.String(), Manual: "ledgerd"}
			root.Long += "\n\n" + docsRules
			if len(args) == 0 {
				var out bytes.Buffer
				if err := doc.GenMan(root, &page, &out); err != nil {
					return err
				}
				_, err := a.Stdout.Write(out.Bytes())
				return err
			}
			if err := os.MkdirAll(filepath.Clean(args[0]), 0o755); err != nil {
				return failure.Usage("bad_folder", "", "man: %v", err)
			}
			return doc.GenManTree(root, &page, args[0])
		},
	}
}
