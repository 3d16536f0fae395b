package intake

import (
	"io/fs"
	"os/user"
	"strconv"
	"sync"
	"syscall"
)

// fill is a field of the payload with its value from the input.
type fill struct{ field, value string }

// fills returns the fields that an input fills: the input itself and, for a file, facts about it. With Checksum it
// leaves out the time of the file's change, since that is no part of the version.
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

// inputFields returns the fields that --set must leave to the input.
func (s *Source) inputFields() []string {
	return []string{s.Input.Field, s.Input.Modified, s.Input.Owner}
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
