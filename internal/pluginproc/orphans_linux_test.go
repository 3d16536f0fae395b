package pluginproc

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// A plugin of these programs whose host is gone is found; one whose host lives is not, nor one of
// another machine's programs or started by hand, nor any other process.
func TestOrphans(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "lt") // the paths of sockets are short
	must.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	gone, mine := filepath.Join(dir, dirPrefix+"1"), filepath.Join(dir, "ledgerd-plugin-mine")
	must.OK(t, os.Mkdir(gone, 0o700))
	held, err := newSocketDir(dir)
	must.OK(t, err)
	defer held.remove()
	for name, text := range map[string]string{"mine": "#!/bin/sh\nread x\n", "other": "#!/bin/sh\nread x\n"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, "ledgerd-plugin-"+name), []byte(text), 0o755))
	}
	start := func(program string, env ...string) int {
		t.Helper()
		cmd := exec.Command(program)
		cmd.Env = append(os.Environ(), env...)
		stdin, err := cmd.StdinPipe()
		must.OK(t, err)
		must.OK(t, cmd.Start())
		t.Cleanup(func() {
			_ = stdin.Close()
			_ = cmd.Wait() // it reads a line that does not come
		})
		return cmd.Process.Pid
	}
	const cookie = wire.CookieKey + "=" + wire.CookieValue
	socket := func(dir string) string { return socketDirKey + "=" + filepath.Join(dir, "plugin-dir2") }
	want := []int{
		start(mine, cookie, socket(gone)),                              // one without a holder
		start(mine, cookie, socket(filepath.Join(dir, dirPrefix+"3"))), // one that was swept
	}
	start(mine, cookie, socket(held.path))
	start(mine, cookie)
	start(mine, socket(gone))
	start(filepath.Join(dir, "ledgerd-plugin-other"), cookie, socket(gone))
	link := filepath.Join(dir, "link")
	must.OK(t, os.Symlink(mine, link))
	var got []int
	for _, o := range Orphans([]string{link}) {
		got = append(got, o.PID)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %v, not %v", got, want)
	}
}

// Numbers of processes that are others' by now do not count.
func TestMemoryOfStrangers(t *testing.T) {
	me, ours := os.Getpid(), syscall.Getpgrp()
	if got := memoryOf(ours, []int{me}); got <= 0 {
		t.Errorf("%d bytes of our own", got)
	}
	if got := memoryOf(ours+1, []int{me, 1<<22 + 1}); got != 0 {
		t.Errorf("%d bytes of processes that are not in the group", got)
	}
}
