package intake

import "io/fs"

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
