//go:build unix

package group

import (
	"errors"
	"io/fs"
	"os/exec"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/exec/group/grouptest"
)

func newKeeper(t *testing.T) *Keeper {
	t.Helper()
	t.Cleanup(func() { goleak.VerifyNone(t) })
	k, err := NewKeeper()
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, k.Close()) })
	return k
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
	cmd := exec.Command("sleep", "600")
	if _, _, err := k.Run(t.Context(), cmd, time.Second, nil); err == nil || len(k.groups) != 0 {
		t.Errorf("%v, %d groups", err, len(k.groups))
	}
	grouptest.Gone(t, cmd.Process.Pid)
	k.folder = whole
	cmd = exec.Command("true")
	if _, _, err := k.Run(t.Context(), cmd, time.Second, nil); err != nil {
		t.Errorf("with a shell again: %v", err)
	}
}

// waited waits for a process to have ended.
func waited(cmd *exec.Cmd) error {
	_, err := cmd.Process.Wait()
	return err
}
