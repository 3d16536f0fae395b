package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

func (a *app) lockCommand() *cobra.Command {
	return group(groupWork, "lock", "Run a command under a named lock, and see who holds which", a.lockRunCommand(), a.lockLsCommand(), a.lockReleaseCommand())
}

// lockFlags are the flags of lock run.
type lockFlags struct {
	ttl, wait, atLeast, grace duration
	holder                    string
	conflict                  int
}

func (a *app) lockRunCommand() *cobra.Command {
	f := lockFlags{ttl: duration{time.Minute}, grace: duration{10 * time.Second}, conflict: exitTaken}
	cmd := &cobra.Command{
		Use: "run NAME [flags] -- COMMAND [ARG]…", DisableFlagsInUseLine: true, Short: "Run a command while nobody else holds the lock",
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
  ledgerd lock run deploy --wait 5m --at-least 1m -E 0 -- make deploy`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch dash := cmd.ArgsLenAtDash(); {
			case len(args) == 0:
				return usage("usage", "", "%s: which lock?\nusage: %s", cmd.CommandPath(), cmd.UseLine())
			case dash < 0 || dash == len(args):
				return usage("usage", "ledgerd lock run "+shell.Quote(args[0])+" -- ./send.sh", "%s: the command to run comes after --", cmd.CommandPath())
			case dash != 1:
				return usage("usage", "", "%s: one name before --, not %d\nusage: %s", cmd.CommandPath(), dash, cmd.UseLine())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.lockRun(cmd.Context(), args[0], args[1:], f)
		},
	}
	fl := cmd.Flags()
	fl.Var(&f.ttl, "ttl", "how long the lock outlives us if we die, 1s … 1d")
	fl.Var(&f.wait, "wait", "how long to wait for another holder")
	fl.Var(&f.atLeast, "at-least", "keep the lock this long, however fast the command is: for schedules on clocks that differ")
	fl.StringVar(&f.holder, "holder", "", "`name` shown to others (default: host/process)")
	fl.IntVarP(&f.conflict, "conflict-exit-code", "E", f.conflict, "exit with this `code` instead of 11")
	fl.Var(&f.grace, "grace", "time between SIGTERM and SIGKILL when the lock is lost")
	return cmd
}

func (a *app) lockRun(ctx context.Context, name string, argv []string, f lockFlags) error {
	if f.conflict < 0 || f.conflict > 255 {
		return usage("bad_flag", "", "-E %d: must be 0 … 255", f.conflict)
	}
	if f.grace.Duration < 0 {
		return usage("bad_flag", "", "--grace %s: must not be negative", f.grace.Duration)
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return usage("no_command", "", "cannot run %s: %v", argv[0], errors.Unwrap(err))
	}
	if f.holder == "" {
		f.holder = process()
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	m := locks.New(l.Ledger)
	held, lock, err := m.Acquire(ctx, name, locks.Options{Holder: f.holder, TTL: f.ttl.Duration, AtLeast: f.atLeast.Duration, Wait: f.wait.Duration})
	if err != nil {
		return a.explainLock(err, f)
	}
	defer func() {
		leaving, cancel := context.WithTimeout(context.Background(), f.ttl.Duration)
		defer cancel()
		if err := m.Release(leaving, lock); err != nil {
			fmt.Fprintf(a.stderr, "warning: lock %s could not be given back: %s\n  it ends by itself within %s\n", name, report.Safe(err.Error()), f.ttl.Duration)
		}
	}()
	code, err := a.runLocked(held, lock, argv, f.grace.Duration)
	switch {
	case errors.Is(err, locks.ErrLost):
		return fail(f.conflict, "lock_lost", fmt.Sprintf("lock %q was lost while the command ran, so it was stopped", name), "what it did may have met with what the next holder does: "+lockHint)
	case err != nil:
		return err
	case code != exitOK:
		return status(code)
	}
	return nil
}

const lockHint = "ledgerd lock ls"

// explainLock puts into words why the lock was not had.
func (a *app) explainLock(err error, f lockFlags) error {
	if held, ok := errors.AsType[*locks.HeldError](err); ok {
		p := a.printer()
		message := fmt.Sprintf("lock %q is held by %s since %s", held.Name, held.Holder, p.Local(held.Since))
		return fail(f.conflict, "held", message, fmt.Sprintf("until %s unless renewed; nothing was run\nall locks: %s   wait for it: --wait 5m", p.Local(held.Until), lockHint))
	}
	return lockError(err)
}

// lockError names the flag, or the argument, instead of the field.
func lockError(err error) error {
	if bad, ok := errors.AsType[*ledger.InvalidError](err); ok && bad.Field == "name" {
		return usage("invalid", "", "name of the lock: %s", bad.Reason)
	}
	return policyError(err)
}

// lockRow is a held lock.
type lockRow struct {
	Name   string      `json:"name"`
	Holder string      `json:"holder"`
	Fence  int64       `json:"fence"`
	Since  report.Time `json:"since"`
	Until  report.Time `json:"until"`
}

func newLockRow(h locks.HeldError) lockRow {
	return lockRow{h.Name, h.Holder, h.Fence, report.Time(h.Since), report.Time(h.Until)}
}

func (a *app) lockLsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "ls", Short: "List the locks that are held", Args: arguments(0, 0),
		Long: `Lists locks by name. Fields: name, holder, fence, since, until. A lock is held until then unless it
is renewed; one that was given back early is kept for its --at-least.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer l.Close()
			held, err := locks.New(l.Ledger).Held(cmd.Context())
			if err != nil {
				return err
			}
			rows := make([]lockRow, len(held))
			for i := range held {
				rows[i] = newLockRow(held[i])
			}
			n, err := report.List(a.printer(), each(rows))
			if err == nil && n == 0 && a.errorOnEmpty {
				return status(exitEmpty)
			}
			return err
		},
	}
}

