package ledger

import (
	"context"
	"slices"
	"time"
)

// Parts returns all filters that must match for f to match: f and those of Also.
func (f Filter) Parts() []Filter {
	all := []Filter{f}
	for _, g := range f.Also {
		all = append(all, g.Parts()...)
	}
	return all
}

// fails reports whether the filter matches only items whose newest attempt failed, see [Outcome.FailedOrUncertain].
func (f Filter) fails() bool {
	return slices.ContainsFunc(f.Parts(), func(p Filter) bool {
		return len(p.Outcomes) > 0 && !slices.ContainsFunc(p.Outcomes, func(o Outcome) bool { return !o.FailedOrUncertain() })
	})
}

// latest returns the latest time of all parts.
func (f Filter) latest(of func(Filter) time.Time) (at time.Time) {
	for _, p := range f.Parts() {
		at = later(at, of(p))
	}
	return at
}

// kinds returns kinds such that no item of another kind matches; nil if the filter does not name any.
func (f Filter) kinds() []string {
	for _, p := range f.Parts() {
		if len(p.Kinds) > 0 {
			return p.Kinds
		}
	}
	return nil
}

// Excludes reports whether a filter matches no item of a kind because it names other kinds.
func (f Filter) Excludes(kind string) bool {
	return slices.ContainsFunc(f.Parts(), func(p Filter) bool {
		return len(p.Kinds) > 0 && !slices.Contains(p.Kinds, kind)
	})
}

// Only reports whether the filter matches only items in these states.
func (f Filter) Only(states ...State) bool {
	return slices.ContainsFunc(f.Parts(), func(p Filter) bool {
		return len(p.States) > 0 && !slices.ContainsFunc(p.States, func(s State) bool { return !slices.Contains(states, s) })
	})
}

// atIndex reports whether an index leads to the items that the filter can match.
func (f Filter) atIndex() bool {
	return f.NamesItems() || f.Only(StateDead, StateDoubt) || f.Only(StateLeased)
}

// NamesItems reports whether the filter names the items that it can match, by id or by identity.
func (f Filter) NamesItems() bool {
	has := func(names func(Filter) bool) bool { return slices.ContainsFunc(f.Parts(), names) }
	return has(func(p Filter) bool { return p.IDs != nil }) ||
		has(func(p Filter) bool { return p.Key != "" }) && has(func(p Filter) bool { return len(p.Kinds) > 0 }) &&
			has(func(p Filter) bool { return len(p.Scopes) > 0 })
}

// Bounds returns the bounds of the ids that a filter can match: greater than above, at most upTo.
func (f Filter) Bounds() (above, upTo int64) {
	upTo = maxID
	for _, p := range f.Parts() {
		above = max(above, p.Above)
		if p.UpTo > 0 {
			upTo = min(upTo, p.UpTo)
		}
	}
	return above, upTo
}

const maxID = 1<<63 - 1

// Sizes of windows, in ids.
const (
	firstWindow = 4096
	leastWindow = 512
	maxWindow   = 1 << 16 // after many ids without an item that matches, the next ones may all have one
	windowTime  = 50 * time.Millisecond

	// Where an index leads to the items, ids without one cost nothing.
	firstIndexWindow = 1 << 17
	maxIndexWindow   = 1 << 20
)

// stretch is a range of ids that is read window by window.
type stretch struct {
	filter      Filter
	desc        bool
	above, upTo int64 // the ids that are left
	last        int64 // the greatest id of the ledger; the window that passes it has no upper bound
	size        int64
	most        int64 // the largest window
	largest     int   // the number of these
	done        bool
}

// stretch returns the range of the ids that a filter can match. A filter that names its items, by id or by kind, scope
// and key, is read in one window: an index leads to these items only.
func (l *Ledger) stretch(ctx context.Context, f Filter, desc bool) (*stretch, error) {
	s := &stretch{filter: f, desc: desc, size: firstWindow, most: maxWindow}
	if f.atIndex() {
		s.size, s.most = firstIndexWindow, maxIndexWindow
	}
	s.above, s.upTo = f.Bounds()
	if s.done = s.above >= s.upTo; s.done {
		return s, nil
	}
	if f.NamesItems() {
		s.size = maxID
		return s, nil
	}
	newest, err := l.store.Records(ctx, RecordQuery{Desc: true, Limit: 1})
	if err != nil || len(newest) == 0 {
		s.done = true
		return s, err
	}
	s.last = newest[0].ID
	if desc {
		s.upTo = min(s.upTo, s.last)
		s.done = s.above >= s.upTo
	}
	return s, nil
}

