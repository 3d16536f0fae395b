package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Add adds items. The items of one request are one transaction. If an answer is lost, Add sends the request again: the
// server knows an item by its key.
func (l *Ledger) Add(ctx context.Context, items ...ledger.NewItem) ([]ledger.Added, error) {
	return l.add(ctx, items, false)
}

// Try returns what Add would return, and adds nothing.
func (l *Ledger) Try(ctx context.Context, items ...ledger.NewItem) ([]ledger.Added, error) {
	return l.add(ctx, items, true)
}

func (l *Ledger) add(ctx context.Context, items []ledger.NewItem, try bool) (all []ledger.Added, err error) {
	for i := range items { // in JSON a text that is not UTF-8 would become another one
		if bad, ok := errors.AsType[*ledger.InvalidError](ledger.CheckItem(items[i])); ok {
			bad.Index = i
			return nil, bad
		}
	}
	bulk := ledger.BulkActOf(ctx)
	for part := range parts(items, calls.MostAdded, func(it ledger.NewItem) int {
		return 2*(len(it.Payload)+len(it.Key)+len(it.ShardKey)+len(it.Source)) + 500
	}) {
		in := calls.AddIn{Items: part, Try: try}
		if bulk.Actor != "" {
			in.Bulk = bulk
		}
		out, err := look(ctx, l, calls.Add, in)
		if err != nil {
			return nil, err
		}
		if out.Bulk != nil {
			actor := bulk.Actor
			*bulk = *out.Bulk
			bulk.Actor = actor
		}
		all = append(all, out.Added...)
	}
	return all, nil
}

// parts cuts a list into parts. A part has at most most entries, and about sendMost bytes unless one entry is larger.
func parts[T any](list []T, most int, size func(T) int) func(func([]T) bool) {
	return func(yield func([]T) bool) {
		for from := 0; from < len(list); {
			to, bytes := from, 0
			for to < len(list) && to-from < most && (to == from || bytes+size(list[to]) <= sendMost) {
				bytes += size(list[to])
				to++
			}
			if !yield(list[from:to]) {
				return
			}
			from = to
		}
	}
}

// act lists the items that match, and has the server change them page by page. The server changes only items that still
// match. If an answer is lost, act does not send the page again, because it could not report the first changes.
func (l *Ledger) act(ctx context.Context, f ledger.Filter, in calls.ActIn, how []ledger.ActOption) (n, left int64,
	err error) {
	in.Options = in.Options.Of(how...)
	tell := in.Options.Tell
	in.Bulk = ledger.BulkActOf(ctx)
	flush := func(ids []int64) error {
		in.Filter = ledger.IDs(ids...)
		in.Filter.Also = []ledger.Filter{f}
		out, err := change(ctx, l, calls.Act, in)
		if err != nil {
			return err
		}
		*in.Bulk = *out.Bulk
		n, left = n+int64(len(out.IDs)), left+out.Left
		if tell != nil && len(out.IDs) > 0 {
			tell(out.IDs)
		}
		return nil
	}
	var ids []int64
	for it, err := range l.List(ctx, f, 0) {
		if err != nil {
			return n, left, err
		}
		if ids = append(ids, it.ID); len(ids) == calls.MostActed {
			if err := flush(ids); err != nil {
				return n, left, err
			}
			ids = ids[:0]
		}
	}
	if len(ids) > 0 {
		err = flush(ids)
	}
	return n, left, err
}

// Retry makes dead and doubtful items, and those that wait after a failure, ready. The journal of the server
// has the name of the token beside the actor.
func (l *Ledger) Retry(ctx context.Context, actor string, f ledger.Filter, how ...ledger.ActOption) (int64, error) {
	n, _, err := l.act(ctx, f, calls.ActIn{Act: calls.Retry, Actor: actor}, how)
	return n, err
}

// Reopen makes completed and cancelled items ready once more.
func (l *Ledger) Reopen(ctx context.Context, actor string, f ledger.Filter, how ...ledger.ActOption) (int64, error) {
	n, _, err := l.act(ctx, f, calls.ActIn{Act: calls.Reopen, Actor: actor}, how)
	return n, err
}

// Cancel withdraws unfinished items.
func (l *Ledger) Cancel(ctx context.Context, actor string, f ledger.Filter, how ...ledger.ActOption) (int64, error) {
	n, _, err := l.act(ctx, f, calls.ActIn{Act: calls.Cancel, Actor: actor}, how)
	return n, err
}

// ForceRelease takes leased items from their holders.
func (l *Ledger) ForceRelease(ctx context.Context, actor string, f ledger.Filter,
	how ...ledger.ActOption) (int64, error) {
	n, _, err := l.act(ctx, f, calls.ActIn{Act: calls.Release, Actor: actor}, how)
	return n, err
}

