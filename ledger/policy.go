package ledger

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// SetKind stores the policy of a kind. An empty Definition leaves the one that is there, with its Config, and
// nil Defaults leave those that are there.
func (l *Ledger) SetKind(ctx context.Context, actor string, k Kind) error {
	_, err := l.EditKind(ctx, actor, k.Name, func(have *Kind, _ bool) {
		if k.Definition == "" {
			k.Definition, k.Config = have.Definition, have.Config
		}
		if k.Defaults == nil {
			k.Defaults = have.Defaults
		}
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
	for kind, config := range a.Configs {
		c.config(config)
		_, works := a.Kinds[kind]
		if _, stalled := a.Stalled[kind]; !works && !stalled {
			c.fail("configs", "%q is none of the agent's kinds", kind)
		}
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

// Agents returns the programs that work now: those that were heard of lately and are not known to be gone.
func (l *Ledger) Agents(ctx context.Context) ([]Agent, error) {
	agents, err := l.store.Agents(ctx)
	return slices.DeleteFunc(agents, l.gone), err
}
