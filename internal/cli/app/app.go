// Package app is one run of the program, as all commands share it: the flags of every command, the config, the
// ledger that is opened, output and progress, questions, and how a run ends.
//
// A command writes data to stdout and everything else to stderr. It returns an error of package failure, or any
// other, and Conclude puts that into words and an exit code.
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

// Interrupts are the two steps in which a person stops a program.
type Interrupts struct {
	Soft context.Context // ended by the first signal: begin nothing more
	Hard context.Context // ended by the second: stop now
	Got  atomic.Int32    // number of the first signal

	HandOver func() // leaves the signals to other code
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
	Parsed      bool            // flags and arguments are in order, the command has begun
	Commands    map[string]bool // names of all of them
	ConfigTyped bool            // --config was typed
	DbSource    string          // where the address of the ledger is from: "--db", "LEDGERD_DB" …
	warned      bool            // of a password that others can see
	level       *slog.LevelVar
	Early       string        // the value of -o, for errors in the rest of the command line
	allHelp     bool          // help shows every flag
	Drained     chan struct{} // closed when a ledger that is reached over HTTP asks a worker of this program to end
	drained     *sync.Once    // for Drained
	traces      *traces
}

// Program is what a build of ledgerd is made of.
type Program struct {
	Plugins map[string]func() *sdk.Plugin // linked into it
	// The others may be nil. Store stands before every store, Ended hears of every attempt that has ended.
	Store func(ledger.Store) ledger.Store
	Ended func(worker.Event)
}

// Linked is the description of a plugin that is linked into it.
func (p *Program) Linked(name string) pluginhost.Linked {
	return func() (*wire.DescribeResponse, error) {
		return sdk.Processor(p.Plugins[name]()).Describe(context.Background(), &wire.DescribeRequest{})
	}
}

func New(in *Interrupts, p Program, stdin io.Reader, stdout, stderr io.Writer) *App {
	bundled := map[string]pluginhost.Linked{}
	for name := range p.Plugins {
		bundled[name] = p.Linked(name)
	}
	a := &App{Interrupts: in, Program: p, Stdin: stdin, Stdout: &Output{To: stdout}, Stderr: stderr,
		Drained: make(chan struct{}), drained: new(sync.Once), traces: &traces{}, Local: kinds.NewLocal(bundled)}
	a.Output.Value = string(report.Table)
	return a
}

// DbFlag is where the address of the ledger is from if it was typed.
const DbFlag = "--db"

const (
	GroupWork  = "work"
	GroupLook  = "look"
	GroupSetUp = "setup"
)

// Printer writes the command's data.
func (a *App) Printer() *report.Printer {
	return &report.Printer{Out: a.Stdout, Format: report.Format(a.Output.String()), Columns: a.columns, Raw: a.raw,
		Width: terminalWidth(a.Stdout.To), ShortKey: ShortKey()}
}
