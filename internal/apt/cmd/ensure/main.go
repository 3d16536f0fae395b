// Command ensure installs programs that tests run and that are not on this machine, each from the package
// of its name:
//
//	go run ./internal/apt/cmd/ensure strace
//
// If it cannot install a program it fails with the reason. It does nothing on other systems than Linux: the tests that
// need the programs do not exist there.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/ledgerd/ledgerd/internal/apt"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := ensure(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ensure:", err)
		os.Exit(1)
	}
}

func ensure(ctx context.Context, programs []string) error {
	if runtime.GOOS != "linux" {
		return nil
	}
	for _, name := range programs {
		if _, err := apt.LookPath(name); err == nil {
			continue
		}
		if err := apt.Install(ctx, "ensure: no "+name+" here", name); err != nil {
			return err
		}
	}
	return nil
}
