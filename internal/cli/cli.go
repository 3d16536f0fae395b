// Package cli is the command line. This package joins the commands and completes what is typed in a shell.
// The commands are below it, in four packages, one file for each command. The file has the name of its command, behind
// that of the group unless the package has it: "kind set" is setup/kindset.go, "plugin add" is plugin/add.go. A part of
// a command in a file of its own begins with the command's name: statsended.go.
//
//	item    see and decide: ls, show, stats, errors, agents, watch, journal, retry, cancel, prune, claim, finish
//	work    add and work: run, add, work, serve, api, mcp, lock
//	plugin  make, try, check, add, list and remove plugins
//	setup   kind, config, token, db, doctor, self
//
// They share package app. Package input has the flags that name inputs, package attention words what needs a person.
package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/item"
	"github.com/ledgerd/ledgerd/internal/cli/plugin"
	"github.com/ledgerd/ledgerd/internal/cli/setup"
	"github.com/ledgerd/ledgerd/internal/cli/work"
	"github.com/ledgerd/ledgerd/internal/version"
)

// Run executes a command line and returns the exit code.
func Run(in *app.Interrupts, p app.Program, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := app.New(in, p, stdin, stdout, stderr)
	root := Root(a)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		completeAll(a, root) // it visits every flag of every command, and only shells ask for it
	}
	a.Early = app.EarlyOutput(args)
	root.SetArgs(a.WantsAllHelp(args))
	root.SetIn(stdin)
	root.SetOut(a.Stdout)
	root.SetErr(stderr)
	defer a.EndTraces()
	return a.Conclude(root.ExecuteContext(in.Soft))
}

// Commands stand in the order in which Root adds them. The variable is set once, because Root runs in several
// goroutines of a test.
func init() { cobra.EnableCommandSorting = false }

// Root returns the command "ledgerd" with all other commands below it.
func Root(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:   "ledgerd",
		Short: "Work each file, link, photo, feed or mail of a list once, or once per period, on one machine or many",
		Long: `ledgerd remembers every item of work, leases it to one worker at a time and retries failures. It shows
whether an item is done, what it waits for, or why it failed.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return app.UnknownCommand(cmd, args[0])
			}
			_, err := io.WriteString(a.Stdout, welcome)
			return err
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := app.RefuseEmpty(cmd.Flags()); err != nil {
				return err
			}
			if err := a.SettleEnvironment(cmd.Flags()); err != nil {
				return err
			}
			a.Parsed = true
			if err := a.CheckColumns(cmd); err != nil || cmd.Annotations[app.WithoutConfig] != "" || !cmd.HasParent() {
				return err
			}
			return a.Configure(cmd.Flags())
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Version:           version.String(),
	}
	root.SetVersionTemplate("ledgerd {{.Version}}\n")
	root.SetHelpFunc(a.Help)
	a.Global.Define(root.PersistentFlags())
	root.SetFlagErrorFunc(app.FlagError)
	root.SetHelpCommand(&cobra.Command{Use: "help", Short: "Print how a command is used, as --help does", Hidden: true,
		GroupID: app.GroupSetUp, Annotations: map[string]string{app.WithoutConfig: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 {
				return app.UnknownCommand(about, rest[0])
			}
			return about.Help()
		}})
	root.AddGroup(&cobra.Group{ID: app.GroupWork, Title: "Work:"}, &cobra.Group{ID: app.GroupLook,
		Title: "Look and decide:"},
		&cobra.Group{ID: app.GroupSetUp, Title: "Set up:"})
	root.AddCommand(work.RunCommand(a), work.AddCommand(a), work.WorkCommand(a), work.ServeCommand(a),
		work.APICommand(a), item.ClaimCommand(a), item.FinishCommand(a), work.MCPCommand(a), work.LockCommand(a),
		item.LsCommand(a), item.ShowCommand(a), item.StatsCommand(a), item.ErrorsCommand(a), item.AgentsCommand(a),
		item.WatchCommand(a), item.JournalCommand(a), work.UICommand(a),
		item.RetryCommand(a), item.CancelCommand(a), setup.KindCommand(a), item.PruneCommand(a), plugin.Command(a),
		setup.ConfigCommand(a), setup.TokenCommand(a), setup.DbCommand(a), setup.DoctorCommand(a), setup.SelfCommand(a),
		setup.DocsCommand(a, root))
	a.Commands = map[string]bool{}
	for _, c := range root.Commands() {
		a.Commands[c.Name()] = true
	}
	return root
}

const welcome = `ledgerd works files, URLs and other items, and remembers what became of each.

  ledgerd run filecsv ./inbox              check every CSV file of a folder; again: only what is new
  ledgerd run urlcheck links.txt           check every link of a list
  ledgerd ls --state dead                  what could not be done; then: ledgerd show ITEM
  ledgerd --db postgres://db/work work     work a ledger that several machines share

All commands: ledgerd --help
`
