package intake

import (
	"io/fs"
	"os/user"
	"strconv"
	"sync"
	"syscall"
)

// fill is a field of the payload that the input fills.
type fill struct{ field, value string }

// fills are the fields that an input fills: with what it is and, of a file, with what is known of it.
// With Checksum the time of a file's change is left out, because it is no part of the version.
func (s *Source) fills(value string, info fs.FileInfo) (all []fill) {
	add := func(field, value string) {
		if field != "" && value != "" {
			all = append(all, fill{field, value})
		}
	}
	add(s.Input.Field, value)
	if info == nil {
		return all
	}
	if !s.Checksum {
		add(s.Input.Modified, info.ModTime().UTC().Format("2006-01-02T15:04:05.000000Z"))
	}
	if s.Input.Owner != "" {
		add(s.Input.Owner, owner(info))
	}
	return all
}

// filled are the fields that --set must leave to the input.
func (s *Source) filled() []string { return []string{s.Input.Field, s.Input.Modified, s.Input.Owner} }

// owners are the names of users, by number, as this machine knows them.
var owners sync.Map

// owner is the name of the user whose a file is, or the number where this machine has no name for it.
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
