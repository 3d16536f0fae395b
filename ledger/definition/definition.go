// Package definition reads definitions of kinds, such as "urlcheck@0.1.0+3fa9c1", and compares configs of plugins. A
// definition names the plugin that works a kind, its version, and a digest of its config.
package definition

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Split cuts a definition into the plugin's name, its version and the digest of its config. The version may have a +
// itself. A missing part is "".
func Split(definition string) (name, version, digest string) {
	name, rest, _ := strings.Cut(definition, "@")
	i := strings.LastIndexByte(rest, '+')
	if i < 0 {
		return name, rest, ""
	}
	return name, rest[:i], rest[i+1:]
}

// Same reports whether two definitions have one plugin and one digest. Their versions may differ.
func Same(a, b string) bool {
	na, _, da := Split(a)
	nb, _, db := Split(b)
	return na == nb && da == db
}

// Difference is a setting that differs between two configs; a value is JSON, "" where it is not set.
type Difference struct{ Name, Have, Want string }

// notSet stands for a missing value in String.
const notSet = "not set"

// String is "per_host: 20 → 4".
func (d Difference) String() string {
	return fmt.Sprintf("%s: %s → %s", d.Name, cmp.Or(d.Have, notSet), cmp.Or(d.Want, notSet))
}

// Differences compares two configs setting by setting, with dots for nesting. Configs are JSON objects; "" has no
// settings.
func Differences(have, want string) []Difference {
	before, after := map[string]string{}, map[string]string{}
	flatten(before, "", json.RawMessage(have))
	flatten(after, "", json.RawMessage(want))
	names := slices.AppendSeq(slices.Collect(maps.Keys(before)), maps.Keys(after))
	slices.Sort(names)
	var all []Difference
	for _, name := range slices.Compact(names) {
		if before[name] != after[name] {
			all = append(all, Difference{name, before[name], after[name]})
		}
	}
	return all
}

// flatten puts the values of an object and of those in it into a map, by their path.
func flatten(into map[string]string, path string, value json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(value, &fields) != nil || len(fields) == 0 && path != "" {
		if path != "" {
			into[path] = string(value)
		}
		return
	}
	for name, v := range fields {
		flatten(into, strings.TrimPrefix(path+"."+name, "."), v)
	}
}
