//go:build unix

package pluginproc

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
)

// sweep removes directories of killed hosts, and no others with a similar name.
func TestSweepOnlyOurs(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "sweep") // sockets need a short path
	must.OK(t, err)
	defer os.RemoveAll(base)
	old := time.Now().Add(-time.Hour)
	make := func(name string, age time.Time, files ...string) string {
		dir := filepath.Join(base, name)
		must.OK(t, os.MkdirAll(filepath.Join(dir, "plugin-dir1"), 0o700))
		l, err := net.Listen("unix", filepath.Join(dir, "plugin-dir1", "plugin1"))
		must.OK(t, err)
		l.(*net.UnixListener).SetUnlinkOnClose(false)
		l.Close()
		for _, f := range files {
			must.OK(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
		}
		must.OK(t, os.Chtimes(dir, age, age))
		return dir
	}
	left := make(dirPrefix+"123", old)
	young := make(dirPrefix+"124", time.Now()) // a wrong clock makes it look old, so age tells nothing
	stay := []string{make(dirPrefix+"125", old, "thesis.txt"), make(dirPrefix+"g-1", old), make("ledgerd-pg-1", old)}
	held := make(dirPrefix+"126", old)
	lock, err := lockDir(held)
	must.OK(t, err)
	defer lock.Close()
	sweep(base)
	for _, dir := range []string{left, young} {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", dir, err)
		}
	}
	for _, dir := range append(stay, held) {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}

// A sweep may remove a directory that another process has made and not locked yet. That process makes another.
func TestSweptBeforeLocked(t *testing.T) {
	base, err := os.MkdirTemp("/tmp", "sweep")
	must.OK(t, err)
	defer os.RemoveAll(base)
	done := make(chan struct{})
	var sweeping sync.WaitGroup
	for range 2 {
		sweeping.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					sweep(base)
				}
			}
		})
	}
	for range 500 {
		d, err := newSocketDir(base)
		if err != nil {
			t.Error(err)
			break
		}
		if _, err := os.Stat(d.path); err != nil {
			t.Error(err)
		}
		d.remove()
	}
	close(done)
	sweeping.Wait()
}

// The error of a directory that does not exist, or cannot be written to, names TMPDIR.
func TestNoSocketDir(t *testing.T) {
	_, err := newSocketDir(filepath.Join(t.TempDir(), "gone"))
	if se, ok := errors.AsType[*StartError](err); !ok || !strings.Contains(se.Hint, "TMPDIR") {
		t.Errorf("%v", err)
	}
}
