package source

import "golang.org/x/sys/unix"

func renameNew(from int, old string, to int, name string) error {
	return unix.Renameat2(from, old, to, name, unix.RENAME_NOREPLACE)
}
