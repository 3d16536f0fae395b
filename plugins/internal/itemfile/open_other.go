//go:build !linux

package itemfile

import (
	"os"
	"syscall"
)

// openRegular is Open without denied.
func openRegular(path string) (*os.File, error) {
	info, err := os.Stat(path) // first: opening some devices is an act in itself
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(info.Mode())
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a named pipe put there meanwhile must not block
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil && info.Mode().IsRegular() {
		return f, nil
	}
	f.Close()
	if err == nil {
		err = notRegular(info.Mode())
	}
	return nil, err
}
