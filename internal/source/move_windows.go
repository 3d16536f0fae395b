package source

import (
	"io/fs"
	"os"
	"syscall"
)

// move returns an error, so the caller copies the file: Windows cannot rename between two opened folders.
func move(*os.Root, string, *os.Root, string) error { return syscall.ENOTSUP }

// chown does nothing on Windows.
func chown(*os.File, fs.FileInfo) {}
