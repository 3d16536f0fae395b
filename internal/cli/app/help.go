package app

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// firstFlags are the flags that --help shows for commands with many flags, by the command's name. For other commands it
// shows all flags that only they have. --help-all shows every flag.
var firstFlags = map[string][]string{
	"run": {"set", "with", "plugin", "from", "every", "again", "scope", "concurrency", "dry-run", "wait"},
	"add": {"set", "plugin", "from", "every", "again", "scope", "due", "dry-run"},
}

// firstGlobals are those flags of every command that --help shows.
var firstGlobals = []string{"db", "output", "quiet"}

// WantsAllHelp returns args with --help in place of --help-all, and remembers that all flags are to be shown.
func (a *App) WantsAllHelp(args []string) []string {
	end := len(args)
	if i := slices.Index(args, "--"); i >= 0 {
		end = i
	}
	if i := slices.Index(args[:end], "--help-all"); i >= 0 {
		a.allHelp = true
		args = slices.Clone(args)
		args[i] = "--help"
	}
	return args
}

// Help prints the help of a command.
func (a *App) Help(cmd *cobra.Command, args []string) {
	if !a.allHelp {
		defer hideFlags(cmd)()
	}
	(&cobra.Command{}).HelpFunc()(cmd, args) // the default of package cobra
	if !a.allHelp {
		fmt.Fprintf(a.Stdout, "\nAll flags: %s --help-all\n", cmd.CommandPath())
	}
}

// hideFlags hides the flags that help does not show, until restore is called.
func hideFlags(cmd *cobra.Command) (restore func()) {
	var hidden []*pflag.Flag
	hide := func(shown []string) func(*pflag.Flag) {
		return func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" && !slices.Contains(shown, f.Name) {
				f.Hidden = true
				hidden = append(hidden, f)
			}
		}
	}
	if first, many := firstFlags[cmd.Name()]; many && cmd.Parent() == cmd.Root() {
		cmd.LocalNonPersistentFlags().VisitAll(hide(first))
	}
	cmd.Root().PersistentFlags().VisitAll(hide(firstGlobals))
	return func() {
		for _, f := range hidden {
			f.Hidden = false
		}
	}
}
