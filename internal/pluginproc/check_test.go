//go:build unix

package pluginproc

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// file is a file with the properties that checkOpen looks at.
type file struct {
	fs.FileInfo
	mode fs.FileMode
	uid  int
}

func (f file) Name() string      { return "plugin" }
func (f file) Mode() fs.FileMode { return f.mode }
func (f file) Sys() any          { return &syscall.Stat_t{Uid: uint32(f.uid)} }

func TestCheckOpen(t *testing.T) {
	me := os.Geteuid()
	other := me + 4711
	program := func(uid int) fs.FileInfo { return file{mode: 0o755, uid: uid} }
	tests := []struct {
		name  string
		info  file
		below fs.FileInfo // nil: info is the program
		fine  bool
	}{
		{"program", file{mode: 0o755, uid: other}, nil, true},
		{"program open to its group", file{mode: 0o775, uid: me}, nil, true},
		{"program open to all", file{mode: 0o757, uid: me}, nil, false},
		{"program open to all, with the bit of sticky directories", file{mode: fs.ModeSticky | 0o757, uid: me}, nil, false},
		{"closed directory", file{mode: fs.ModeDir | 0o755, uid: other}, program(other), true},
		{"open directory", file{mode: fs.ModeDir | 0o777, uid: me}, program(me), false},
		{"ours in a sticky one", file{mode: fs.ModeDir | fs.ModeSticky | 0o777}, program(me), true},
		{"root's in a sticky one", file{mode: fs.ModeDir | fs.ModeSticky | 0o777}, program(0), true},
		{"a stranger's in a sticky one", file{mode: fs.ModeDir | fs.ModeSticky | 0o777}, program(other), false},
	}
	for _, test := range tests {
		if err := checkOpen("/at", test.info, test.below); errors.Is(err, ErrWritable) == test.fine {
			t.Errorf("%s: %v", test.name, err)
		}
	}
}

// The examined file is started, behind all links, and no link may lie where others can turn it.
func TestCheckLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	must.OK(t, err)
	for name, mode := range map[string]fs.FileMode{"safe": 0o755, "open": 0o777} {
		must.OK(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		must.OK(t, os.Chmod(filepath.Join(dir, name), mode))
	}
	program := filepath.Join(dir, "safe", "program")
	must.OK(t, os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755))
	for link, target := range map[string]string{
		"safe/relative": "../safe/./program", "safe/link": "relative", "open/turnable": program,
		"safe/over": "../open/turnable", "open/folder": "../safe", "loop": "loop",
	} {
		must.OK(t, os.Symlink(target, filepath.Join(dir, link)))
	}
	for path, fine := range map[string]bool{
		"safe/program": true, "safe/link": true, "open/turnable": false, "safe/over": false, "open/folder/program": false,
		"loop": false,
	} {
		got, err := (&Spec{Path: dir + "/" + path}).check()
		if fine && (err != nil || got != program) {
			t.Errorf("%s: %s, %v", path, got, err)
		}
		if !fine && path != "loop" && !errors.Is(err, ErrWritable) || !fine && err == nil {
			t.Errorf("%s: %s, %v", path, got, err)
		}
	}
}
