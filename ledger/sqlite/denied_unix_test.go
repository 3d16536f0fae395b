//go:build unix

package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// A program waits for another program that makes the ledger, for a limited time. The limit does not apply to a ledger
// that it makes itself.
func TestOpenWaitsForOthersOnly(t *testing.T) {
	short := sqlite.Options{Wait: time.Nanosecond}
	mustOpen(t, newPath(t), short)
	path := newPath(t)
	held, err := os.Create(path + ".migrate")
	must.OK(t, err)
	defer held.Close()
	must.OK(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	if _, err := sqlite.Open(t.Context(), path, short); !errors.Is(err, ledger.ErrUnavailable) ||
		!strings.Contains(err.Error(), "locked by another process") {
		t.Errorf("another program makes the ledger: %v", err)
	}
}

// A file or folder that may not be written is named. The test may run as root, and root may write everything, so a
// child process tries it as another user.
func TestDenied(t *testing.T) {
	for name, prepare := range map[string]func(dir, path string) (message string, err error){
		"folder": func(dir, path string) (string, error) { return dir, os.Chmod(dir, 0o555) },
		"folder to be made": func(dir, path string) (string, error) {
			return dir, os.Chmod(filepath.Dir(dir), 0o555)
		},
		"file": func(dir, path string) (string, error) {
			if err := os.WriteFile(path, nil, 0o444); err != nil {
				return "", err
			}
			return path, os.Chmod(dir, 0o777)
		},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			must.OK(t, os.Chmod(filepath.Dir(top), 0o755))
			dir := filepath.Join(top, "d")
			path := filepath.Join(dir, "ledger.db")
			if name != "folder to be made" {
				must.OK(t, os.Mkdir(dir, 0o755))
			}
			message, err := prepare(dir, path)
			must.OK(t, err)
			c := childtest.New(t, "denied", path, message)
			if os.Getuid() == 0 {
				c.Path = "/proc/self/exe" // this binary by its link: the child's user may not enter its folder
				c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			c.Begin(t).Done(t)
		})
	}
}
