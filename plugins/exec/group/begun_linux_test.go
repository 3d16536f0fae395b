package group

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/exec/group/grouptest"
)

const beginsEnv = "LEDGERD_TEST_BEGINS"

func TestMain(m *testing.M) {
	if os.Getenv(beginsEnv) == "" {
		os.Exit(m.Run())
	}
	fmt.Fprintln(os.Stderr, begins())
	os.Exit(1)
}

// never is a pipe to a keeper that takes nothing.
type never struct{ io.WriteCloser }

func (never) Write([]byte) (int, error) { select {} }

// begins begins a command of which the keeper does not learn.
func begins() error {
	k, err := NewKeeper()
	if err != nil {
		return err
	}
	tmp, err := k.Temporary()
	if err != nil {
		return err
	}
	fmt.Println("keeper", k.cmd.Process.Pid)
	cmd := exec.Command("sh", "-c", `setsid sh -c 'echo left $$; exec sleep 600' & sh -c 'echo child $$; exec sleep 600' & wait`)
	cmd.Env, cmd.Stdout = append(os.Environ(), "TMPDIR="+tmp), os.Stdout
	k.stdin = never{k.stdin}
	_, _, err = k.Run(context.Background(), cmd, time.Minute, nil)
	return err
}

// A process that is killed before its command is kept leaves nothing of it but what has left its group.
func TestKilledBeforeACommandIsKept(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	exe, err := os.Executable()
	must.OK(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), beginsEnv+"=1")
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	pids := map[string]int{}
	for range 3 {
		var name string
		var pid int
		_, err := fmt.Fscanln(out, &name, &pid)
		must.OK(t, err)
		pids[name] = pid
	}
	t.Cleanup(func() { _ = syscall.Kill(pids["left"], syscall.SIGKILL) })
	must.OK(t, cmd.Process.Kill())
	must.Do(t)(cmd.Process.Wait())
	grouptest.Gone(t, pids["keeper"], pids["child"])
	if !grouptest.Alive(t, pids["left"]) {
		t.Error("a process that has a session of its own is gone")
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
