//go:build unix

package source

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// link gives a file a second name in another folder.
func link(from *os.Root, old string, to *os.Root, name string) error {
	source, err := from.Open(".")
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := to.Open(".")
	if err != nil {
		return err
	}
	defer target.Close()
	if err := unix.Linkat(int(source.Fd()), old, int(target.Fd()), name, 0); err != nil {
		return &os.LinkError{Op: "link", Old: filepath.Join(from.Name(), old), New: filepath.Join(to.Name(), name), Err: err}
	}
	return nil
}
