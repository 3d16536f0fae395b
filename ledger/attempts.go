package ledger

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger/stats"
)

// AttemptCounts has, for each group, how many attempts ended with each outcome.
type AttemptCounts map[stats.AttemptGroup]map[Outcome]int64

// maxCounted is how many attempts AttemptGroups reads with one query.
const maxCounted = 2_000

// AttemptGroups counts attempts that ended, exactly, by any of stats.ByHour, stats.ByKind, stats.ByScope, stats.ByCode
// and stats.ByWorker. By code it counts only failures, see Outcome.FailedOrUncertain. f applies to each attempt, see
// EndedQuery. It reads from the latest attempt back to f.Since, and stops after within; 0 means no limit. If it
// stopped, reached is when the last attempt that it read ended, else zero. It returns an *InvalidError for more than
// maxGroups groups.
func (l *Ledger) AttemptGroups(ctx context.Context, f Filter, by []string, within time.Duration) (counts AttemptCounts,
	reached time.Time, err error) {
	began, since := time.Now(), f.latest(func(p Filter) time.Time { return p.Since })
	q := EndedQuery{Filter: Filter{Kinds: f.kinds()}, Failed: slices.Contains(by, stats.ByCode) || f.fails(), Desc: true,
		Body: f.asksFields(), Limit: maxCounted}
	for _, p := range f.Parts() {
		if !p.Until.IsZero() && (q.After.At.IsZero() || p.Until.Before(q.After.At)) {
			q.After.At = p.Until.UTC().Truncate(time.Microsecond)
		}
	}
	counts = AttemptCounts{}
	for {
		if err := l.fit(ctx, nil); err != nil {
			return nil, reached, err
		}
		ended, err := l.store.Ended(ctx, q)
		if err != nil {
			return nil, reached, err
		}
		full := len(ended) == q.Limit
		if full {
			q.After = ended[len(ended)-1].Mark()
		}
		if ended, err = l.matching(ctx, f, ended); err != nil {
			return nil, reached, err
		}
		for _, e := range ended {
			counts.add(e, by)
		}
		if len(counts) > maxGroups {
			return nil, reached, &InvalidError{Field: "by", Reason: number.Sprintf("%q has more than %d values",
				strings.Join(by, ","), maxGroups)}
		}
		if !full || q.After.At.Before(since) {
			return counts, time.Time{}, nil
		}
		if within > 0 && time.Since(began) > within {
			return counts, q.After.At, nil
		}
	}
}

func (c AttemptCounts) add(e Ended, by []string) {
	var g stats.AttemptGroup
	for _, name := range by {
		switch name {
		case stats.ByHour:
			g.Hour = e.FinishedAt.Truncate(time.Hour)
		case stats.ByKind:
			g.Kind = e.Kind
		case stats.ByScope:
			g.Scope = e.Scope
		case stats.ByCode:
			g.Code = e.Code
		case stats.ByWorker:
			g.Worker = e.Agent
		}
	}
	if c[g] == nil {
		c[g] = map[Outcome]int64{}
	}
	c[g][e.Outcome]++
}

// Groups returns the groups that were counted, in the order of their hours, kinds, scopes, codes and workers.
func (c AttemptCounts) Groups() []stats.AttemptGroup {
	return slices.SortedFunc(maps.Keys(c), func(a, b stats.AttemptGroup) int {
		return cmp.Or(a.Hour.Compare(b.Hour), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Scope, b.Scope),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Worker, b.Worker))
	})
}

// matching removes from a list the attempts that a filter does not match. It reads the items only for a filter with
// other conditions than kinds and times of ends.
func (l *Ledger) matching(ctx context.Context, f Filter, list []Ended) ([]Ended, error) {
	var items map[int64]*Record
	if f.asksItems() && len(list) > 0 {
		var err error
		if items, err = l.recordsOf(ctx, list, Filter{}, false); err != nil {
			return nil, err
		}
	}
	now, err := l.store.Now(ctx)
	return slices.DeleteFunc(list, func(e Ended) bool {
		r := Record{ID: e.ItemID, Identity: Identity{Kind: e.Kind, Scope: e.Scope, Key: e.Key},
			Stored: Stored{Every: e.Every, Zone: e.Zone}}
		if items != nil {
			known := items[e.ItemID]
			if known == nil { // it was removed meanwhile
				return true
			}
			r = *known
		}
		r.Last, r.Output = &e.Attempt, e.Output
		return !f.Match(&r, now)
	}), err
}

// asksItems reports whether a filter has other conditions than kinds and times of ends.
func (f Filter) asksItems() bool {
	return slices.ContainsFunc(f.Parts(), func(p Filter) bool {
		p.Kinds, p.Since, p.Until, p.Also = nil, time.Time{}, time.Time{}, nil
		return !reflect.ValueOf(p).IsZero()
	})
}