// lockReleased is what lock release prints.
type lockReleased struct {
	lockRow
	Released bool `json:"released"`
}

func (a *app) lockReleaseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "release NAME", Short: "Take a lock from its holder", Args: arguments(1, 1),
		Long: `Takes a lock from whoever holds it, for when its holder is known to be gone and its TTL is long. A
holder that still runs learns of it after a third of its TTL, and until then runs beside the next one.
Asks, on a terminal; elsewhere that takes -y. It goes into the ledger's journal.

With -o json: {"name","holder","fence","since","until","released"}; released is false if nobody held it.`,
		Example: "  ledgerd lock release nightly-mail",
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.lockRelease(cmd.Context(), args[0])
		},
	}
}

func (a *app) lockRelease(ctx context.Context, name string) error {
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	m := locks.New(l.Ledger)
	all, err := m.Held(ctx)
	if err != nil {
		return err
	}
	for _, h := range all {
		if h.Name == name {
			question := fmt.Sprintf("take lock %q from %s, who has it since %s?", name, h.Holder, a.printer().Local(h.Since))
			if err := a.confirm(question, "who holds what: "+lockHint); err != nil {
				return err
			}
		}
	}
	from, err := m.ForceRelease(ctx, actor(), name)
	if err != nil {
		return lockError(err)
	}
	if from == nil {
		err = one(a, lockReleased{lockRow: lockRow{Name: name}}, fmt.Sprintf("nobody holds lock %q", name))
		if err == nil && a.errorOnEmpty {
			return status(exitEmpty)
		}
		return err
	}
	return one(a, lockReleased{newLockRow(*from), true}, fmt.Sprintf("lock %q was taken from %s", name, from.Holder))
}

// environment is that of a command that runs under a lock.
func environment(l *locks.Lock) []string {
	const fence = "LEDGERD_FENCE="
	env := []string{}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, fence) { // we may run under another lock ourselves
			env = append(env, v)
		}
	}
	return append(env, fmt.Sprint(fence, l.Fence))
}
