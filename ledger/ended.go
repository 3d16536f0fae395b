package ledger

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger/order"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// Mark is a place in the order in which attempts ended.
type Mark struct {
	At     time.Time
	ItemID int64
	Number int64 // of the attempt
}

// Compare orders marks as the attempts ended.
func (m Mark) Compare(o Mark) int {
	return cmp.Or(m.At.Compare(o.At), cmp.Compare(m.ItemID, o.ItemID), cmp.Compare(m.Number, o.Number))
}

// EndedQuery asks for attempts in the order in which they ended.
type EndedQuery struct {
	// Filter chooses the items. Its conditions on the newest attempt apply to each attempt instead.
	Filter Filter
	Failed bool // only attempts that failed, crashed, were lost, or have an unknown outcome
	Desc   bool // the latest first
	After  Mark // only attempts after this place, with Desc before it; zero: all
	Body   bool // with the payload of the item and the output of the attempt
	Limit  int  // of attempts: 1 … 10,000, of a store with OnlyItems any number
	// OnlyItems asks a store for nothing but the ids of the items, one for each attempt, in no order. Ledger.Ended does
	// not look at it.
	OnlyItems bool
}

// Ended is an attempt that ended, without its log, and its item.
type Ended struct {
	Attempt
	Scope, Key  string
	Every, Zone string
	Payload     []byte // only with EndedQuery.Body, as Output
}

// Mark returns the place of the attempt in the order of ends.
func (e *Ended) Mark() Mark { return e.mark() }

func (a *Attempt) mark() Mark { return Mark{a.FinishedAt, a.ItemID, a.Attempt} }

// Ended returns attempts in the order in which they ended. A transaction may commit after one that began later. So a
// caller that reads new attempts again and again has to read the newest ones of the last time once more.
func (l *Ledger) Ended(ctx context.Context, q EndedQuery) ([]Ended, error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, err
	}
	if err := l.fit(ctx, nil); err != nil {
		return nil, err
	}
	if !q.After.At.IsZero() {
		q.After.At = q.After.At.UTC().Truncate(time.Microsecond)
	}
	asked := q.Filter
	q.Filter, q.Body, q.OnlyItems = asked.stored(), q.Body || asked.asksFields(), false
	var list []Ended
	for {
		found, err := l.store.Ended(ctx, q)
		if err != nil {
			return list, err
		}
		full := len(found) == q.Limit
		if full {
			q.After = found[len(found)-1].Mark()
		}
		for _, e := range found {
			if len(list) < q.Limit && asked.matchFields(e.Payload, e.Output) {
				list = append(list, e)
			}
		}
		if !full || len(list) == q.Limit {
			nameRounds(list)
			return list, nil
		}
	}
}

// Rounds returns attempts that closed rounds of recurring items, the latest first, until it has q.Limit of them or
// since is reached. Of q it uses only Filter, After and Limit. It reads all attempts of kinds that have recurring
// items. So it may take long, and stops after within; 0 means no limit. next is where to go on; it is the zero mark if
// there is no more.
func (l *Ledger) Rounds(ctx context.Context, q EndedQuery, since time.Time, within time.Duration) (rounds []Ended,
	next Mark, err error) {
	if err := checkLimit(q.Limit); err != nil {
		return nil, Mark{}, err
	}
	began, f := time.Now(), q.Filter
	since = later(since, f.latest(func(p Filter) time.Time { return p.Since }))
	kinds, err := l.store.Recurring(ctx)
	kinds = slices.DeleteFunc(kinds, f.Excludes)
	if err != nil || len(kinds) == 0 {
		return nil, Mark{}, err
	}
	part := EndedQuery{Filter: Filter{Kinds: kinds}, Failed: f.fails(), Desc: true, After: q.After, Body: f.asksFields(),
		Limit: page}
	for {
		ended, err := l.Ended(ctx, part)
		if err != nil {
			return rounds, next, err
		}
		more := len(ended) == part.Limit && !ended[len(ended)-1].FinishedAt.Before(since)
		if more {
			part.After = ended[len(ended)-1].Mark()
		}
		closed, err := l.matching(ctx, f, slices.DeleteFunc(ended, func(e Ended) bool {
			return e.ClosedAs() == RoundOpen || e.FinishedAt.Before(since)
		}))
		rounds = append(rounds, closed...)
		switch {
		case err != nil:
			return rounds, next, err
		case len(rounds) >= q.Limit:
			rounds = rounds[:q.Limit]
			return rounds, rounds[q.Limit-1].Mark(), nil
		case !more:
			return rounds, Mark{}, nil
		case within > 0 && time.Since(began) > within:
			return rounds, part.After, nil
		}
	}
}

// recordsOf returns the records of the attempts' items that match f, by id.
func (l *Ledger) recordsOf(ctx context.Context, list []Ended, f Filter, output bool) (map[int64]*Record, error) {
	ids := make([]int64, len(list))
	for i, e := range list {
		ids[i] = e.ItemID
	}
	return l.recordsByID(ctx, ids, f, output)
}

// recordsByID returns the records with these ids that match f, by id. It sorts ids.
func (l *Ledger) recordsByID(ctx context.Context, ids []int64, f Filter, output bool) (map[int64]*Record, error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	recs, err := l.store.Records(ctx, RecordQuery{Filter: IDs(ids...).And(f), Output: output, Limit: len(ids)})
	byID := make(map[int64]*Record, len(recs))
	for i := range recs {
		byID[recs[i].ID] = &recs[i]
	}
	return byID, err
}

// isNewest reports whether an attempt is the newest of the record that has ended. It is false if r is nil.
func (r *Record) isNewest(e Ended) bool {
	return r != nil && r.Last != nil && r.Last.Attempt == e.Attempt.Attempt
}

// lookBack is the longest time for which Recent reads.
const lookBack = 2 * time.Second

// Recent returns the newest attempt of each of the n items that ended last, in the order in which they ended. n is 1 …
// 10,000. After two seconds it returns those that it has found.
func (l *Ledger) Recent(ctx context.Context, f Filter, n int) ([]Ended, error) {
	if err := checkLimit(n); err != nil {
		return nil, err
	}
	var list []Ended
	newest := &Walk{Filter: f, Order: order.Ended, Desc: true, Time: lookBack}
	err := l.walk(ctx, newest, func(r *Record, _ time.Time) bool {
		list = append(list, Ended{Attempt: *r.Last, Scope: r.Scope, Key: r.Key, Every: r.Every, Zone: r.Zone})
		return len(list) < n
	})
	slices.Reverse(list)
	nameRounds(list)
	return list, err
}

func nameRounds(list []Ended) {
	for i := range list {
		list[i].nameRound(list[i].Every, list[i].Zone)
	}
}

// nameRound names the round of an attempt of an item that recurs in this way.
func (a *Attempt) nameRound(every, zone string) {
	a.Round = roundName(a.Epoch)
	if a.Period.IsZero() {
		return
	}
	if e, err := recurrence.Parse(every, zone); err == nil {
		a.Round = e.Name(a.Period)
	}
}
