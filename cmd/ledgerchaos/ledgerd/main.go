//go:build unix

// Command ledgerd is the program as the chaos harness runs it. It writes a history of its calls of the ledger, and
// has two plugins that misbehave as their items demand. Items of chaos may be repeated, items of chaosmail may
// not. The build tag chaos gives it failpoints.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/internal/recorder"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk"
)

func main() {
	cli.Main(app.Program{Store: instrument, Ended: observed, Plugins: map[string]func() *sdk.Plugin{
		"chaos":     func() *sdk.Plugin { return misbehaving("chaos", sdk.OnLostRepeat) },
		"chaosmail": func() *sdk.Plugin { return misbehaving("chaosmail", sdk.OnLostDoubt) },
	}})
}

// instrument puts a recorder in front of a store, if this process has a history.
func instrument(s ledger.Store) ledger.Store {
	if log := history.Ours(); log != nil {
		return recorder.New(s, log)
	}
	return s
}

// observed records in the history that the ledger refused the result of an attempt.
func observed(e worker.Event) {
	if errors.Is(e.Err, ledger.ErrLeaseLost) && e.Result.Outcome != ledger.OutcomeReleased {
		history.Ours().Refused(e.Lease.ID, e.Lease.Attempt, e.Lease.LockID.String())
	}
}

// chaosConfig has no settings, so that one process may work both kinds.
type chaosConfig struct {
	file *os.File // each effect is appended to it
}

// Open opens the file effects in HOME, the folder of the run.
func (c *chaosConfig) Open(context.Context) (err error) {
	c.file, err = os.OpenFile(filepath.Join(os.Getenv("HOME"), "effects"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return err
}

// Close closes it.
func (c *chaosConfig) Close() error { return c.file.Close() }

// chaosIn is the payload.
type chaosIn struct {
	Name  string `json:"name" input:"line" doc:"what to do it to"`
	How   string `json:"how" default:"done" doc:"how it ends"`
	MS    int    `json:"ms" schema:"min=0" doc:"how long it takes, milliseconds"`
	Times int64  `json:"times" schema:"min=0" doc:"attempts that misbehave; those after them are done; 0: all"`
}

// misbehaving makes a plugin that does what the payload's how names.
func misbehaving(name string, onLost sdk.OnLost) *sdk.Plugin {
	p := sdk.New(name, "0.1.0", func(ctx context.Context, cfg *chaosConfig, it sdk.Item[chaosIn]) (string, error) {
		in := it.Payload
		select {
		case <-time.After(time.Duration(in.MS) * time.Millisecond):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
		how := in.How
		if in.Times > 0 && it.Attempt > in.Times {
			how = "done"
		}
		if how == "kill-host-before" {
			_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
			select {}
		}
		// One write, so that a process that dies leaves complete lines.
		if _, err := fmt.Fprintf(cfg.file, "%s\t%d\t%s\t%s\n", it.Key, it.Attempt, it.IdempotencyKey, how); err != nil {
			return "", err
		}
		return in.Name, misbehave(ctx, how, it)
	})
	p.Doc = "Misbehaves as its items ask for."
	p.Concurrency = 8
	p.OnLost = onLost
	p.Emits = []string{"chaos"}
	return p
}

// misbehave does after the effect what the item demands.
func misbehave(ctx context.Context, how string, it sdk.Item[chaosIn]) error {
	self := os.Getpid()
	switch how {
	case "done":
	case "skip":
		return sdk.Skip("nothing to do")
	case "fail":
		return sdk.Code("odd", errors.New("it is odd"))
	case "permanent":
		return sdk.Permanent(sdk.Code("bad", errors.New("it is bad")))
	case "doubt":
		return sdk.Doubt(errors.New("not known"))
	case "snooze":
		return sdk.Snooze(200*time.Millisecond, "not now")
	case "emit":
		return it.Emit(sdk.Child{Kind: "chaos", Key: "child", Payload: chaosIn{Name: "child", How: "done"}})
	case "panic":
		panic("as told")
	case "exit":
		os.Exit(3)
	case "crash":
		_ = syscall.Kill(self, syscall.SIGSEGV)
		select {}
	case "kill":
		_ = syscall.Kill(self, syscall.SIGKILL)
		select {}
	case "freeze":
		_ = syscall.Kill(self, syscall.SIGSTOP)
	case "hang": // ignores its context
		select {}
	case "slow":
		<-ctx.Done()
		return context.Cause(ctx)
	case "flood-stderr":
		line := strings.Repeat("x", 1<<10) + "\n"
		for range 20_000 {
			fmt.Fprint(os.Stderr, line)
		}
	case "long-line":
		fmt.Fprint(os.Stdout, strings.Repeat("y", 1<<20), "\n")
	case "hclog":
		fmt.Fprint(os.Stderr, "{\"@message\":1}\n")
	case "grandchild":
		c := exec.Command("sleep", "600")
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			return err
		}
		os.Exit(4)
	case "escape": // leaves a process in a session of its own
		c := exec.Command("sleep", "10")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			return err
		}
		os.Exit(5)
	case "fork", "grow", "leak":
		return exhaust(ctx, how)
	case "flood-log":
		for i := range 50_000 {
			it.Log.Info("noted", "line", i)
		}
	case "flood-progress":
		for i := range int64(500_000) {
			it.Progress(i, -i, "lines")
		}
	case "emit-undeclared":
		return it.Emit(sdk.Child{Kind: "mail", Key: "to everybody"})
	case "emit-huge":
		return it.Emit(sdk.Child{Kind: "chaos", Key: "huge", Payload: strings.Repeat("x", 2<<20)})
	case "kill-host": // after its effect, before its report
		_ = syscall.Kill(os.Getppid(), syscall.SIGKILL)
		select {}
	default:
		return sdk.Permanent(fmt.Errorf("how: %q is not known", how))
	}
	return nil
}

// takenMemory and takenFiles are never released.
var (
	takenMemory [][]byte
	takenFiles  []*os.File
)

// exhaust takes more processes, files or memory than the config of the run allows (see chaostest.run.config).
func exhaust(ctx context.Context, what string) error {
	switch what {
	case "fork":
		for range 100 {
			if err := exec.Command("sleep", "60").Start(); err != nil {
				return err
			}
		}
	case "leak":
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				return sdk.Code("leak", err)
			}
			takenFiles = append(takenFiles, f)
		}
	case "grow":
		for range 30 {
			takenMemory = append(takenMemory, bytes.Repeat([]byte("z"), 16<<20))
		}
	}
	<-ctx.Done() // the limit may end the process earlier
	return context.Cause(ctx)
}
