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

// helpWithFields makes `run KIND --help` say what can be set of that kind.
func helpWithFields(a *app.App, cmd *cobra.Command, s *input.SourceFlags) {
	plain := a.Help
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		kinds := c.Flags().Args()
		if len(kinds) == 0 || !c.Flags().Parsed() {
			plain(c, args)
			return
		}
		if c, err := a.LoadConfig(); err == nil { // help works with a wrong one, too
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
			plain(c, args)
			a.Tell(failure.Explain(err))
			return
		}
		var fields strings.Builder
		_ = input.ShowFields(&fields, a, p) // a builder takes everything
		// its text has examples of its own; the fields stand above the flags, as they are what one looks for
		c.Use, c.Example = strings.Replace(c.Use, "KIND", kinds[0], 1), ""
		c.Long = strings.TrimSpace(p.Doc) + "\n" + strings.TrimRight(fields.String(), "\n")
		plain(c, args)
	})
}
