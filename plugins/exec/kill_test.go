package exec

import (
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
		soon       bool // no SIGKILL is needed
	}{
		{"cancelled", "exit 3", sdktest.Cancel, "cancelled", true},
		{"cancelled, says that it is done", "exit 0", sdktest.Cancel, "cancelled", true},
		{"cancelled, without a trap", "-", sdktest.Cancel, "cancelled", true},
		{"cancelled, deaf", "", sdktest.Cancel, "cancelled", false},
		{"lease lost", "-", sdktest.LoseLease, "released", true},
		{"plugin killed", "", sdktest.KillPlugin, "crashed", true},
		{"host gone", "", sdktest.KillHost, "lost", true},
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
	h := host(t, shell(`echo progress 1; kill -s STOP $$`))
	began := time.Now()
	if r := h.Run(sdktest.Task{Key: "k", Fault: sdktest.Cancel, AtProgress: 1}); r.Outcome != "cancelled" || time.Since(began) > patience {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
}

// A plugin that is killed leaves neither processes nor files; and nothing ends but what is its own.
func TestKeeper(t *testing.T) {
	group := func() *osexec.Cmd {
		cmd := osexec.Command("sleep", "600")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	t.Setenv("TMPDIR", t.TempDir())
	k, err := startKeeper()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(k.folder); err != nil { // as those do who clean up
		t.Fatal(err)
	}
	tmp, err := k.temporary()
	if err != nil || os.WriteFile(filepath.Join(tmp, "file"), nil, 0o400) != nil {
		t.Fatal(err)
	}
	var all []*osexec.Cmd
	for range 5 {
		cmd := group()
		all = append(all, cmd)
		if err := k.add(cmd.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	other := group()
	for _, i := range []int{2, 0, 4} {
		if err := k.del(all[i].Process.Pid); err != nil {
			t.Fatal(err)
		}
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
