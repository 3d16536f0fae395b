package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/must"
)

// TestPutAway: another version of a file stays where it is.
func TestPutAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.csv")
	write(t, path, "1")
	info, err := os.Stat(path)
	must.OK(t, err)
	version := intake.Version(info)
	write(t, path, "22")
	p := putter{from: filepath.Dir(path)}
	for _, p.to = range []string{"", path + ".away"} {
		if done, err := p.putAway(t.Context(), "a.csv", version); done || err != nil || !exists(path) {
			t.Errorf("to %q: %v, %v", p.to, done, err)
		}
	}
	if info, err = os.Stat(path); err != nil {
		t.Fatal(err)
	}
	p.to = filepath.Join(t.TempDir(), "wall")
	write(t, p.to, "")
	if done, err := p.putAway(t.Context(), "a.csv", intake.Version(info)); done || err == nil || !exists(path) {
		t.Errorf("a place that cannot be: %v, %v", done, err)
	}
	to := filepath.Join(t.TempDir(), "copy.csv")
	byCopy := func(ctx context.Context) error {
		return moveByCopy(ctx, root(t, filepath.Dir(path)), "a.csv", info, root(t, filepath.Dir(to)), "copy.csv")
	}
	stopped, stop := context.WithCancel(t.Context())
	err = byCopy(asked{stopped, func() {
		if left, err := os.ReadDir(filepath.Dir(to)); err != nil || len(left) != 1 || exists(to) {
			t.Errorf("%v, %v; want the copy under another name", left, err)
		}
		stop()
	}})
	if left, _ := os.ReadDir(filepath.Dir(to)); !errors.Is(err, context.Canceled) || len(left) > 0 || !exists(path) {
		t.Errorf("stopped while it was copied: %v, left %v", err, left)
	}
	extend(t, path, info.ModTime())
	if err := byCopy(t.Context()); err == nil || exists(to) || !exists(path) {
		t.Errorf("extended while it was copied: %v", err)
	}
	write(t, path, "22")
	must.OK(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	if err := byCopy(t.Context()); err != nil || exists(path) {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(to); string(text) != "22" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	p.to = ""
	if done, err := p.putAway(t.Context(), "a.csv", version); done || err != nil {
		t.Errorf("of a file that is gone: %v, %v", done, err)
	}
}

// asked calls a function before each answer whether it has ended.
type asked struct {
	context.Context
	before func()
}

func (a asked) Err() error {
	a.before()
	return a.Context.Err()
}

// TestPutBack: a file that a process left with a hidden name gets its own back, unless another file has it.
func TestPutBack(t *testing.T) {
	inMemory(t, func(t *testing.T, p place) {
		root := t.TempDir()
		in := func(name string) string { return filepath.Join(root, "deep", name) }
		for _, name := range []string{".ledgerd-a.csv", ".ledgerd-b.csv", "b.csv", ".other.csv"} {
			write(t, in(name), name)
		}
		spec := folder(root)
		spec.Finished = "delete"
		s := p.start(t, spec)
		if l := s.look(); !exists(in(".ledgerd-b.csv")) || l.Left != 1 {
			t.Errorf("%+v, want the one whose name is taken left out with an error", l)
		}
		write(t, in(".ledgerd-c.csv"), "of another source, which is at it")
		s.until("the other one is found", func(l Look) bool { return l.Found == 2 })
		if !exists(in("a.csv")) || exists(in(".ledgerd-a.csv")) || !exists(in(".other.csv")) ||
			!exists(in(".ledgerd-c.csv")) {
			t.Error("the wrong files were put back")
		}
	})
}

func root(t *testing.T, folder string) *os.Root {
	r, err := os.OpenRoot(folder)
	must.OK(t, err)
	t.Cleanup(func() { _ = r.Close() })
	return r
}