// Place gives items a priority.
func (l *Ledger) Place(ctx context.Context, actor string, f ledger.Filter, priority int16,
	how ...ledger.ActOption) (int64, error) {
	how = append(slices.Clip(how), ledger.WithPriority(priority))
	n, _, err := l.act(ctx, f, calls.ActIn{Act: calls.Place, Actor: actor}, how)
	return n, err
}

// PutOff makes items wait until a time.
func (l *Ledger) PutOff(ctx context.Context, actor string, f ledger.Filter, until time.Time,
	how ...ledger.ActOption) (int64, error) {
	n, _, err := l.act(ctx, f, calls.ActIn{Act: calls.PutOff, Actor: actor, Until: until}, how)
	return n, err
}

// Forget removes completed and cancelled items with their identity.
func (l *Ledger) Forget(ctx context.Context, actor string, f ledger.Filter,
	how ...ledger.ActOption) (forgotten, left int64, err error) {
	return l.act(ctx, f, calls.ActIn{Act: calls.Forget, Actor: actor}, how)
}

// DecideAll settles items that are dead or in doubt.
func (l *Ledger) DecideAll(ctx context.Context, agent string, f ledger.Filter, res ledger.Result,
	how ...ledger.ActOption) (int64, error) {
	n, _, err := l.act(ctx, f, calls.ActIn{Act: calls.DecideAll, Agent: agent, Result: res}, how)
	return n, err
}

// Decide settles one dead or doubtful item.
func (l *Ledger) Decide(ctx context.Context, id int64, agent string, res ledger.Result) error {
	bulk := ledger.BulkActOf(ctx)
	out, err := change(ctx, l, calls.Act, calls.ActIn{Act: calls.Decide, Filter: ledger.IDs(id), Agent: agent, Result: res,
		Bulk: bulk})
	if err == nil {
		*bulk = *out.Bulk
	}
	return err
}

// maxEdits is how often EditKind tries to change a policy that others change at the same time.
const maxEdits = 10

// EditKind reads the policy of a kind and lets edit change it. The server stores the policy if it was not changed
// meanwhile; else EditKind begins again. If edit leaves a known policy as it is, nothing is sent, so the caller needs
// no right to change it.
func (l *Ledger) EditKind(ctx context.Context, actor, name string, edit func(k *ledger.Kind, known bool)) (ledger.Kind,
	error) {
	for range maxEdits {
		have, err := l.Kind(ctx, name)
		known := err == nil
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return have, err
		}
		have.Name = name
		want := have
		edit(&want, known)
		want.Name = name
		text, err := json.Marshal(have)
		if err != nil {
			return have, err
		}
		if now, err := json.Marshal(want); known && err == nil && bytes.Equal(now, text) {
			return have, nil
		}
		out, err := change(ctx, l, calls.EditKind, calls.EditKindIn{Actor: actor, Name: name, Have: text, Want: want,
			Asked: ledger.BulkActOf(ctx).Asked})
		if err != nil || !out.Stale {
			return out.Kind, err
		}
	}
	return ledger.Kind{}, failure.New(failure.ExitTemporary, "conflict", "others keep changing the policy of kind "+
		name, "try again")
}

// Define states the definition and the config with which an agent works a kind from now on.
func (l *Ledger) Define(ctx context.Context, me ledger.Agent, kind, definition, config string) error {
	out, err := look(ctx, l, calls.Define, calls.DefineIn{Agent: me, Kind: kind, Definition: definition, Config: config})
	if err == nil && out.Conflict != nil {
		return out.Conflict
	}
	return err
}

// Pauses returns the newest pause of each kind from the journal.
func (l *Ledger) Pauses(ctx context.Context, kinds ...ledger.Kind) (map[string]ledger.JournalEntry, error) {
	if !slices.ContainsFunc(kinds, func(k ledger.Kind) bool { return k.Paused }) {
		return nil, nil
	}
	return look(ctx, l, calls.Pauses, calls.PausesIn{Kinds: kinds})
}

// Beat writes the heartbeat of an agent; ttl is how long it is valid.
func (l *Ledger) Beat(ctx context.Context, a ledger.Agent, ttl time.Duration) error {
	_, err := change(ctx, l, calls.Beat, calls.BeatIn{Agent: a, TTL: ttl})
	return err
}

// AddTallies adds counts of ended attempts to the figures.
func (l *Ledger) AddTallies(ctx context.Context, tallies ...stats.Minute) error {
	_, err := change(ctx, l, calls.AddTallies, calls.TalliesIn{Minutes: tallies})
	return err
}
