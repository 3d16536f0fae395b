package mail

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/ledgerd/ledgerd/plugins/internal/failure"
)

// file is an attachment.
type file struct {
	name    string
	content []byte
}

// attached reads the attachments of a mail. A path names a file below the configured folder. A path that leads out of
// the folder is refused, also through a symbolic link. The error is a *failure.Error.
func attached(cfg *Config, paths []string) ([]file, error) {
	if len(paths) == 0 {
		return nil, nil
	}
	if cfg.Attachments == "" {
		return nil, failure.Transient("attachment", errors.New("attach: this machine has no folder of attachments: --with "+
			"attachments=/PATH"))
	}
	root, err := os.OpenRoot(cfg.Attachments)
	if err != nil {
		return nil, failure.Transient("attachment", fmt.Errorf("attachments: %w", err))
	}
	defer root.Close()
	files, left := make([]file, len(paths)), cfg.MaxAttach
	for i, path := range paths {
		if err := oneLine(path); err != nil || !filepath.IsLocal(path) {
			return nil, failure.Permanent("attachment",
				fmt.Errorf("attach: %.200q is not a path below the folder of attachments", path))
		}
		content, err := readAttachment(root, path, left)
		switch {
		case err != nil && mayPass(err):
			return nil, failure.Transient("attachment", fmt.Errorf("attach: %w", err))
		case err != nil:
			return nil, failure.Permanent("attachment", fmt.Errorf("attach: %s: %w", path, err))
		case int64(len(content)) > left:
			return nil, failure.Permanent("attachment", fmt.Errorf("attach: with %s it is more than max_attach, %d bytes", path,
				cfg.MaxAttach))
		}
		left -= int64(len(content))
		files[i] = file{filepath.Base(path), content}
	}
	return files, nil
}

// mayPass reports whether a file may be readable later or on another machine: the system has an error that is not about
// the path. Other errors are that it is no regular file, or that its path leads out of the folder.
func mayPass(err error) bool {
	switch errno, ok := errors.AsType[syscall.Errno](err); errno {
	case syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.ENXIO, // ENXIO is of a socket
		syscall.EINVAL, syscall.EILSEQ: // a name that the file system cannot hold
		return false
	default:
		return ok
	}
}

// readAttachment reads a regular file, at most most+1 bytes.
func readAttachment(root *os.Root, path string, most int64) ([]byte, error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe without a writer would block
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("is not a regular file"), err)
	}
	return io.ReadAll(io.LimitReader(f, most+1))
}

// checkFolder refuses a path that is not a folder.
func checkFolder(field, path string) error {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	switch {
	case !filepath.IsAbs(path):
		return fmt.Errorf("%s: %q is not an absolute path", field, path)
	case err != nil:
		return fmt.Errorf("%s: %w", field, err)
	case !info.IsDir():
		return fmt.Errorf("%s: %s is not a folder", field, path)
	}
	return nil
}
