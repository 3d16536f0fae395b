package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/sdk"
)

// Main is a whole program: the process of a linked plugin if it was started as one, else the command line.
func Main(p app.Program) {
	if sdk.Started() {
		servePlugin(p)
	}
	sdk.LeaveHeapRoom(200) // percent of what lives
	os.Exit(Run(Listen(), p, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// servePlugin serves the plugin that the argument names. Plugins that are linked into this program run as
// processes of their own: ledgerd starts itself, with the plugin's name as its argument.
func servePlugin(p app.Program) {
	if len(os.Args) == 2 && p.Plugins[os.Args[1]] != nil {
		sdk.Serve(p.Plugins[os.Args[1]]()) // does not return
	}
	fmt.Fprintln(os.Stderr, "ledgerd holds no plugin of that name")
	os.Exit(failure.ExitUsage)
}

// Listen takes over SIGINT and SIGTERM: the first ends in.Soft, the second in.Hard, the third the program. SIGPIPE is
// ignored: a reader of our output that goes away makes the write fail, and there may be leases to give back.
func Listen() *app.Interrupts {
	soft, endSoft := context.WithCancel(context.Background())
	hard, endHard := context.WithCancel(context.Background())
	in := &app.Interrupts{Soft: soft, Hard: hard}
	signals := make(chan os.Signal, 3)
	in.HandOver = func() { signal.Stop(signals) }
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		s := <-signals
		in.Got.Store(int32(s.(syscall.Signal)))
		endSoft()
		<-signals
		endHard()
		s = <-signals
		os.Exit(128 + int(s.(syscall.Signal)))
	}()
	return in
}
