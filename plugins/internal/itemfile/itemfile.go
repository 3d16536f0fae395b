// Package itemfile opens the file that an item names, and does not follow symbolic links that other users have made.
//
// An item has its path long before it is worked. In between, a user who may write to the folder can put a
// symbolic link in the place of the file, or of a folder on the way to it. A plugin that follows it reads
// with the rights of the daemon what that user may not read, and writes it into outputs, tables and pictures.
//
// So on Linux a path is walked name by name, and each is opened by itself, following nothing (O_PATH, O_NOFOLLOW).
// A symbolic link among them is followed only if it belongs to root or to the user of the process, or if its target
// has the same owner. Other links fail for good. The kernel has the same rule for folders such as /tmp
// (fs.protected_symlinks in proc_sys_fs(5)), and Apache as SymLinksIfOwnerMatch. The kernel's setting does not help
// here: it is about sticky folders that all may write to, and an inbox need not be one. The file that was examined
// is opened by its descriptor, so swapping names meanwhile has no effect.
//
// Not covered:
//   - Hard links. They cannot be told from files; fs.protected_hardlinks = 1 keeps users from making them.
//   - Programs that get a path and open it themselves, such as the commands of the plugin exec.
//   - Systems other than Linux (macOS, BSD). There links are followed as usual.
//   - File systems on which all files have one owner, and users that a user namespace does not know: they look alike.
package itemfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
)

// Open opens a regular file for reading. The error is a *[Refusal] or an *[fs.PathError].
func Open(path string) (*os.File, error) {
	f, err := openRegular(path)
	return f, denied(path, err)
}

// Refusal explains why a file is not opened, until a person changes what is there.
type Refusal struct {
	Code string // foreign_link, not_a_file or permission
	Text string
}

func (r *Refusal) Error() string { return r.Text }

// denied returns the refusal of a path that the user of this process may not read, and any other error as it is.
func denied(path string, err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	name := fmt.Sprint("uid ", os.Geteuid())
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	return &Refusal{"permission", fmt.Sprintf("the user %s may not read %.200q; give it the right to read the file and to "+
		"enter its folders (chmod, setfacl)", name, path)}
}

// notRegular returns the refusal of a path that is no regular file.
func notRegular(mode fs.FileMode) *Refusal {
	what := "a device"
	switch {
	case mode.IsDir():
		what = "a directory"
	case mode&fs.ModeNamedPipe != 0:
		what = "a named pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	}
	return &Refusal{"not_a_file", "it is " + what + ", not a regular file"}
}
