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

// RoundCount is how many items have one value of a column and one state of their current round. An item whose round
// newly failed is counted as RoundNewlyFailed and not as RoundFailed; one that recovered is counted as RoundRecovered
// and not as RoundDone.
type RoundCount struct {
	Value []byte // nil: no value
	Round RoundState
	Items int64
}

// maxGroups bounds what Groups returns.
const maxGroups = 10_000

// errFull ends a count with a time limit when there are maxGroups groups.
var errFull = errors.New("too many groups")

// Groups counts the items that match, by kind, scope, shard key, or a field of the payload (dots lead into objects;
// "payload." may come before it, as in filters), in the byte order of their JSON (10 comes before 9); the group without
// a value comes last. It reads for within, from the newest item on; whole means that it has counted all items. If
// within is 0, it counts all of them, at one moment unless the filter asks for fields of payload or output. More than
// maxGroups groups end the count, with an *InvalidError if within is 0.
func (l *Ledger) Groups(ctx context.Context, f Filter, by string, within time.Duration) (all []stats.Group, whole bool,
	err error) {
	column, value := by, func(text []byte) json.RawMessage { return JSON(string(text)) }
	if by != stats.ByKind && by != stats.ByScope && by != stats.ByShardKey {
		path := strings.Split(strings.TrimPrefix(by, stats.ByPayload+"."), ".")
		column, value = stats.ByPayload, func(payload []byte) json.RawMessage { return fieldOf(payload, path) }
	}
	groups := map[string]*stats.Group{}
	whole, err = l.countRounds(ctx, f, column, within, func(t RoundCount) error {
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
		case RoundRecovered:
			g.Recovered += t.Items
			fallthrough
		case RoundDone:
			g.Done += t.Items
		case RoundNewlyFailed:
			g.NewlyFailed += t.Items
			fallthrough
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
		switch { // no two groups have the same value
		case a.Value == nil:
			return 1
		case b.Value == nil:
			return -1
		}
		return bytes.Compare(a.Value, b.Value)
	})
	return all, whole && err == nil, nil
}

// countRounds is Store.CountRounds with a time limit, also for filters that ask for fields.
func (l *Ledger) countRounds(ctx context.Context, f Filter, column string, within time.Duration,
	each func(RoundCount) error) (whole bool, err error) {
	if !f.asksFields() {
		if within == 0 {
			return true, l.store.CountRounds(ctx, f, column, each)
		}
		const newestFirst = true
		return l.windows(ctx, f, newestFirst, within, func(window Filter) (enough bool, err error) {
			return false, l.store.CountRounds(ctx, window, column, each)
		})
	}
	var stopped error // by each
	w := &Walk{Filter: f, Desc: true, Time: within}
	err = l.walk(ctx, w, func(r *Record, now time.Time) bool {
		stopped = each(r.RoundCount(column, now))
		return stopped == nil
	})
	err = cmp.Or(stopped, err)
	return err == nil && !w.Cut, err
}

// RoundCount returns the count of this record alone, as Store.CountRounds returns counts.
func (r *Record) RoundCount(column string, now time.Time) RoundCount {
	c := RoundCount{Round: r.RoundCondition(now), Items: 1}
	switch column {
	case stats.ByKind:
		c.Value = []byte(r.Kind)
	case stats.ByScope:
		c.Value = []byte(r.Scope)
	case stats.ByShardKey:
		c.Value = []byte(cmp.Or(r.ShardKey, r.Key))
	case stats.ByPayload:
		c.Value = r.Payload
	}
	return c
}
