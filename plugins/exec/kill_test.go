package exec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/plugins/exec/group/grouptest"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// family is a script that starts a child and a grandchild, writes all their numbers into the file
// $PIDS, and waits. $1 is what they do at SIGTERM.
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
		{"cancelled, reports that it is done", "exit 0", sdktest.Cancel, "cancelled"},
		{"cancelled, without a trap", "-", sdktest.Cancel, "cancelled"},
		{"cancelled, deaf", "", sdktest.Cancel, "cancelled"},
		{"lease lost", "-", sdktest.LoseLease, "released"},
		{"plugin killed", "", sdktest.KillPlugin, "crashed"},
		{"host gone", "", sdktest.KillHost, "lost"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			file := filepath.Join(t.TempDir(), "pids")
			h := host(t, shell(family), "env", map[string]string{"PIDS": file, "TRAP": strings.Replace(tt.trap, "-",
				"kill -s KILL $$", 1)}, "grace", "1s")
			r := h.Run(sdktest.Task{Key: "k", Fault: tt.fault, AtProgress: 1})
			if r.Outcome != tt.outcome {
				t.Errorf("%+v, want %s", r, tt.outcome)
			}
			grouptest.Gone(t, pids(t, file, 3)...)
		})
	}
}

// Processes that a command leaves behind are killed, and the item is done.
func TestWhatIsLeftIsKilled(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pids")
	r := one(t, `sleep 600 & echo $! > "$PIDS"; trap '' TERM; sleep 600 & echo $! >> "$PIDS"; echo done`, "env",
		map[string]string{"PIDS": file})
	if r.Outcome != "done" || string(r.Output) != `"done"` {
		t.Errorf("%+v", r)
	}
	grouptest.Gone(t, pids(t, file, 2)...)
}

// Processes that a command has started have the grace to end in good order, although the command itself, a shell,
// has ended.
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
	if r := h.Run(sdktest.Task{Key: "k", Fault: sdktest.Cancel, AtProgress: 1}); r.Outcome != "cancelled" ||
		time.Since(began) > grouptest.Patience {
		t.Errorf("%+v after %v", r, time.Since(began))
	}
}
