// Command ensure installs programs that tests run and that are not in PATH, each from the package
// of its name:
//
//	go run ./internal/apt/cmd/ensure strace
//
// Where that cannot be done it fails with the reason. Elsewhere than on Linux the tests that need
// them do not exist, and nothing is done.
package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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
		if found(name) {
			continue
		}
		if err := apt.Install(ctx, "ensure: no "+name+" here", name); err != nil {
			return err
		}
	}
	return nil
}

// found also looks where Debian puts programs that run as services: that folder is not in every PATH.
func found(name string) bool {
	_, err := exec.LookPath(name)
	if err != nil {
		_, err = exec.LookPath("/usr/sbin/" + name)
	}
	return err == nil
}
