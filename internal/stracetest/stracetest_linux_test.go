package stracetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
)

func TestCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace")
	must.OK(t, os.WriteFile(path, []byte(`7 fsync(3</f>) = -1 EIO (Input/output error) (INJECTED)
7 write(4<pipe:[1]>, "f(x) = 1", 8 <unfinished ...>
8 clock_nanosleep(CLOCK_REALTIME, 0, {tv_sec=9, tv_nsec=0}, NULL <unfinished ...>
7 <... write resumed>) = 8
7 exit_group(0) = ?
8 <... clock_nanosleep resumed> <unfinished ...>) = ?
8 +++ killed by SIGKILL +++
`), 0o600))
	want := []Call{
		{Name: "fsync", Args: "3</f>", Result: "-1 EIO (Input/output error) (INJECTED)"},
		{Name: "write", Args: `4<pipe:[1]>, "f(x) = 1", 8`, Result: "8", Begun: 1, Returned: 3},
		{Name: "clock_nanosleep", Args: "CLOCK_REALTIME, 0, {tv_sec=9, tv_nsec=0}, NULL <unfinished ...>", Begun: 2,
			Returned: -1},
		{Name: "exit_group", Args: "0", Begun: 4, Returned: -1},
	}
	if diff := cmp.Diff(want, Trace{path}.Calls(t)); diff != "" {
		t.Error(diff)
	}
}

// strace would pad so short a call.
func TestInjectedIntoAShortCall(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sync", "/")
	trace := Wrap(t, cmd, "-e", "trace=fsync", "-e", "inject=fsync:error=EIO")
	if err := cmd.Run(); err == nil {
		t.Error("fsync did not fail")
	}
	if calls := trace.Calls(t); len(calls) != 1 || !calls[0].Injected() {
		t.Errorf("%+v", calls)
	}
}
