package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Tally is how many items have one value of a column, and one state of their current round.
type Tally struct {
	Value []byte // nil: none
	Round RoundState
	Items int64
}

// maxGroups bounds what Groups returns.
const maxGroups = 10_000

// errFull ends a count for a time at maxGroups.
var errFull = errors.New("as many groups as may be")

// Groups counts the items that match by kind, scope, shard key, or a field of the payload (dots lead into objects;
// "payload." may come before it, as in filters),
// in the order of the values; what has no value comes last. It looks for a time, from the newest item on;
// whole means that these are all. With no time (0) it counts to the end, as everything is at one moment.
// It ends at maxGroups: with *InvalidError if no time was given.
func (l *Ledger) Groups(ctx context.Context, f Filter, by string, within time.Duration) (all []stats.Group, whole bool,
	err error) {
	column, value := by, func(text []byte) json.RawMessage { return JSON(string(text)) }
	if by != stats.ByKind && by != stats.ByScope && by != stats.ByShardKey {
		path := strings.Split(strings.TrimPrefix(by, stats.ByPayload+"."), ".")
		column, value = stats.ByPayload, func(payload []byte) json.RawMessage { return fieldOf(payload, path) }
	}
	groups := map[string]*stats.Group{}
	whole, err = l.tally(ctx, f, column, within, func(t Tally) error {
		v := value(t.Value)
		g := groups[string(v)]
		if g == nil {
			switch {
			case len(groups) < maxGroups:
			case within > 0:
				return errFull
			default:
				return &InvalidError{Field: "by", Reason: number.Sprintf("%q has more than %d values", by, maxGroups)}
			}
			g = &stats.Group{Value: v}
			groups[string(v)] = g
		}
		switch t.Round {
		case RoundDone:
			g.Done += t.Items
		case RoundFailed:
			g.Failed += t.Items
		case RoundDoubt:
			g.Doubt += t.Items
		case RoundCancelled:
			g.Cancelled += t.Items
		case RoundPutOff:
			g.PutOff += t.Items
		default:
			g.Left += t.Items
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFull) {
		return nil, false, err
	}
	all = make([]stats.Group, 0, len(groups))
	for _, g := range groups {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b stats.Group) int {
		if (a.Value == nil) != (b.Value == nil) {
			return cmp.Compare(len(b.Value), len(a.Value))
		}
		return bytes.Compare(a.Value, b.Value)
	})
	return all, whole && err == nil, nil
}

// tally is Store.Tally for a time, also for filters that ask for fields.
func (l *Ledger) tally(ctx context.Context, f Filter, column string, within time.Duration,
	each func(Tally) error) (whole bool, err error) {
	if !f.asksFields() {
		if within == 0 {
			return true, l.store.Tally(ctx, f, column, each)
		}
		return l.windows(ctx, f, true, within, func(window Filter) (bool, error) {
			return false, l.store.Tally(ctx, window, column, each)
		})
	}
	var told error
	w := &Walk{Filter: f, Desc: true, Time: within}
	err = l.walk(ctx, w, func(r *Record, now time.Time) bool {
		value := map[string][]byte{stats.ByKind: []byte(r.Kind), stats.ByScope: []byte(r.Scope),
			stats.ByShardKey: []byte(cmp.Or(r.ShardKey, r.Key)), stats.ByPayload: r.Payload}[column]
		told = each(Tally{Value: value, Round: r.RoundState(now), Items: 1})
		return told == nil
	})
	if told != nil {
		err = told
	}
	return err == nil && !w.Cut, err
}
