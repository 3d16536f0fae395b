package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"
)

// SetKind stores the policy of a kind. An empty Definition leaves the one that is there.
func (l *Ledger) SetKind(ctx context.Context, actor string, k Kind) error {
	_, err := l.EditKind(ctx, actor, k.Name, func(have *Kind, _ bool) {
		k.Definition = orDefault(k.Definition, have.Definition)
		*have = k
	})
	return err
}

// EditKind reads the policy of a kind, lets edit change it and stores it, in one transaction;
// known says whether the kind had a row. edit may be called more than once. A change is
// journalled. It returns what is stored.
func (l *Ledger) EditKind(ctx context.Context, actor, name string, edit func(k *Kind, known bool)) (Kind, error) {
	c := checker{}
	c.agent(actor)
	if c.kind(name); c.err != nil {
		return Kind{}, c.err
	}
	if err := l.fit(ctx, nil); err != nil {
		return Kind{}, err
	}
	var stored Kind
	err := l.store.Update(ctx, nil, func(tx Tx) error {
		have, known, err := tx.Kind(name)
		if err != nil {
			return err
		}
		want := have
		edit(&want, known)
		want.Name = name
		if want.OnLost == OnLostRepeat { // is the default, which the databases keep as nothing
			want.OnLost = ""
		}
		if l := &want.Limits; l.Rate.Count == 0 && l.RatePerShardKey.Count == 0 && l.Burst == have.Limits.Burst {
			l.Burst = 0 // it goes with the last rate
		}
		stored = want
		c := checker{}
		if c.policy(want); c.err != nil {
			return c.err
		}
		changed := difference(have, want)
		if changed == "" {
			return nil
		}
		if want.Limits.Any() && !have.Limits.Any() {
			gated, err := tx.Gated(name)
			if err != nil {
				return err
			}
			if gated {
				return &InvalidError{Field: limitField(want.Limits), Reason: "kind " + name + " has had items that need resources; work under limits belongs into another kind"}
			}
		}
		if err := tx.PutKind(want); err != nil {
			return err
		}
		return tx.Journal(JournalEntry{Actor: actor, Action: "set-kind", Subject: name, Detail: changed, Changed: 1})
	})
	return stored, err
}

// difference lists the fields in which two policies differ: "MaxFailures: 0 → 3".
func difference(a, b Kind) string {
	var changed []string
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range va.NumField() {
		x, y := va.Field(i).Interface(), vb.Field(i).Interface()
		if !reflect.DeepEqual(x, y) {
			changed = append(changed, fmt.Sprintf("%s: %v → %v", va.Type().Field(i).Name, x, y))
		}
	}
	return head(strings.Join(changed, ", "), MaxError)
}

// Define states what works a kind from now on, and with which settings: "plugin@version+digest".
// Versions may differ. It returns *DefinitionError while another plugin or other settings have
// unfinished items of the kind, or a live worker: two configurations must not share one
// backlog. The zero definition forgets.
//
// me is who is going to work the kind: its heartbeat is written first, with the definition, so
// that of two that define at the same time at least one sees the other. Its Kinds are those
// that it works besides.
func (l *Ledger) Define(ctx context.Context, me Agent, kind, definition string) error {
	c := checker{}
	c.kind(kind)
	c.text("definition", definition, MaxWorker)
	if c.err != nil {
		return c.err
	}
	if _, err := l.ExpireGone(ctx); err != nil { // who is gone is in nobody's way, and may have had our name
		return err
	}
	others := me.Kinds
	if definition != "" {
		me.Kinds = maps.Clone(others)
		if me.Kinds == nil {
			me.Kinds = map[string]string{}
		}
		me.Kinds[kind] = definition
		if err := l.Beat(ctx, me, defineTTL); err != nil {
			return err
		}
	}
	err := l.store.Update(ctx, nil, func(tx Tx) error { return define(tx, me.Name, kind, definition) })
	if err == nil || definition == "" {
		return err
	}
	ttl := defineTTL
	if len(others) == 0 {
		ttl = 0
	}
	me.Kinds = others
	return errors.Join(err, l.Beat(context.WithoutCancel(ctx), me, ttl))
}

// defineTTL is how long a heartbeat of Define lasts: until the worker that follows writes its own.
const defineTTL = 30 * time.Second

func define(tx Tx, me, kind, definition string) error {
	k, _, err := tx.Kind(kind)
	if err != nil {
		return err
	}
	agents, err := tx.Agents()
	if err != nil {
		return err
	}
	conflict := &DefinitionError{Kind: kind, Have: k.Definition, Want: definition}
	for _, a := range agents {
		if d, works := a.Kinds[kind]; works && a.Name != me && definition != "" && !sameDefinition(d, definition) {
			conflict.Agent, conflict.Since, conflict.Have = a.Name, a.StartedAt, d
		}
	}
	other := k.Definition != "" && definition != "" && !sameDefinition(k.Definition, definition)
	if other || conflict.Agent != "" {
		s, err := tx.Standing(kind)
		if err != nil {
			return err
		}
		conflict.Unfinished = s.Held + s.Persons + s.Waiting + s.Ready
		if conflict.Agent != "" || conflict.Unfinished > 0 {
			return conflict
		}
	}
	if k.Definition == definition {
		return nil
	}
	was := k.Definition
	k.Definition = definition
	if err := tx.PutKind(k); err != nil {
		return err
	}
	return tx.Journal(JournalEntry{Actor: me, Action: "define", Subject: kind, Detail: fmt.Sprintf("%q → %q", was, definition), Changed: 1})
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

// Kinds returns all kinds that have a policy or items, by name.
func (l *Ledger) Kinds(ctx context.Context) ([]Kind, error) {
	if err := l.fit(ctx, nil); err != nil {
		return nil, err
	}
	return l.store.Kinds(ctx)
}

// Kind returns the policy of a kind, or ErrNotFound.
func (l *Ledger) Kind(ctx context.Context, name string) (Kind, error) {
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return Kind{}, err
	}
	for _, k := range kinds {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, ErrNotFound
}

// Beat tells the others that this program is alive, for ttl; ttl 0 takes it back.
func (l *Ledger) Beat(ctx context.Context, a Agent, ttl time.Duration) error {
	c := checker{}
	c.agent(a.Name)
	c.text("host", a.Host, MaxAgent)
	c.text("process", a.Process, MaxAgent)
	c.text("version", a.Version, MaxAgent)
	for kind, definition := range a.Kinds {
		c.kind(kind)
		c.text("definition", definition, MaxWorker)
	}
	stalled := make(map[string]time.Time, len(a.Stalled))
	for kind, until := range a.Stalled {
		c.kind(kind)
		stalled[kind] = until.UTC().Truncate(time.Microsecond)
	}
	a.Stalled = stalled
	if (len(a.Kinds)+len(a.Stalled))*(MaxKind+MaxWorker) > maxKinds {
		c.fail("kinds", "%d, too many", len(a.Kinds))
	}
	if c.err != nil {
		return c.err
	}
	if ttl > 0 {
		if err := l.fit(ctx, nil); err != nil {
			return err
		}
	}
	return l.store.Beat(ctx, a, ttl)
}

// Agents returns the programs that work now.
func (l *Ledger) Agents(ctx context.Context) ([]Agent, error) { return l.store.Agents(ctx) }
