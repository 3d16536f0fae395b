package ledger

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Define states what works a kind from now on, "plugin@version+digest", and with which settings: config is
// a JSON object without secrets, for people. Versions may differ. It returns *DefinitionError while a live
// process works the kind with another plugin or another digest; the digest is of the settings that change
// what a result means. What is left of the kind, of whatever state, is worked with the new settings.
//
// me is who is going to work the kind: its heartbeat is written first, with the definition, so
// that of two that define at the same time at least one sees the other. Its Kinds are those
// that it works besides.
func (l *Ledger) Define(ctx context.Context, me Agent, kind, definition, config string) error {
	c := checker{}
	c.kind(kind)
	c.text("definition", definition, MaxWorker)
	if c.config(config); definition == "" {
		c.fail("definition", "is missing")
	}
	if c.err != nil {
		return c.err
	}
	if _, err := l.ExpireGone(ctx); err != nil { // who is gone is in nobody's way, and may have had our name
		return err
	}
	others := me
	me.Kinds, me.Configs = with(me.Kinds, kind, definition), with(me.Configs, kind, config)
	if err := l.Beat(ctx, me, defineTTL); err != nil {
		return err
	}
	err := l.store.Update(ctx, nil, func(tx Tx) error { return define(tx, me.Name, kind, definition, config) })
	if err == nil {
		return nil
	}
	ttl := defineTTL
	if len(others.Kinds) == 0 {
		ttl = 0
	}
	return errors.Join(err, l.Beat(context.WithoutCancel(ctx), others, ttl))
}

// defineTTL is how long a heartbeat of Define lasts: until the worker that follows writes its own.
const defineTTL = 30 * time.Second

// with is a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	if m = maps.Clone(m); m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

func define(tx Tx, me, kind, definition, config string) error {
	k, _, err := tx.Kind(kind)
	if err != nil {
		return err
	}
	agents, err := tx.Agents()
	if err != nil {
		return err
	}
	conflict := &DefinitionError{Kind: kind, Have: k.Config, Definition: definition, Config: config}
	for _, a := range agents {
		if d, works := a.Kinds[kind]; works && a.Name != me && !sameDefinition(d, definition) {
			conflict.Agents = append(conflict.Agents, a)
		}
	}
	if len(conflict.Agents) > 0 {
		return conflict
	}
	changed := Differences(k.Config, config)
	if k.Definition == definition && len(changed) == 0 {
		return nil
	}
	detail := fmt.Sprintf("%q → %q", k.Definition, definition)
	if k.Config != "" {
		for _, d := range changed {
			detail += "; " + d.String()
		}
	}
	k.Definition, k.Config = definition, config
	if err := tx.PutKind(k); err != nil {
		return err
	}
	return tx.Journal(JournalEntry{Actor: me, Action: "define", Subject: kind, Detail: head(detail, MaxError), Changed: 1})
}

// DefinitionError says that live processes work a kind with another plugin or with other settings.
// It matches [ErrConflict].
type DefinitionError struct {
	Kind               string
	Definition, Config string  // as they were to be
	Agents             []Agent // those in the way, by name
	Have               string  // config in force, where an agent does not say its own
}

// Differences are the settings in which the first agent in the way differs. There may be none that
// can be shown: secrets are in no config.
func (e *DefinitionError) Differences() []Difference {
	have := e.Agents[0].Configs[e.Kind]
	if have == "" {
		have = e.Have
	}
	if have == "" {
		return nil
	}
	return Differences(have, e.Config)
}

func (e *DefinitionError) Error() string {
	a := e.Agents[0]
	s := fmt.Sprintf("kind %q is worked with other settings (%s, not %s) by %s since %s", e.Kind, a.Kinds[e.Kind], e.Definition, a.Name, local(a.StartedAt))
	for _, d := range e.Differences() {
		s += "; " + d.String()
	}
	return s
}

// Is says that it is a conflict.
func (e *DefinitionError) Is(target error) bool { return target == ErrConflict }

// Difference is a setting that differs between two configs; a value is JSON, "" where it is not set.
type Difference struct{ Name, Have, Want string }

// String is "per_host: 20 → 4".
func (d Difference) String() string {
	or := func(value string) string { return cmp.Or(value, "not set") }
	return fmt.Sprintf("%s: %s → %s", d.Name, or(d.Have), or(d.Want))
}

// Differences compares two configs, which are JSON objects, setting by setting, with dots for nesting.
// A config that is "" has no settings.
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

// SplitDefinition cuts what works a kind, "urlcheck@0.1.0+3fa9c1", into the plugin's name, its version,
// which may have a + itself, and the digest of its config. What is not there is "".
func SplitDefinition(definition string) (name, version, digest string) {
	name, rest, _ := strings.Cut(definition, "@")
	i := strings.LastIndexByte(rest, '+')
	if i < 0 {
		return name, rest, ""
	}
	return name, rest[:i], rest[i+1:]
}

// sameDefinition compares plugin and digest, not the version.
func sameDefinition(a, b string) bool {
	na, _, da := SplitDefinition(a)
	nb, _, db := SplitDefinition(b)
	return na == nb && da == db
}
