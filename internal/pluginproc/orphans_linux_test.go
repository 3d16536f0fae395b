package pluginproc

import (
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// A plugin whose host ends without ending it is found; one whose host lives is not, nor is any
// other process.
func TestOrphans(t *testing.T) {
	cookie := append(os.Environ(), wire.CookieKey+"="+wire.CookieValue)
	start := func(env []string) int {
		t.Helper()
		host := exec.Command("sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!")
		host.Env = env
		out, err := host.Output()
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
		return pid
	}
	orphan, other := start(cookie), start(os.Environ())
	child := exec.Command("sleep", "600")
	child.Env = cookie
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = child.Process.Kill()
		_ = child.Wait()
	}()
	found := Orphans()
	is := func(pid int) bool {
		return slices.ContainsFunc(found, func(o Orphan) bool { return o.PID == pid })
	}
	if !is(orphan) || is(other) || is(child.Process.Pid) {
		t.Errorf("found %+v; the orphan is %d, not %d nor %d", found, orphan, other, child.Process.Pid)
	}
}
