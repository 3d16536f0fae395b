package source

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/must"
)

// TestForeignFile: the file of another user is moved and not copied, though the system allows no link to it.
func TestForeignFile(t *testing.T) {
	inbox, away := t.TempDir(), t.TempDir()
	path := filepath.Join(inbox, "a.csv")
	write(t, path, "1")
	info, err := os.Stat(path)
	must.OK(t, err)
	for _, folder := range []string{inbox, away, filepath.Dir(inbox)} { // all are of this test
		must.OK(t, os.Chmod(folder, 0o777))
	}
	if os.Getuid() == 0 { // else the test runs with its own file
		runtime.LockOSThread() // the thread ends with the test
		must.OK(t, unix.Setfsuid(otherUser))
	}
	done, err := putter{inbox, away}.putAway(t.Context(), "a.csv", intake.Version(info))
	must.OK(t, unix.Setfsuid(os.Getuid()))
	moved, there := os.Stat(filepath.Join(away, "a.csv"))
	if err != nil || !done || there != nil || !os.SameFile(info, moved) {
		t.Errorf("%v, %v, %v; want the same file", done, err, there)
	}
}

// TestCopyKeepsMode: a copy has the mode and the owner of its file, in spite of the umask.
func TestCopyKeepsMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	write(t, path, "1")
	giveAway(t, path)
	info, err := os.Stat(path)
	must.OK(t, err)
	away := t.TempDir()
	defer syscall.Umask(syscall.Umask(0o077))
	must.OK(t, moveByCopy(t.Context(), root(t, filepath.Dir(path)), "a.csv", info, root(t, away), "a.csv"))
	copied, err := os.Stat(filepath.Join(away, "a.csv"))
	must.OK(t, err)
	if copied.Mode() != info.Mode() || copied.Sys().(*syscall.Stat_t).Uid != info.Sys().(*syscall.Stat_t).Uid {
		t.Errorf("%v, want %v and the owner", copied.Mode(), info.Mode())
	}
}