// bounds returns the bounds of the next window.
func (s *stretch) bounds() (above, upTo int64) {
	switch {
	case s.size >= s.upTo-s.above, !s.desc && s.last-s.above <= s.size:
		return s.above, s.upTo
	case s.desc:
		return s.upTo - s.size, s.upTo
	}
	return s.above, s.above + s.size
}

func (s *stretch) window() Filter {
	above, upTo := s.bounds()
	return s.filter.And(Filter{Above: above, UpTo: upTo})
}

// reached records that all ids up to id have been read, with desc down to id.
func (s *stretch) reached(id int64) {
	if s.desc {
		s.upTo = id - 1
	} else {
		s.above = id
	}
	s.done = s.above >= s.upTo
}

// next records that the window has been read. At the same pace the next one takes windowTime, or left if that is less;
// 0 means no limit. It is at most twice as large.
func (s *stretch) next(took, left time.Duration) {
	above, upTo := s.bounds()
	if s.desc {
		s.upTo = above
	} else {
		s.above = upTo
	}
	if s.done = s.above >= s.upTo; s.done {
		return
	}
	aim := windowTime
	if left > 0 {
		aim = min(aim, left)
	}
	growth := min(2, float64(aim)/float64(max(took, 1)))
	s.size = min(max(leastWindow, int64(float64(s.size)*growth)), s.most)
}

// pass is next for a range that may have many ids in a row without an item, because Restored has raised the ids. So it
// looks for the next item now and then: after 1, 2, 4 … of the largest windows.
func (l *Ledger) pass(ctx context.Context, s *stretch, took, left time.Duration) error {
	if s.next(took, left); s.done || s.size != s.most {
		return nil
	}
	if s.largest++; s.largest&(s.largest-1) != 0 {
		return nil
	}
	recs, err := l.store.Records(ctx, RecordQuery{Filter: Filter{Above: s.above, UpTo: s.upTo}, Desc: s.desc, Limit: 1})
	switch {
	case err != nil:
		return err
	case len(recs) == 0:
		s.done = true
	case s.desc:
		s.upTo = recs[0].ID
	default:
		s.above = recs[0].ID - 1
	}
	return nil
}

// place returns the id after which a later walk continues, for Walk.After.
func (s *stretch) place() int64 {
	if s.desc {
		return s.upTo + 1
	}
	return s.above
}

// maxLate is the longest time that a transaction that adds an item may last, or that a clock may step back. Ids rise
// with the time of adding, except for differences below maxLate.
const maxLate = time.Hour

// maxEnded is the most attempts that ended since a time for which their items are read one by one. A reader with
// little time takes only as many as it can read in a part of it, with endedTime for each.
const (
	maxEnded  = 50_000
	endedTime = 20 * time.Microsecond
)

// maxScopes is the most scopes of a kind in which a key is looked up.
const maxScopes = 10_000

// byIdentity turns a filter with a key into one that names items. It looks the key up in each scope of each kind, by
// the index of identities. If a kind has too many scopes, it returns the filter unchanged.
func (l *Ledger) byIdentity(ctx context.Context, f Filter) (Filter, error) {
	i := slices.IndexFunc(f.Parts(), func(p Filter) bool { return p.Key != "" })
	if i < 0 || f.NamesItems() {
		return f, nil
	}
	names := f.kinds()
	if names == nil {
		kinds, err := l.store.Kinds(ctx)
		if err != nil {
			return f, err
		}
		for _, k := range kinds {
			names = append(names, k.Name)
		}
	}
	ids := []int64{}
	for _, kind := range names {
		scopes, err := l.store.Scopes(ctx, kind, maxScopes)
		if err != nil || len(scopes) == maxScopes {
			return f, err
		}
		for some := range slices.Chunk(scopes, page) {
			found, err := l.store.Records(ctx, RecordQuery{Filter: Filter{Kinds: []string{kind}, Scopes: some,
				Key: f.Parts()[i].Key}, Limit: len(some)})
			if err != nil {
				return f, err
			}
			for _, r := range found {
				ids = append(ids, r.ID)
			}
		}
	}
	return f.And(IDs(ids...)), nil
}

