//go:build unix

package itemfile

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestNotRegular: what is no regular file is refused at once, also behind a link; nothing waits for a writer.
func TestNotRegular(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	l, err := net.Listen("unix", at("socket"))
	must.OK(t, err)
	defer l.Close()
	must.OK(t, errors.Join(syscall.Mkfifo(at("pipe"), 0o600), os.Symlink("pipe", at("link")), os.WriteFile(at("file"), nil,
		0o600)))
	for path, want := range map[string]string{
		at("pipe"): "it is a named pipe, not a regular file", at("link"): "it is a named pipe, not a regular file",
		at("socket"): "it is a socket, not a regular file", dir: "it is a directory, not a regular file",
		"/dev/zero": "it is a device, not a regular file",
	} {
		_, err := Open(path)
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != "not_a_file" || r.Text != want {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	for path, want := range map[string]error{
		at("none"): fs.ErrNotExist, at("file/below"): syscall.ENOTDIR, at("file") + "/": syscall.ENOTDIR, "": fs.ErrNotExist,
	} {
		_, err := Open(path)
		if p, ok := errors.AsType[*fs.PathError](err); !ok || p.Path != path || !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", path, err, want)
		}
	}
	// root may read any file, so the error is made here
	err = denied("/a", &fs.PathError{Op: "open", Path: "/a", Err: syscall.EACCES})
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != "permission" ||
		!strings.Contains(r.Text, `may not read "/a"`) {
		t.Errorf("a file that may not be read: %v", err)
	}
}
