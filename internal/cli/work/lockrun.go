package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// lockFlags are the flags of lock run.
type lockFlags struct {
	ttl, wait, atLeast, grace app.DurationFlag
	holder                    string
}

func lockRunCommand(a *app.App) *cobra.Command {
	f := lockFlags{ttl: app.DurationFlag{Duration: time.Minute}, grace: app.DurationFlag{Duration: 10 * time.Second}}
	cmd := &cobra.Command{
		Use: "run NAME [flags] -- COMMAND [ARG]…", DisableFlagsInUseLine: true, Short: "Run a command while it holds " +
			"a lock",
		Long: `Takes the lock, runs the command, gives the lock back, and exits as the command did: with its
code, or 128+n if signal n ended it. If somebody else holds the lock nothing is run: exit 11.

While the command runs the lock is renewed at a third of its TTL. If it is lost (the database could
not be reached for so long, this machine stood still, or an operator took it) the command and all of
its process group get SIGTERM, after the grace SIGKILL, and the exit code is 11. Signals
that we get are passed on. On a terminal the command stays in its foreground group, and only itself
is ended.

LEDGERD_FENCE in the command's environment is the lock's fencing number, greater than that of every
earlier holder. A command that writes elsewhere should hand it on, where what has a smaller one than was
seen is refused: nothing else stops a holder that is frozen for longer than the TTL.

The ledger must exist.`,
		Example: `  ledgerd lock run nightly-mail --ttl 10m -- ./send.sh
  ledgerd lock run deploy --wait 5m --at-least 1m -- make deploy`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0:
				return failure.Usage("usage", "", "%s: which lock?\nusage: %s", cmd.CommandPath(), cmd.UseLine())
			case dash < 0 || dash == len(args):
				return failure.Usage("usage", "ledgerd lock run "+shell.Quote(args[0])+" -- ./send.sh",
					"%s: the command to run comes after --", cmd.CommandPath())
			case dash != 1:
				return failure.Usage("usage", "", "%s: one name before --, not %d\nusage: %s", cmd.CommandPath(), dash,
					cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return lockRun(cmd.Context(), a, args[0], args[1:], f)
		},
	}
	fl := cmd.Flags()
	fl.Var(&f.ttl, "ttl", "how long the lock outlives us if we die, 1s … 1d")
	fl.Var(&f.wait, "wait", "how long to wait for another holder")
	fl.Var(&f.atLeast, "at-least",
		"keep the lock this long, however fast the command is: for schedules on clocks that differ")
	fl.StringVar(&f.holder, "holder", "", "`name` shown to others (default: host/process)")
	fl.Var(&f.grace, "grace", "time between SIGTERM and SIGKILL when the lock is lost")
	return cmd
}

func lockRun(ctx context.Context, a *app.App, name string, argv []string, f lockFlags) error {
	if f.ttl.Duration < bounds.MinTTL {
		return failure.Usage("bad_flag", "", "--ttl %s: at least %s", f.ttl.Duration, bounds.MinTTL)
	}
	if f.grace.Duration < 0 {
		return failure.Usage("bad_flag", "", "--grace %s: must not be negative", f.grace.Duration)
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return failure.Usage("no_command", "", "cannot run %s: %v", argv[0], errors.Unwrap(err))
	}
	f.holder = cmp.Or(f.holder, kinds.Process())
	l, err := a.OpenDatabase(ctx, app.ToWork)
	if err != nil {
		return err
	}
	defer l.Close()
	m := locks.New(l.Ledger)
	held, lock, err := m.Acquire(ctx, name, locks.Options{Holder: f.holder, TTL: f.ttl.Duration,
		AtLeast: f.atLeast.Duration, Wait: f.wait.Duration})
	if err != nil {
		return explainLock(err)
	}
	defer func() {
		leaving, cancel := context.WithTimeout(context.Background(), f.ttl.Duration)
		defer cancel()
		if err := m.Release(leaving, lock); err != nil {
			fmt.Fprintf(a.Stderr, "warning: lock %s could not be given back: %s\n  it ends by itself within %s\n", report.Safe(name),
				report.Safe(err.Error()), f.ttl.Duration)
		}
	}()
	code, err := runLocked(held, a, lock, argv, f.grace.Duration)
	switch {
	case errors.Is(err, locks.ErrLost):
		return failure.New(failure.ExitTaken, "lock_lost", fmt.Sprintf("lock %q was lost while the command ran, so it was stopped",
			name), "what it did may have met with what the next holder does: "+lockHint)
	case err != nil:
		return err
	case code != failure.ExitOK:
		return failure.Status(code)
	}
	return nil
}

// explainLock explains why a lock was not acquired.
func explainLock(err error) error {
	if held, ok := errors.AsType[*locks.HeldError](err); ok {
		message := fmt.Sprintf("lock %q is held by %s since %s", held.Name, held.Holder, report.Local(held.Since))
		return failure.New(failure.ExitTaken, "held", message,
			fmt.Sprintf("until %s unless renewed; nothing was run\nall locks: %s   wait for it: --wait 5m",
				report.Local(held.Until), lockHint))
	}
	return app.FieldError(err, "invalid", lockNames)
}

// environment returns the environment of this process with the fencing number of the lock.
func environment(l *locks.Lock) []string {
	const fence = "LEDGERD_FENCE="
	env := []string{}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, fence) { // this process may run under another lock
			env = append(env, v)
		}
	}
	return append(env, fmt.Sprint(fence, l.Fence))
}
