package ledger

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// SetKind stores the policy of a kind.
func (l *Ledger) SetKind(ctx context.Context, actor string, k Kind) error {
	_, err := l.EditKind(ctx, actor, k.Name, func(have *Kind, _ bool) { *have = k })
	return err
}

// EditKind reads the policy of a kind, lets edit change it and stores it, in one transaction;
// known says whether the kind had a row. A change is journalled. It returns what is stored.
func (l *Ledger) EditKind(ctx context.Context, actor, name string, edit func(k *Kind, known bool)) (Kind, error) {
	c := checker{}
	if c.kind(name); c.err != nil {
		return Kind{}, c.err
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
		stored = want
		c := checker{}
		if c.policy(want); c.err != nil {
			return c.err
		}
		changed := difference(have, want)
		if changed == "" {
			return nil
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
func (l *Ledger) Define(ctx context.Context, actor, kind, definition string) error {
	return l.store.Update(ctx, nil, func(tx Tx) error {
		k, _, err := tx.Kind(kind)
		if err != nil || k.Definition == definition {
			return err
		}
		if k.Definition != "" && definition != "" && !sameDefinition(k.Definition, definition) {
			s, err := tx.Standing(kind)
			if err != nil {
				return err
			}
			agents, err := tx.Agents()
			if err != nil {
				return err
			}
			conflict := &DefinitionError{Kind: kind, Have: k.Definition, Want: definition, Unfinished: s.Held + s.Persons + s.Waiting + s.Ready}
			for _, a := range agents {
				if d, works := a.Kinds[kind]; works && !sameDefinition(d, definition) {
					conflict.Agent, conflict.Since = a.Name, a.StartedAt
				}
			}
			if conflict.Unfinished > 0 || conflict.Agent != "" {
				return conflict
			}
		}
		k.Definition = definition
		return tx.PutKind(k)
	})
}

// sameDefinition compares plugin and digest, not the version.
func sameDefinition(a, b string) bool {
	cut := func(s string) (string, string) {
		name, rest, _ := strings.Cut(s, "@")
		_, digest, _ := strings.Cut(rest, "+")
		return name, digest
	}
	na, da := cut(a)
	nb, db := cut(b)
	return na == nb && da == db
}

// Kinds returns all kinds that have a policy or items, by name.
func (l *Ledger) Kinds(ctx context.Context) ([]Kind, error) { return l.store.Kinds(ctx) }

// Kind returns the policy of a kind, or ErrNotFound.
func (l *Ledger) Kind(ctx context.Context, name string) (Kind, error) {
	kinds, err := l.store.Kinds(ctx)
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
	if c.agent(a.Name); c.err != nil {
		return c.err
	}
	return l.store.Beat(ctx, a, ttl)
}

// Agents returns the programs that work now.
func (l *Ledger) Agents(ctx context.Context) ([]Agent, error) { return l.store.Agents(ctx) }
