//go:build unix

package pluginstore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestMain lets the test binary be a program that adds versions until it is killed.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "adder" {
		fmt.Println("begun")
		for i := rand.IntN(3); ; i++ {
			program := filepath.Join(os.Args[3], fmt.Sprint("version", i%3))
			if _, _, err := add(Store{os.Args[2]}, program); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// add is what ledgerd plugin add does with a store.
func add(s Store, file string) (now, before Added, err error) {
	c, err := s.Begin(context.Background(), func() {})
	if err != nil {
		return now, before, err
	}
	defer func() { err = errors.Join(err, c.End()) }()
	copied, sum, err := c.Copy(file)
	if err != nil {
		return now, before, err
	}
	return c.Use(copied, Added{Name: "thumbs", SHA256: sum})
}

func programs(t *testing.T, n int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for i := range n {
		content := bytes.Repeat(fmt.Append(nil, "program ", i, "\n"), 10_000)
		must.OK(t, os.WriteFile(filepath.Join(dir, fmt.Sprint("version", i)), content, 0o644))
	}
	return dir
}

// sound checks the promise of the store: the link leads to a program that is what its folder names.
func sound(t *testing.T, s Store) Added {
	t.Helper()
	var a Added
	var content []byte
	err := fs.ErrNotExist
	for tries := 0; errors.Is(err, fs.ErrNotExist) && tries < 100; tries++ { // two may come between a look and the next
		var ok bool
		if a, ok = Read(s.link("thumbs")); !ok {
			t.Fatal("there is no plugin")
		}
		content, err = os.ReadFile(a.Path)
	}
	must.OK(t, err)
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != a.SHA256 {
		t.Fatalf("%s has another content", a.Path)
	}
	return a
}

// The program that a new one replaces stays until the next one, since processes may run from it. An older one goes.
func TestReplace(t *testing.T) {
	s := Store{filepath.Join(t.TempDir(), "data", "plugins")}
	dir := programs(t, 3)
	if s.Has("thumbs") {
		t.Fatal("a store that is not there has it")
	}
	var last Added
	for i := range 3 {
		now, before, err := add(s, filepath.Join(dir, fmt.Sprint("version", i)))
		if err != nil || before != last || sound(t, s) != now {
			t.Fatalf("%+v replaces %+v: %v", now, before, err)
		}
		kept, err := filepath.Glob(filepath.Join(s.Dir, "thumbs", "*", "*"))
		if err != nil || len(kept) != min(i+1, 2) || i > 0 && !slices.Contains(kept, before.Path) {
			t.Errorf("kept %v, %v", kept, err)
		}
		last = now
	}
	if now, before, err := add(s, last.Path); err != nil || now != last || before != last { // from the store itself
		t.Errorf("%+v replaces %+v: %v", now, before, err)
	}
	if kept, err := filepath.Glob(filepath.Join(s.Dir, "thumbs", "*", "*")); err != nil || len(kept) != 2 {
		t.Errorf("the same again replaces nothing, and kept are %v, %v", kept, err)
	}
	info, err := os.Stat(last.Path)
	if err != nil || info.Mode().Perm()&0o222 != 0 || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("%v, %v: want a program that cannot be written", info.Mode(), err)
	}
	c, err := s.Begin(t.Context(), func() {})
	must.OK(t, err)
	ended, end := context.WithCancel(t.Context()) // a second change waits, until it is told to end
	if _, err := s.Begin(ended, end); !errors.Is(err, context.Canceled) {
		t.Errorf("a second change began: %v", err)
	}
	if err := errors.Join(c.Remove("thumbs"), c.End()); err != nil || s.Has("thumbs") {
		t.Errorf("not removed: %v", err)
	}
}

// The user who adds plugins, root with whatever umask, need not be the user who works with them. Other
// entries of the data directory are for its owner alone.
func TestEverybodyReads(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	s := Store{filepath.Join(data, "plugins")}
	defer syscall.Umask(syscall.Umask(0o077))
	v, _, err := add(s, filepath.Join(programs(t, 1), "version0"))
	must.OK(t, err)
	dir := filepath.Dir(v.Path)
	for path, want := range map[string]os.FileMode{data: 0o700, s.Dir: 0o755, filepath.Dir(dir): 0o755, dir: 0o755,
		v.Path: 0o555} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

// Only links of the store's own making are read: what they lead to is started.
func TestReadForeignLinks(t *testing.T) {
	dir := t.TempDir()
	sum := hex.EncodeToString(make([]byte, 32))
	for _, target := range []string{"/bin/sh", "thumbs/" + sum, "thumbs/short/ledgerd-plugin-thumbs", "other/" + sum +
		"/ledgerd-plugin-thumbs",
		"../" + sum + "/ledgerd-plugin-thumbs", "thumbs/" + sum + "/thumbs", "thumbs/" + sum + "/../ledgerd-plugin-thumbs"} {
		link := filepath.Join(dir, "ledgerd-plugin-thumbs")
		must.OK(t, os.Symlink(target, link))
		if v, ok := Read(link); ok {
			t.Errorf("%s was read as %+v", target, v)
		}
		must.OK(t, os.Remove(link))
	}
}

func TestByHand(t *testing.T) {
	s := Store{t.TempDir()}
	byHand := s.link("thumbs")
	must.OK(t, os.WriteFile(byHand, []byte("mine"), 0o755))
	if _, _, err := add(s, filepath.Join(programs(t, 1), "version0")); !errors.Is(err, ErrTaken) {
		t.Errorf("error %v", err)
	}
	if content, err := os.ReadFile(byHand); err != nil || string(content) != "mine" {
		t.Errorf("%q, %v", content, err)
	}
}

// Programs that add at the same time, and are killed at any moment, leave one whole program,
// and nothing that keeps the next one from going on.
func TestKilledAdders(t *testing.T) {
	s := Store{filepath.Join(t.TempDir(), "plugins")}
	dir := programs(t, 3)
	if _, _, err := add(s, filepath.Join(dir, "version0")); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	must.OK(t, err)
	seen := map[string]bool{}
	// More rounds, and longer ones, where all are killed before they are done.
	for round := 0; round < 15 || len(seen) < 2 && round < 100; round++ {
		var all sync.WaitGroup
		for range 3 {
			var said bytes.Buffer
			p := exec.Command(self, "adder", s.Dir, dir)
			p.Stderr = &said
			out, err := p.StdoutPipe()
			must.OK(t, err)
			must.OK(t, p.Start())
			if _, err := out.Read(make([]byte, 1)); err != nil { // its life begins with its work
				t.Fatal(err)
			}
			life := time.Duration((20+rand.IntN(80))*(1+round/15)) * time.Millisecond
			late := time.AfterFunc(life, func() { _ = p.Process.Kill() })
			all.Go(func() {
				_ = p.Wait() // it was killed
				if late.Stop(); said.Len() > 0 {
					t.Errorf("it ended by itself: %s", said.String())
				}
			})
		}
		for range 100 { // whoever looks meanwhile sees a whole one, too
			seen[sound(t, s).SHA256] = true
		}
		all.Wait()
		seen[sound(t, s).SHA256] = true
	}
	if len(seen) < 2 {
		t.Errorf("seen only %v", seen)
	}
	last, _, err := add(s, filepath.Join(dir, "version2"))
	if err != nil || sound(t, s) != last {
		t.Errorf("%+v is not there: %v", last, err)
	}
	left, err := filepath.Glob(filepath.Join(s.Dir, ".*"))
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
