// Command withpostgres runs a command beside a temporary Postgres server:
//
//	go run ./internal/pgtest/cmd/withpostgres -- go test ./...
//
// -set NAME=VALUE changes a setting of the server and may be repeated. Without it the server does not wait for the
// disk.
//
// The command finds the URL of the server in LEDGERD_TEST_POSTGRES. If that is set already, no server is started. If
// the machine has no Postgres, withpostgres first installs it (see internal/apt). The server ends with the command.
// withpostgres ends with the exit code of the command.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/apt"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

const env = "LEDGERD_TEST_POSTGRES"

func main() {
	code, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpostgres:", err)
	}
	os.Exit(code)
}

func run(args []string) (code int, err error) {
	settings := map[string]string{}
	for len(args) > 1 && args[0] == "-set" {
		name, value, ok := strings.Cut(args[1], "=")
		if !ok {
			return 2, fmt.Errorf("-set %s: it is -set NAME=VALUE", args[1])
		}
		settings[name] = value
		args = args[2:]
	}
	if len(args) > 0 && args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return 2, errors.New("usage: withpostgres [-set NAME=VALUE]... -- COMMAND [ARGUMENT...]")
	}
	// The terminal sends Ctrl-C to both processes. This one must live on to end the server.
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	if os.Getenv(env) == "" {
		server, err := start(ctx, settings)
		if err != nil {
			return 1, err
		}
		defer func() {
			if closeErr := server.Close(); closeErr != nil {
				code, err = 1, errors.Join(err, closeErr)
			}
		}()
		cmd.Env = append(os.Environ(), env+"="+server.URL())
	}
	err = cmd.Run()
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil // the command has printed its error
	}
	if err != nil {
		return 1, fmt.Errorf("%s: %w", args[0], err)
	}
	return 0, nil
}

// start starts a server. If Postgres is missing, start installs it first.
func start(ctx context.Context, settings map[string]string) (*cluster.Cluster, error) {
	bin, err := cluster.Bin()
	if errors.Is(err, cluster.ErrMissing) {
		// Debian's package may also start a server on port 5432, as any of its installations does.
		if err := apt.Install(ctx, "withpostgres: no Postgres here", "postgresql"); err != nil {
			return nil, fmt.Errorf("%w\n%w", err, cluster.ErrMissing)
		}
		bin, err = cluster.Bin()
	}
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(os.Stderr, "withpostgres: starting a temporary server from", bin)
	return cluster.Start(cluster.Options{Settings: settings})
}
