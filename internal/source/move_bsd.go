//go:build unix && !linux

package source

import "golang.org/x/sys/unix"

func renameNew(int, string, int, string) error { return unix.ENOSYS }
