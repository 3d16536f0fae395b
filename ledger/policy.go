package ledger

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/ledger/payload"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// SetKind stores the policy of a kind. An empty Definition keeps the stored Definition and Config; nil Defaults keep
// the stored ones.
func (l *Ledger) SetKind(ctx context.Context, actor string, k Kind) error {
	_, err := l.EditKind(ctx, actor, k.Name, func(have *Kind, _ bool) {
		want := k
		if want.Definition == "" {
			want.Definition, want.Config = have.Definition, have.Config
		}
		if want.Defaults == nil {
			want.Defaults = have.Defaults
		}
		*have = want
	})
	return err
}

// EditKind reads the policy of a kind, lets edit change it and stores it, in one transaction; known reports whether the
// kind had a row. edit may be called more than once. A change is written into the journal. EditKind returns the stored
// policy.
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
		want, err := edited(have, known, edit)
		if stored = want; err != nil {
			return err
		}
		changed := difference(have, want)
		if changed == "" {
			return nil
		}
		if err := tx.PutKind(want); err != nil {
			return err
		}
		if want.Paused != have.Paused {
			action := "resume"
			if want.Paused {
				action = actionPause
			}
			if err := tx.Journal(JournalEntry{Actor: actor, Action: action, Subject: name, Detail: BulkActOf(ctx).Asked,
				Changed: 1}); err != nil {
				return err
			}
			have.Paused = want.Paused
		}
		if changed = difference(have, want); changed == "" {
			return nil
		}
		return tx.Journal(JournalEntry{Actor: actor, Action: "set-kind", Subject: name, Detail: changed, Changed: 1})
	})
	if errors.Is(err, ErrDenied) && l.isEdited(ctx, name, edit, &stored) {
		return stored, nil
	}
	return stored, err
}

// isEdited reports whether edit would change nothing, and reads the kind, for a user who may not change kinds.
func (l *Ledger) isEdited(ctx context.Context, name string, edit func(k *Kind, known bool), stored *Kind) bool {
	kinds, err := l.store.Kinds(ctx, name)
	if err != nil || len(kinds) == 0 {
		return false
	}
	*stored, err = edited(kinds[0], true, edit)
	return err == nil && difference(kinds[0], *stored) == ""
}

// edited returns a kind as edit leaves it, in the form in which it is stored.
func edited(have Kind, known bool, edit func(k *Kind, known bool)) (Kind, error) {
	want := have
	edit(&want, known)
	if want.Name != "" && want.Name != have.Name {
		return have, &InvalidError{Field: "name", Hint: "a kind keeps its name",
			Reason: fmt.Sprintf("%q: the kind that is edited is %s", want.Name, have.Name)}
	}
	want.Name = have.Name
	if want.OnLost == OnLostRepeat { // the default, stored as ""
		want.OnLost = ""
	}
	if l := &want.Limits; l.Rate.Count == 0 && l.RatePerShardKey.Count == 0 && l.Burst == have.Limits.Burst {
		l.Burst = 0 // without a rate there is no burst
	}
	c := checker{}
	if c.policy(want); want.Backoff != have.Backoff { // one of an earlier build does not hinder a pause
		c.backoff(want.Backoff)
	}
	return want, c.err
}

// Check returns what SetKind refuses of the policy of a new kind.
func (k Kind) Check() error {
	_, err := edited(Kind{Name: k.Name}, false, func(into *Kind, _ bool) { *into = k })
	return err
}

// actionPause is the action in the journal for a kind that was paused.
const actionPause = "pause"

// pauseTime is the longest time for which Pauses reads.
const pauseTime = 100 * time.Millisecond

// Pauses returns the newest pause in the journal of each of the given kinds that is paused, by kind. It finds none that
// lies so far back that pauseTime is over before. A user who may not read the journal gets none.
func (l *Ledger) Pauses(ctx context.Context, kinds ...Kind) (map[string]JournalEntry, error) {
	missing := map[string]bool{}
	for _, k := range kinds {
		if k.Paused {
			missing[k.Name] = true
		}
	}
	pauses, began := map[string]JournalEntry{}, time.Now()
	for before := int64(0); len(missing) > 0; {
		rows, err := l.store.Journal(ctx, before, journalPage)
		switch {
		case errors.Is(err, ErrDenied):
			return nil, nil
		case err != nil:
			return nil, err
		}
		for _, e := range rows {
			if e.Action == actionPause && missing[e.Subject] {
				pauses[e.Subject] = e
				delete(missing, e.Subject)
			}
		}
		if len(rows) < journalPage || time.Since(began) > pauseTime {
			break
		}
		before = rows[len(rows)-1].ID
	}
	return pauses, nil
}

