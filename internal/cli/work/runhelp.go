package work

import (
	"cmp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
)

// helpWithFields makes `run KIND --help` list the fields of --set and --with of the kind.
func helpWithFields(a *app.App, cmd *cobra.Command, s *input.SourceFlags) {
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		kinds := c.Flags().Args()
		if len(kinds) == 0 || !c.Flags().Parsed() {
			a.Help(c, args)
			return
		}
		if c, err := a.LoadConfig(); err == nil { // a config with mistakes is not used
			a.UseConfig(c, cmd.Flags())
		}
		wanted := cmp.Or(s.Plugin, a.Config.PluginOf(kinds[0]))
		if wanted == "" { // the kind may have been worked with a plugin of another name
			known := a.KindsOfLedger(c.Context())
			if i := slices.IndexFunc(known, func(k ledger.Kind) bool { return k.Name == kinds[0] }); i >= 0 {
				wanted = known[i].Plugin
			}
		}
		p, err := a.FindPlugin(c.Context(), cmp.Or(wanted, kinds[0]))
		if err != nil {
			a.Help(c, args)
			a.Tell(failure.Explain(err))
			return
		}
		var fields strings.Builder
		_ = input.ShowFields(&fields, a, p) // a builder returns no error
		// The text of the plugin has examples of its own. The fields stand above the flags of the command.
		c.Use, c.Example = strings.Replace(c.Use, "KIND", kinds[0], 1), ""
		c.Long = strings.TrimSpace(p.Doc) + "\n" + strings.TrimRight(fields.String(), "\n")
		a.Help(c, args)
	})
}
