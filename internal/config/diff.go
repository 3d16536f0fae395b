package config

import (
	"maps"
	"reflect"
	"slices"
)

// Change is one difference between two configurations.
type Change struct {
	// Key differs, or is a table that was added or removed: "kinds.urlcheck". Sources are named: "source.inbox.path".
	Key string
	// Live: a running daemon can apply the change. Other changes need a restart.
	Live bool
}

// Diff returns the differences of the new configuration, by key. Policy, limits, payload, sources, the start and
// config of plugins, and added or removed kinds can be applied live. Changes of the daemon as a whole need a restart.
// For a secret of a plugin in a file, only the name of the file is compared.
func Diff(before, after *Config) (changes []Change) {
	old, now := before.leaves(), after.leaves()
	for _, key := range names(old, now) {
		a, was := old[key]
		b, is := now[key]
		switch {
		case was && is && !a.table && !reflect.DeepEqual(a.value.Interface(), b.value.Interface()):
			changes = append(changes, Change{key, a.live})
		case was != is && (a.table || b.table): // the keys in it need no mention
			changes = append(changes, Change{key, true})
		}
	}
	return changes
}

// Retain gives c the values of before for the keys that need a restart.
func (c *Config) Retain(before *Config) {
	old := before.leaves()
	for key, now := range c.leaves() {
		if was, known := old[key]; known && !now.live && !now.table {
			now.value.Set(was.value)
		}
	}
}

// leaf is a key of a configuration, or a table.
type leaf struct {
	value reflect.Value
	live  bool
	table bool
}

// leaves returns all keys of the configuration, and its tables that have a name of their own.
func (c *Config) leaves() map[string]leaf {
	all := map[string]leaf{}
	add := func(path string, table reflect.Value, live bool) {
		for _, k := range keys(table.Type()) {
			if k.tableType() == nil {
				all[joinPath(path, k.name)] = leaf{value: table.Field(k.field), live: live || k.live}
			}
		}
	}
	named := func(path string, table any, live bool) {
		all[path] = leaf{table: true}
		add(path, reflect.ValueOf(table).Elem(), live)
	}
	add("", reflect.ValueOf(c).Elem(), false)
	for _, t := range c.tables() {
		add(t.name, t.value, false)
	}
	for name, k := range c.Kinds {
		named(joinPath("kinds", name), k, false)
	}
	for _, s := range c.Sources {
		named(joinPath("source", s.Name), s, true)
	}
	for name, p := range c.Plugins {
		named(joinPath("plugins", name), p, false)
	}
	for name, t := range c.API.Tokens {
		named(joinPath("api.tokens", name), t, true)
	}
	return all
}

func names[T any](a, b map[string]T) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}