// difference lists the fields in which two policies differ, by the names that people know: "max_failures: 5 → 3". A
// field that is not set is shown with its default, unless the old or the new value is the same as the default.
func difference(a, b Kind) string {
	have, want, usual := map[string]string{}, map[string]string{}, map[string]string{}
	fields(have, "", reflect.ValueOf(a))
	fields(want, "", reflect.ValueOf(b))
	fields(usual, "", reflect.ValueOf(Kind{}.WithDefaults()))
	var changed []string
	for _, name := range slices.Sorted(maps.Keys(have)) {
		d := definition.Difference{Name: name, Have: have[name], Want: want[name]}
		switch {
		case d.Have == d.Want:
			continue
		case d.Have == "" && d.Want != usual[name]:
			d.Have = usual[name]
		case d.Want == "" && d.Have != usual[name]:
			d.Want = usual[name]
		}
		changed = append(changed, d.String())
	}
	return head(strings.Join(changed, ", "), bounds.MaxError)
}

// fields puts the values of a policy into a map, as text by name. A zero value is "", except that of a bool.
func fields(into map[string]string, name string, v reflect.Value) {
	_, whole := v.Interface().(scheduler.Rate)
	switch d, duration := v.Interface().(time.Duration); {
	case v.Kind() == reflect.Struct && !whole:
		for i := range v.NumField() {
			field := underscored(v.Type().Field(i).Name)
			switch name {
			case "", "limits": // people know limits by the field alone: max_running
			default:
				field = name + "_" + field
			}
			fields(into, field, v.Field(i))
		}
	case v.Kind() == reflect.Bool:
		into[name] = strconv.FormatBool(v.Bool())
	case v.IsZero():
		into[name] = ""
	case duration && d == KeepForever:
		into[name] = "forever"
	case duration:
		into[name] = inUnits(d)
	case v.Type() == reflect.TypeFor[payload.Defaults]():
		into[name] = v.Interface().(payload.Defaults).String()
	case v.Kind() == reflect.Map || v.Kind() == reflect.Slice:
		into[name] = string(JSON(v.Interface()))
	default:
		into[name] = fmt.Sprint(v.Interface())
	}
}

// inUnits is "30d" or "1h30m".
func inUnits(d time.Duration) string {
	const day = 24 * time.Hour
	if d >= day && d%day == 0 {
		return fmt.Sprintf("%dd", d/day)
	}
	text := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(text, zero) {
			text = text[:len(text)-2]
		}
	}
	return text
}

// underscored returns "max_failures" for "MaxFailures".
func underscored(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
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
	c := checker{}
	if c.kind(name); c.err != nil { // such a kind cannot exist, and a database may refuse the text
		return Kind{}, ErrNotFound
	}
	if err := l.fit(ctx, nil); err != nil {
		return Kind{}, err
	}
	kinds, err := l.store.Kinds(ctx, name)
	if err == nil && len(kinds) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Kind{}, err
	}
	return kinds[0], nil
}

// Beat writes the heartbeat of this program for ttl; ttl 0 removes it.
func (l *Ledger) Beat(ctx context.Context, a Agent, ttl time.Duration) error {
	c := checker{}
	c.agent(a.Name)
	c.text("host", a.Host, bounds.MaxAgent)
	c.text("process", a.Process, bounds.MaxAgent)
	c.text("version", a.Version, bounds.MaxAgent)
	for kind, definition := range a.Kinds {
		c.kind(kind)
		c.text("definition", definition, bounds.MaxWorker)
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
		if until = until.UTC().Truncate(time.Microsecond); until.Year() < 0 || until.Year() > 9999 {
			c.fail("stalled", "%q: the time is not between the years 0 and 9999", kind)
			continue
		}
		stalled[kind] = until
	}
	a.Stalled = stalled
	for kind, p := range a.Plugins {
		_, works := a.Kinds[kind]
		if _, stalled := a.Stalled[kind]; !works && !stalled {
			c.fail("plugins", "%q is none of the agent's kinds", kind)
		}
		c.plugin(p)
	}
	if n := len(JSON(a.Kinds)) + len(JSON(a.Stalled)); n > maxKinds {
		c.fail("kinds", "%d kinds take %d bytes as JSON, at most %d; divide them between several programs", len(a.Kinds), n,
			maxKinds)
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

// Agents returns the programs whose heartbeat has not run out and that are not known to be gone.
func (l *Ledger) Agents(ctx context.Context) ([]Agent, error) {
	agents, err := l.store.Agents(ctx)
	return slices.DeleteFunc(agents, l.gone), err
}

// Lapsed returns the programs whose heartbeat has run out and was not removed: they were killed, or cut off from the
// database. They are forgotten after bounds.LapsedKept.
func (l *Ledger) Lapsed(ctx context.Context) ([]Agent, error) {
	live, err := l.store.Agents(ctx)
	if err != nil {
		return nil, err
	}
	lapsed, err := l.store.Lapsed(ctx)
	lapsed = append(lapsed, slices.DeleteFunc(live, func(a Agent) bool { return !l.gone(a) })...)
	byName := func(a, b Agent) int { return strings.Compare(a.Name, b.Name) }
	slices.SortFunc(lapsed, byName)
	// A heartbeat may have run out between the two calls.
	return slices.CompactFunc(lapsed, func(a, b Agent) bool { return byName(a, b) == 0 }), err
}

// Heartbeats is Agents, and those that hold leases though their heartbeat has run out.
func (l *Ledger) Heartbeats(ctx context.Context) ([]Agent, error) { return l.store.Heartbeats(ctx) }
