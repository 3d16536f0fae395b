package source

import (
	"io/fs"
	"os"
	"syscall"
)

// move returns an error: between two opened folders a file is copied here.
func move(*os.Root, string, *os.Root, string) error { return syscall.ENOTSUP }

// chown does nothing: a file belongs to the one who makes it here.
func chown(*os.File, fs.FileInfo) {}
