// Command ledgerd keeps ledgers of work and works them with plugins; `ledgerd --help` says how.
//
// This package is the only place that knows every other one: it reads flags, opens the ledger,
// finds plugins, runs workers, and puts into words what came of it. One file is one command;
// rules are in package ledger, plugins in internal/pluginhost, inputs in internal/inputs.
//
// A command writes data to stdout and everything else to stderr, and returns an error that
// says how the program ends: see errors.go for the exit codes.
package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/report"
)

func main() {
	servePlugin()
	// What a worker keeps is a few MiB, and what it allocates lives for one batch: collecting at every
	// doubling costs a tenth of its time, collecting even less often more memory than it is worth.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(200)
	}
	in := listen()
	os.Exit(run(in, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// interrupts are the two steps in which a person stops a program.
type interrupts struct {
	soft context.Context // ended by the first signal: begin nothing more
	hard context.Context // ended by the second: stop now
	got  atomic.Int32    // number of the first signal

	handOver func() // leaves the signals to whoever else wants them
}

// listen takes over SIGINT and SIGTERM. A third signal ends the program on the spot. A reader of
// our output that goes away is an error of the write, not the end: there may be leases to give back.
func listen() *interrupts {
	soft, endSoft := context.WithCancel(context.Background())
	hard, endHard := context.WithCancel(context.Background())
	in := &interrupts{soft: soft, hard: hard}
	signals := make(chan os.Signal, 3)
	in.handOver = func() { signal.Stop(signals) }
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		s := <-signals
		in.got.Store(int32(s.(syscall.Signal)))
		endSoft()
		<-signals
		endHard()
		s = <-signals
		os.Exit(128 + int(s.(syscall.Signal)))
	}()
	return in
}

// app is one run of the program: what all commands share.
type app struct {
	*interrupts
	global
	stdin          io.Reader
	stdout, stderr io.Writer
	config         *config.Config
	parsed         bool         // flags and arguments are in order, the command has begun
	dbSource       string       // where the address of the ledger is from: "--db", "LEDGERD_DB" …
	warned         bool         // of a password that others can see
	log            *slog.Logger // of the daemon; nil for commands, see logger
	level          *slog.LevelVar
	early          string     // the value of -o, for errors in the rest of the command line
	allHelp        bool       // help shows every flag
	spokesman      *spokesman // of serve and work; nil for other commands
}

// dbFlag is where the address of the ledger is from if it was typed.
const dbFlag = "--db"

// run executes a command line and gives the exit code.
func run(in *interrupts, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{interrupts: in, stdin: stdin, stdout: stdout, stderr: stderr, config: &config.Config{}}
	root := a.root()
	a.early = earlyOutput(args)
	root.SetArgs(a.wantsAllHelp(args))
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return a.conclude(root.ExecuteContext(in.soft))
}

// root is the program's command with all others below it.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "ledgerd",
		Short: "Every file, URL, photo and mail worked as often as it should be, by however many machines",
		Long: `ledgerd remembers every item of work, lends it to one worker at a time, retries what
fails, and can always say: done, waiting for what, or why not.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			_, err := io.WriteString(a.stdout, welcome)
			return err
		},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := a.settleEnvironment(cmd.Flags()); err != nil {
				return err
			}
			a.parsed = true
			if err := a.checkColumns(cmd); err != nil || cmd.Annotations[withoutConfig] != "" || !cmd.HasParent() {
				return err
			}
			return a.configure(cmd.Flags())
		},
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Version:           programVersion(),
	}
	root.SetVersionTemplate("ledgerd {{.Version}}\n")
	root.SetHelpFunc(a.help)
	a.global.define(root.PersistentFlags())
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(&cobra.Command{Use: "help", Short: "Say how a command is used, as --help does", Hidden: true, GroupID: groupSetUp, RunE: func(cmd *cobra.Command, args []string) error {
		about, rest, err := root.Find(args)
		if err != nil {
			return err
		}
		if len(rest) > 0 {
			return unknownCommand(about, rest[0])
		}
		return about.Help()
	}})
	cobra.EnableCommandSorting = false
	root.AddGroup(&cobra.Group{ID: groupWork, Title: "Work:"}, &cobra.Group{ID: groupLook, Title: "Look and decide:"},
		&cobra.Group{ID: groupSetUp, Title: "Set up:"})
	root.AddCommand(a.runCommand(), a.addCommand(), a.workCommand(), a.serveCommand(), a.claimCommand(), a.finishCommand(), a.lockCommand(),
		a.lsCommand(), a.showCommand(), a.statsCommand(), a.errorsCommand(), a.agentsCommand(), a.watchCommand(), a.journalCommand(),
		a.retryCommand(), a.cancelCommand(), a.kindCommand(), a.pruneCommand(), a.pluginCommand(), a.configCommand(),
		a.dbCommand(), a.doctorCommand(), a.selfCommand(), docsCommand(root))
	a.completeAll(root)
	return root
}

const (
	groupWork  = "work"
	groupLook  = "look"
	groupSetUp = "setup"
)

const welcome = `ledgerd works files, URLs and other items, and remembers what became of each.

  ledgerd run filecsv ./inbox              check every CSV file of a folder; again: only what is new
  ledgerd run urlcheck links.txt           check every link of a list
  ledgerd ls --state dead                  what could not be done; then: ledgerd show ITEM
  ledgerd --db postgres://db/work work     work a ledger that several machines share

All commands: ledgerd --help
`

// printer writes the command's data.
func (a *app) printer() *report.Printer {
	return &report.Printer{Out: a.stdout, Format: report.Format(a.output.String()), Columns: a.columns, Raw: a.raw, UTC: a.utc,
		Width: terminalWidth(a.stdout), ShortKey: shortKey()}
}
