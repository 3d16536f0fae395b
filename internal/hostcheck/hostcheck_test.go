package hostcheck

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger/finding"
)

// The findings about this machine have the same limits as its own tools print.
func TestExamine(t *testing.T) {
	found := map[string]finding.Finding{}
	for _, f := range Examine() {
		found[f.Check] = f
		if f.What == "" || (f.Level != finding.LevelOK) != (f.Why != "" && f.Fix != "") {
			t.Errorf("%+v: only what is not fine has a reason and a remedy", f)
		}
	}
	for check, command := range map[string]string{"files": "ulimit -Hn",
		"inotify": "cat /proc/sys/fs/inotify/max_user_watches"} {
		if check == "inotify" && runtime.GOOS != "linux" {
			continue
		}
		out, err := exec.Command("sh", "-c", command).Output()
		must.OK(t, err)
		if n := strings.TrimSpace(string(out)); !strings.Contains(found[check].What, " "+n+" ") {
			t.Errorf("%s reports %q, and the system %s", check, found[check].What, n)
		}
	}
}
