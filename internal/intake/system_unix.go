//go:build unix

package intake

import (
	"io/fs"
	"os/user"
	"strconv"
	"sync"
	"syscall"
)

// NoFollow is the flag to open no link.
const NoFollow = syscall.O_NOFOLLOW

// identity returns what identifies a folder.
func identity(_ string, info fs.FileInfo) (id inode, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if ok {
		id = inode{uint64(st.Dev), st.Ino}
	}
	return id, ok
}

// owners has the names of users, by number, as this machine knows them.
var owners sync.Map

// owner returns the name of the file's owner, or the number if this machine has no name for it.
func owner(info fs.FileInfo) string {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	if name, known := owners.Load(st.Uid); known {
		return name.(string)
	}
	name := strconv.FormatUint(uint64(st.Uid), 10)
	if u, err := user.LookupId(name); err == nil && u.Username != "" {
		name = u.Username
	}
	owners.Store(st.Uid, name)
	return name
}