// spans returns filters that together match what f matches, in the order of ids. No index has the times of items, so
// times of f become bounds of ids. An item that was added before f.Since matches only if it ended after it: if such
// items are few, spans reads them by the ends of attempts and names their ids. within is the time of the reader; 0
// means no limit.
func (l *Ledger) spans(ctx context.Context, f Filter, within time.Duration) ([]Filter, error) {
	var bounds Filter
	f, err := l.byIdentity(ctx, f)
	if err != nil || f.NamesItems() {
		return []Filter{f}, err
	}
	from, to := f.latest(func(p Filter) time.Time { return p.AddedFrom }), time.Time{}
	for _, p := range f.Parts() {
		if !p.AddedTo.IsZero() && (to.IsZero() || p.AddedTo.Before(to)) {
			to = p.AddedTo
		}
	}
	if !from.IsZero() {
		if bounds.Above, _, err = l.idsAround(ctx, from.Add(-maxLate)); err != nil {
			return nil, err
		}
	}
	if !to.IsZero() {
		if _, bounds.UpTo, err = l.idsAround(ctx, to.Add(maxLate)); err != nil {
			return nil, err
		}
	}
	f = f.And(bounds)
	since := f.latest(func(p Filter) time.Time { return p.Since })
	if since.IsZero() || f.atIndex() {
		return []Filter{f}, nil
	}
	most := maxEnded
	if within > 0 {
		most = min(most, int(within/endedTime))
	}
	ended, err := l.store.Ended(ctx, EndedQuery{Filter: Filter{Kinds: f.kinds()}, After: Mark{At: since},
		Limit: most, OnlyItems: true})
	if err != nil || len(ended) >= most {
		return []Filter{f}, err
	}
	before, _, err := l.idsAround(ctx, since.Add(-maxLate))
	if err != nil {
		return nil, err
	}
	ids := []int64{}
	for _, e := range ended {
		if e.ItemID <= before {
			ids = append(ids, e.ItemID)
		}
	}
	slices.Sort(ids)
	return []Filter{f.And(IDs(slices.Compact(ids)...)), f.And(Filter{Above: before})}, nil
}

// idsAround finds, by binary search, the id before of an item that was added before a time, and the id since of an item
// that was added later. There are at most leastWindow ids between them. 0 means that there is no such item.
func (l *Ledger) idsAround(ctx context.Context, at time.Time) (before, since int64, err error) {
	newest, err := l.store.Records(ctx, RecordQuery{Desc: true, Limit: 1})
	if err != nil || len(newest) == 0 {
		return 0, 0, err
	}
	for end := newest[0].ID + 1; end-before > leastWindow; {
		middle := before + (end-before)/2
		found, err := l.store.Records(ctx, RecordQuery{Filter: Filter{Above: middle - 1}, Limit: 1})
		if err != nil {
			return 0, 0, err
		}
		if len(found) > 0 && found[0].CreatedAt.Before(at) {
			before = found[0].ID
			continue
		}
		end = middle
		if len(found) > 0 {
			since = found[0].ID
		}
	}
	return before, since, nil
}

// windows calls look with f in windows of ids, until look has enough, or until the time within is over (0: no limit).
// whole reports whether all items were read.
func (l *Ledger) windows(ctx context.Context, f Filter, desc bool, within time.Duration, look func(Filter) (enough bool,
	err error)) (whole bool, err error) {
	began, looked := time.Now(), false
	spans, err := l.spans(ctx, f, within)
	if err != nil {
		return false, err
	}
	if desc {
		slices.Reverse(spans)
	}
	for _, span := range spans {
		s, err := l.stretch(ctx, span, desc)
		if err != nil {
			return false, err
		}
		for !s.done {
			start := time.Now()
			left := within - start.Sub(began)
			if looked && within > 0 && left < 0 {
				return false, nil
			}
			looked = true
			if enough, err := look(s.window()); enough || err != nil {
				return false, err
			}
			took := time.Since(start)
			if err := l.pass(ctx, s, took, left-took); err != nil {
				return false, err
			}
		}
	}
	return true, nil
}

// CountUpTo counts the items that match, at most most of them (0: all), for at most within (0: no limit). whole reports
// whether it has counted all.
func (l *Ledger) CountUpTo(ctx context.Context, f Filter, most int64, within time.Duration) (n int64, whole bool,
	err error) {
	enough := func() bool { return most > 0 && n > most }
	defer func() {
		if enough() {
			n = most
		}
	}()
	if f.asksFields() {
		w := &Walk{Filter: f, Time: within}
		err = l.walk(ctx, w, func(*Record, time.Time) bool { n++; return !enough() })
		return n, err == nil && !w.Cut && !enough(), err
	}
	const newestFirst = true // what is not finished is mostly there
	whole, err = l.windows(ctx, f, newestFirst, within, func(window Filter) (bool, error) {
		found, err := l.store.Count(ctx, window)
		n += found
		return enough(), err
	})
	return n, whole, err
}
