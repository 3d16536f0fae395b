//go:build unix

package group

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/exec/group/grouptest"
)

// A process that is killed leaves neither processes nor files; and nothing ends but what is its own.
func TestKeeper(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	k, err := NewKeeper()
	must.OK(t, err)
	if err := os.Remove(k.folder); err != nil { // as those do who clean up
		t.Fatal(err)
	}
	tmp, err := k.Temporary()
	must.OK(t, err)
	locked(t, tmp)
	var all []*exec.Cmd
	for range 5 {
		cmd := group(t)
		all = append(all, cmd)
		must.OK(t, k.add(cmd.Process.Pid))
	}
	other := group(t)
	for _, i := range []int{2, 0, 4} {
		k.del(all[i].Process.Pid)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		must.OK(t, k.cmd.Process.Signal(s))
	}
	must.OK(t, k.Close())
	grouptest.Gone(t, all[1].Process.Pid, all[3].Process.Pid)
	for _, cmd := range []*exec.Cmd{all[0], all[2], all[4], other} {
		if !grouptest.Alive(t, cmd.Process.Pid) {
			t.Errorf("process %d, which had ended for us, is gone", cmd.Process.Pid)
		}
	}
	if _, err := os.Stat(k.folder); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}

// The event that ends a process and all beside it, such as the end of its service, may come the moment that it
// has begun.
func TestKeeperIsSignalledAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for range 10 {
		k, err := NewKeeper()
		must.OK(t, err)
		must.OK(t, errors.Join(k.cmd.Process.Signal(syscall.SIGTERM), k.Close()))
	}
}

// group is a process group of its own.
func group(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must.OK(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// locked makes a file in a read-only folder.
func locked(t *testing.T, below string) {
	t.Helper()
	dir := filepath.Join(below, "locked")
	must.OK(t, errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o400),
		os.Chmod(dir, 0o500)))
}

// One that is killed is replaced, and forgets nothing.
func TestKeeperIsKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	k, err := NewKeeper()
	must.OK(t, err)
	one, two, done := group(t), group(t), group(t)
	must.OK(t, errors.Join(k.add(one.Process.Pid), k.add(done.Process.Pid)))
	must.OK(t, k.cmd.Process.Kill())
	must.Do(t)(k.cmd.Process.Wait())
	k.del(done.Process.Pid)
	must.OK(t, k.add(two.Process.Pid))
	must.OK(t, k.Close())
	grouptest.Gone(t, one.Process.Pid, two.Process.Pid)
	if !grouptest.Alive(t, done.Process.Pid) {
		t.Error("a process that had ended for us is gone")
	}
}

// root may remove everything anyway.
func TestRemoveAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "item")
	must.OK(t, os.Mkdir(dir, 0o700))
	locked(t, dir)
	must.OK(t, RemoveAll(dir))
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}
