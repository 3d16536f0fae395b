package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/definition"
)

// Define states what works a kind from now on, "plugin@version+digest", and with which settings: config is
// a JSON object without secrets, for people. Versions may differ. It returns *DefinitionError while a live
// process works the kind with another plugin or another digest; the digest is of the settings that change
// what a result means. All unfinished items of the kind are worked with the new settings.
//
// me is the agent that is going to work the kind; me.Kinds are the kinds that it works already. Its heartbeat is
// written first, with the definition. So, if two processes define a kind at the same time, at least one sees the other.
func (l *Ledger) Define(ctx context.Context, me Agent, kind, def, config string) error {
	c := checker{}
	c.kind(kind)
	c.text("definition", def, bounds.MaxWorker)
	if c.config(config); def == "" {
		c.fail("definition", "is missing")
	}
	if c.err != nil {
		return c.err
	}
	if _, err := l.ExpireGone(ctx); err != nil { // a process that is gone blocks no other, and may have had our name
		return err
	}
	before := me
	me.Kinds, me.Configs = with(me.Kinds, kind, def), with(me.Configs, kind, config)
	if err := l.Beat(ctx, me, defineTTL); err != nil {
		return err
	}
	err := l.store.Update(ctx, nil, func(tx Tx) error { return define(tx, me.Name, kind, def, config) })
	if errors.Is(err, ErrDenied) {
		err = l.isDefined(ctx, me.Name, kind, def, config, err)
	}
	if err == nil {
		return nil
	}
	ttl := defineTTL
	if len(before.Kinds) == 0 {
		ttl = 0
	}
	return errors.Join(err, l.Beat(context.WithoutCancel(ctx), before, ttl))
}

// defineTTL is how long a heartbeat of Define lasts, until the worker writes its own.
const defineTTL = 30 * time.Second

// with returns a copy of a map with one more entry.
func with(m map[string]string, key, value string) map[string]string {
	if m = maps.Clone(m); m == nil {
		m = map[string]string{}
	}
	m[key] = value
	return m
}

// isDefined returns nil if there is nothing to write, for a user who may not change kinds; else the error of define, or
// denied. It reads the agents after the heartbeat was written, and the kind last. So another process that defines the
// kind now sees that heartbeat, or is seen here, or has written its definition before it is read.
func (l *Ledger) isDefined(ctx context.Context, me, kind, def, config string, denied error) error {
	agents, err := l.store.Agents(ctx)
	if err != nil {
		return err
	}
	kinds, err := l.store.Kinds(ctx, kind)
	switch others := workOtherwise(agents, me, kind, def); {
	case err != nil:
		return err
	case len(kinds) == 0:
		return denied
	case len(others) > 0:
		return &DefinitionError{Kind: kind, Have: kinds[0].Config, Definition: def, Config: config, Agents: others}
	case !defines(kinds[0], def, config):
		return denied
	}
	return nil
}

// defines reports whether a kind has this definition and config already.
func defines(k Kind, def, config string) bool {
	return k.Definition == def && len(definition.Differences(k.Config, config)) == 0
}

// workOtherwise returns the other agents that work a kind with another definition.
func workOtherwise(agents []Agent, me, kind, def string) (others []Agent) {
	for _, a := range agents {
		if d, works := a.Kinds[kind]; works && a.Name != me && !definition.Same(d, def) {
			others = append(others, a)
		}
	}
	return others
}

// define sets the definition and config of a kind, unless other agents work it otherwise.
func define(tx Tx, me, kind, def, config string) error {
	k, _, err := tx.Kind(kind)
	if err != nil {
		return err
	}
	agents, err := tx.Agents()
	if err != nil {
		return err
	}
	if others := workOtherwise(agents, me, kind, def); len(others) > 0 {
		return &DefinitionError{Kind: kind, Have: k.Config, Definition: def, Config: config, Agents: others}
	}
	if defines(k, def, config) {
		return nil
	}
	detail := def
	if k.Definition != "" {
		detail = k.Definition + " → " + def
	}
	if k.Config != "" {
		for _, d := range definition.Differences(k.Config, config) {
			detail += "; " + d.String()
		}
	}
	k.Definition, k.Config = def, config
	if err := tx.PutKind(k); err != nil {
		return err
	}
	return tx.Journal(JournalEntry{Actor: me, Action: "define", Subject: kind, Detail: head(detail, bounds.MaxError),
		Changed: 1})
}

// DefinitionError means that live processes work a kind with another plugin or with other settings.
// It matches [ErrConflict].
type DefinitionError struct {
	Kind               string
	Definition, Config string  // that Define was to set
	Agents             []Agent // the agents with other settings, by name
	Have               string  // config in force, for an agent whose heartbeat has none
}

// Differences returns the settings in which the first of the Agents differs. It may be empty: no config has secrets, so
// a difference in a secret cannot be shown.
func (e *DefinitionError) Differences() []definition.Difference {
	have := cmp.Or(e.Agents[0].Configs[e.Kind], e.Have)
	if have == "" {
		return nil
	}
	return definition.Differences(have, e.Config)
}

func (e *DefinitionError) Error() string {
	a := e.Agents[0]
	s := fmt.Sprintf("kind %q is worked with other settings (%s, not %s) by %s since %s", e.Kind, a.Kinds[e.Kind],
		e.Definition, a.Name, inUTC(a.StartedAt))
	for _, d := range e.Differences() {
		s += "; " + d.String()
	}
	return s
}

// Is makes the error match ErrConflict.
func (e *DefinitionError) Is(target error) bool { return target == ErrConflict }
