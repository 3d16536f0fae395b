// Package app is one run of the program, as all commands share it: the flags of every command, the config, the
// ledger that is opened, output and progress, questions, and how a run ends.
//
// A command writes data to stdout and everything else to stderr. It returns an error, and Conclude prints it and
// chooses the exit code.
package app

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Interrupts are the two steps in which signals stop a program.
type Interrupts struct {
	Soft context.Context // ended by the first signal: begin nothing more
	Hard context.Context // ended by the second: stop now
	Got  atomic.Int32    // number of the first signal; 0: none came

	HandOver func() // stops handling signals: the caller does it from now on
}

// App is one run of the program: what all commands share.
type App struct {
	*Interrupts
	Global
	kinds.Local
	Program     Program
	Stdin       io.Reader
	Stdout      *Output
	Stderr      io.Writer
	Parsed      bool            // the command line has no mistake, and the command has begun
	Commands    map[string]bool // names of the commands directly below ledgerd
	ConfigTyped bool            // --config was typed
	DbSource    string          // where the address of the ledger is from: "--db", "LEDGERD_DB" …
	warned      bool            // WarnOfPassword has warned
	level       *slog.LevelVar  // of the log of a daemon
	Early       string          // the value of -o, for errors in the rest of the command line
	allHelp     bool            // help shows every flag
	StopAsked   chan struct{}   // closed when a ledger that is reached over HTTP asks a worker of this program to end
	stopOnce    *sync.Once      // for StopAsked
	traces      *traces
}

// Program is what differs between programs that are built on this package: ledgerd, and those of tests.
type Program struct {
	Plugins map[string]func() *sdk.Plugin   // linked into it, by name
	Store   func(ledger.Store) ledger.Store // wraps every store that is opened; may be nil
	Ended   func(worker.Event)              // called for every attempt that has ended; may be nil
}

// Linked returns the function that describes a linked plugin.
func (p *Program) Linked(name string) pluginhost.Linked {
	return func() (*wire.DescribeResponse, error) {
		return sdk.Processor(p.Plugins[name]()).Describe(context.Background(), &wire.DescribeRequest{})
	}
}

// New makes a run of the program, before its command line is parsed.
func New(in *Interrupts, p Program, stdin io.Reader, stdout, stderr io.Writer) *App {
	bundled := map[string]pluginhost.Linked{}
	for name := range p.Plugins {
		bundled[name] = p.Linked(name)
	}
	a := &App{Interrupts: in, Program: p, Stdin: stdin, Stdout: &Output{To: stdout}, Stderr: stderr,
		StopAsked: make(chan struct{}), stopOnce: new(sync.Once), traces: &traces{}, Local: kinds.NewLocal(bundled)}
	a.Output.Value = string(report.Table)
	return a
}

// DbFlag is the App.DbSource of an address that was typed.
const DbFlag = "--db"

// Groups of commands in the help.
const (
	GroupWork  = "work"
	GroupLook  = "look"
	GroupSetUp = "setup"
)

// Printer returns what writes the data of the command, in the format of -o.
func (a *App) Printer() *report.Printer {
	return &report.Printer{Out: a.Stdout, Format: report.Format(a.Output.String()), Columns: a.columns, Raw: a.raw,
		Width: terminalWidth(a.Stdout.To), ShortKey: ShortKey()}
}
