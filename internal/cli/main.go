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

// Main runs the program and exits. If ledgerd started this process as a linked plugin, it serves that plugin; else it
// executes the command line.
func Main(p app.Program) {
	if sdk.Started() {
		servePlugin(p)
	}
	sdk.LeaveHeapRoom()
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

// Listen takes over SIGINT and SIGTERM: the first ends Soft, the second Hard, and a third ends the program at once.
// SIGPIPE does not end the program. If the reader of stdout is gone, the write fails, and leases can still be released.
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
