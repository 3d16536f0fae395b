package group

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/exec/group/grouptest"
)

// script is a command that runs a script. $FILE is the path of the file that is returned.
func script(t *testing.T, text string) (cmd *exec.Cmd, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "file")
	cmd = exec.Command("sh", "-c", text)
	cmd.Env = append(os.Environ(), "FILE="+file)
	return cmd, file
}

// pid reads the number that a script has written into a file.
func pid(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	must.OK(t, err)
	n, err := strconv.Atoi(string(bytes.TrimSpace(text)))
	must.OK(t, err)
	return n
}

func newKeeper(t *testing.T) *Keeper {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	k, err := NewKeeper()
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, k.Close()) })
	return k
}

// A command that ends by itself takes with it what it has left behind.
func TestRun(t *testing.T) {
	k := newKeeper(t)
	cmd, file := script(t, `trap '' TERM; sleep 600 & echo $! > "$FILE"; exit 7`)
	state, stopped, err := k.Run(t.Context(), cmd, time.Minute, nil)
	if err != nil || stopped || state.ExitCode() != 7 || len(k.groups) != 0 {
		t.Errorf("%v, stopped %v, %v, %d groups", state, stopped, err, len(k.groups))
	}
	grouptest.Gone(t, pid(t, file))
}

// One that is asked to end may do so in good order; one that does not is killed after its grace.
func TestRunIsToldToEnd(t *testing.T) {
	for _, tt := range []struct {
		name, trap string
		grace      time.Duration
		want       string
	}{
		{"obeys", "exit 3", time.Minute, "exit status 3"},
		{"deaf", "", 50 * time.Millisecond, "signal: killed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKeeper(t)
			// A child that is forked and has not begun its program yet would lose the signal.
			cmd, file := script(t, `trap "$TRAP" TERM; sh -c 'echo $$ > "$FILE"; echo; exec sleep 600' & while :; do wait; done`)
			cmd.Env = append(cmd.Env, "TRAP="+tt.trap)
			out, err := cmd.StdoutPipe()
			must.OK(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_, _ = out.Read(make([]byte, 1)) // the trap is set, and the child there
				cancel()
			}()
			state, stopped, err := k.Run(ctx, cmd, tt.grace, nil)
			if err != nil || !stopped || state.String() != tt.want {
				t.Errorf("%v, stopped %v, %v; want %s", state, stopped, err, tt.want)
			}
			grouptest.Gone(t, cmd.Process.Pid, pid(t, file))
			if err := out.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRunCannotStart(t *testing.T) {
	k := newKeeper(t)
	_, _, err := k.Run(t.Context(), exec.Command("/nowhere"), time.Second, nil)
	if !errors.Is(err, fs.ErrNotExist) || len(k.groups) != 0 {
		t.Errorf("%v, %d groups", err, len(k.groups))
	}
}

// A command that the keeper did not learn of is not left running.
func TestRunWithoutAShell(t *testing.T) {
	k := newKeeper(t)
	whole := k.folder
	must.OK(t, errors.Join(k.cmd.Process.Kill(), waited(k.cmd)))
	k.folder = "\x00" // no shell can be started with it
	cmd, _ := script(t, `exec sleep 600`)
	if _, _, err := k.Run(t.Context(), cmd, time.Second, nil); err == nil || len(k.groups) != 0 {
		t.Errorf("%v, %d groups", err, len(k.groups))
	}
	grouptest.Gone(t, cmd.Process.Pid)
	k.folder = whole
	cmd, _ = script(t, `exit 0`)
	if _, _, err := k.Run(t.Context(), cmd, time.Second, nil); err != nil {
		t.Errorf("with a shell again: %v", err)
	}
}

// waited waits for a process to have ended.
func waited(cmd *exec.Cmd) error {
	_, err := cmd.Process.Wait()
	return err
}
