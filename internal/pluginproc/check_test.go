package pluginproc

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"
)

// file is what is asked of a file here.
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
