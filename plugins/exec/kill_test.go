package exec

import (
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// family is a script that starts a child and a grandchild, writes all their numbers into the file
// $PIDS, and waits. What they do at SIGTERM says $1.
const family = `
trap "$TRAP" TERM
sh -c 'trap "$TRAP" TERM; sh -c "trap \"\$TRAP\" TERM; echo \$\$ >> \"\$PIDS\"; while :; do sleep 600; done" & echo $$ >> "$PIDS"; while :; do sleep 600 & wait; done' &
echo $$ >> "$PIDS"
while [ "$(wc -l < "$PIDS")" -lt 3 ]; do sleep 0.01; done
echo progress 1/2
while :; do sleep 600 & wait; done
`

func TestEverybodyIsStopped(t *testing.T) {
	for _, tt := range []struct {
		name, trap string
		fault      sdktest.Fault
		outcome    string
	}{
		{"cancelled", "exit 3", sdktest.Cancel, "cancelled"},
		{"cancelled, says that it is done", "exit 0", sdktest.Cancel, "cancelled"},
		{"cancelled, without a trap", "-", sdktest.Cancel, "cancelled"},
		{"cancelled, deaf", "", sdktest.Cancel, "cancelled"},
		{"lease lost", "-", sdktest.LoseLease, "released"},
		{"plugin killed", "", sdktest.KillPlugin, "crashed"},
		{"host gone", "", sdktest.KillHost, "lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			h := host(t, shell(family), "env", map[string]string{"PIDS": file, "TRAP": strings.Replace(tt.trap, "-", "kill -s KILL $$", 1)}, "grace", "1s")
			r := h.Run(sdktest.Task{Key: "k", Fault: tt.fault, AtProgress: 1})
			if r.Outcome != tt.outcome {
				t.Errorf("%+v, want %s", r, tt.outcome)
			}
			gone(t, pids(t, file, 3))
		})
	}
}

// What a command leaves behind is killed, and the item is done.
func TestWhatIsLeftIsKilled(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	r := one(t, `sleep 600 & echo $! > "$PIDS"; trap '' TERM; sleep 600 & echo $! >> "$PIDS"; echo done`, "env", map[string]string{"PIDS": file})
	if r.Outcome != "done" || string(r.Output) != `"done"` {
		t.Errorf("%+v", r)
	}
	gone(t, pids(t, file, 2))
}

// While it has the time, what a command has started may end in good order though the command itself,
// a shell, is gone.
func TestGraceIsForAll(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tidy")
	script := `sh -c 'trap "sleep 0.2; echo tidy > \"\$FILE\"; exit" TERM; echo progress 1; while :; do sleep 600 & wait; done' & wait`
	h := host(t, shell(script), "env", map[string]string{"FILE": file}, "grace", "4s")
	if r := h.Run(sdktest.Task{Key: "k", Fault: sdktest.Cancel, AtProgress: 1}); r.Outcome != "cancelled" {
		t.Errorf("%+v", r)
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "tidy\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// A command that is stopped, as by Ctrl-Z, ends like any other.
func TestStoppedCommand(t *testing.T) {
	t.Parallel()
	h := host(t, shell(`echo progress 1; kill -s STOP $$`))
	began := time.Now()
	if r := h.Run(sdktest.Task{Key: "k", Fault: sdktest.Cancel, AtProgress: 1}); r.Outcome != "cancelled" || time.Since(began) > patience {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
}

// A plugin that is killed leaves neither processes nor files; and nothing ends but what is its own.
func TestKeeper(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	k, err := startKeeper()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(k.folder); err != nil { // as those do who clean up
		t.Fatal(err)
	}
	tmp, err := k.temporary()
	if err != nil {
		t.Fatal(err)
	}
	locked(t, tmp)
	var all []*osexec.Cmd
	for range 5 {
		cmd := group(t)
		all = append(all, cmd)
		if err := k.add(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	other := group(t)
	for _, i := range []int{2, 0, 4} {
		k.del(all[i].Process.Pid)
	}
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		if err := k.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.close(); err != nil {
		t.Error(err)
	}
	gone(t, []int{all[1].Process.Pid, all[3].Process.Pid})
	for _, cmd := range []*osexec.Cmd{all[0], all[2], all[4], other} {
		if !alive(t, cmd.Process.Pid) {
			t.Errorf("process %d, which had ended for the plugin, is gone", cmd.Process.Pid)
		}
	}
	if _, err := os.Stat(k.folder); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}

// What ends a plugin together with all that is beside it, such as the end of its service, may come the moment
// that it has begun.
func TestKeeperIsSignalledAtOnce(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for range 10 {
		k, err := startKeeper()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(k.cmd.Process.Signal(syscall.SIGTERM), k.close()); err != nil {
			t.Fatal(err)
		}
	}
}

// group is a process group of its own.
func group(t *testing.T) *osexec.Cmd {
	t.Helper()
	cmd := osexec.Command("sleep", "600")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// locked makes a file in a folder that nobody may write to.
func locked(t *testing.T, below string) {
	t.Helper()
	dir := filepath.Join(below, "locked")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "file"), nil, 0o400), os.Chmod(dir, 0o500)); err != nil {
		t.Fatal(err)
	}
}

// One that is killed is replaced, and forgets nothing.
func TestKeeperIsKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	k, err := startKeeper()
	if err != nil {
		t.Fatal(err)
	}
	one, two, done := group(t), group(t), group(t)
	if err := errors.Join(k.add(one.Process.Pid), k.add(done.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if err := k.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := k.cmd.Process.Wait(); err != nil {
		t.Fatal(err)
	}
	k.del(done.Process.Pid)
	if err := k.add(two.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if err := k.close(); err != nil {
		t.Error(err)
	}
	gone(t, []int{one.Process.Pid, two.Process.Pid})
	if !alive(t, done.Process.Pid) {
		t.Error("a process that had ended for the plugin is gone")
	}
}

// Who is root may remove everything anyway.
func TestRemoveAll(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "item")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	locked(t, dir)
	if err := removeAll(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder is there: %v", err)
	}
}
