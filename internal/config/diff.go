package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Change is one difference between two configurations.
type Change struct {
	// Key differs, or is a table that was added or removed: "kinds.urlcheck". Sources are named: "source.inbox.path".
	Key string
	// Text is a plain sentence without secrets: "lease: 1m → 2m".
	Text string
	// Live: a running daemon can apply the change. Other changes need a restart.
	Live bool
}

// Diff returns the differences of the new configuration, by key. Policy, limits, payload, sources, the start and
// config of plugins, and added or removed kinds can be applied live. Changes of the daemon as a whole need a restart.
// For a secret in a file, only the name of the file is compared.
func Diff(before, after *Config) []Change {
	d := differ{}
	d.keys("", reflect.ValueOf(before).Elem(), reflect.ValueOf(after).Elem(), false)
	for _, name := range names(before.Kinds, after.Kinds) {
		path := joinPath("kinds", name)
		if a, b := before.Kinds[name], after.Kinds[name]; d.both(path, a, b) {
			d.keys(path, reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), false)
			d.settings(path+".set", a.Set, b.Set)
			d.settings(path+".with", a.With, b.With)
		}
	}
	old, now := byName(before.Sources), byName(after.Sources)
	for _, name := range names(old, now) {
		path := joinPath("source", name)
		if a, b := old[name], now[name]; d.both(path, a, b) {
			d.keys(path, reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), true)
			d.settings(path+".set", a.Set, b.Set)
		}
	}
	for _, name := range names(before.Plugins, after.Plugins) {
		path := joinPath("plugins", name)
		if a, b := before.Plugins[name], after.Plugins[name]; d.both(path, a, b) {
			d.keys(path, reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), false)
		}
	}
	for i, t := range before.tables() {
		d.keys(t.name, t.value, after.tables()[i].value, false)
	}
	for _, name := range names(before.API.Tokens, after.API.Tokens) {
		path := joinPath("api.tokens", name)
		if a, b := before.API.Tokens[name], after.API.Tokens[name]; d.both(path, a, b) {
			d.keys(path, reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem(), true)
		}
	}
	return d.changes
}

type differ struct{ changes []Change }

func (d *differ) note(key string, live bool, format string, args ...any) {
	d.changes = append(d.changes, Change{Key: key, Text: key + fmt.Sprintf(format, args...), Live: live})
}

// both reports whether a table exists before and after. A table that exists only before or only after is a change.
func (d *differ) both(path string, before, after any) bool {
	switch none := reflect.ValueOf(before).IsNil(); {
	case none:
		d.note(path, true, " is new")
	case reflect.ValueOf(after).IsNil():
		d.note(path, true, " is gone")
	default:
		return true
	}
	return false
}

// keys compares two tables of the same type.
func (d *differ) keys(path string, before, after reflect.Value, live bool) {
	for _, k := range keys(before.Type()) {
		a, b := before.Field(k.field), after.Field(k.field)
		if k.typ == anyMapType || k.below() != nil || reflect.DeepEqual(a.Interface(), b.Interface()) {
			continue
		}
		key, old, now := joinPath(path, k.name), shown(k, a), shown(k, b)
		if old == now { // a password in a URL differs
			d.note(key, live || k.live, ": what is not shown of it is different (%s)", now)
			continue
		}
		d.note(key, live || k.live, ": %s → %s", old, now)
	}
}

// shown formats a value for a sentence.
func shown(k key, v reflect.Value) string {
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return "not set"
	}
	switch value := written(k, v).(type) {
	case string:
		if k.scalar().Kind() == reflect.String || value == "" {
			return fmt.Sprintf("%q", value)
		}
		return value
	case []string:
		return fmt.Sprintf("%q", value)
	default:
		return fmt.Sprint(value)
	}
}

// settings compares settings of a plugin, but does not show them: they may be secrets.
func (d *differ) settings(path string, before, after map[string]any) {
	if len(before)+len(after) > 0 && !reflect.DeepEqual(before, after) {
		d.note(path, true, " is different")
	}
}

func names[T any](a, b map[string]T) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(all)
	return slices.Compact(all)
}

func byName(sources []*Source) map[string]*Source {
	all := map[string]*Source{}
	for _, s := range sources {
		all[s.Name] = s
	}
	return all
}
