package remote

import (
	"context"
	"iter"
	"time"

	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Now is the clock of the database behind the server.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	return look(ctx, l, calls.Now, calls.None{})
}

// Get returns an item by id.
func (l *Ledger) Get(ctx context.Context, id int64) (ledger.Item, error) {
	return l.first(ctx, ledger.IDs(id))
}

// Find returns an item by identity.
func (l *Ledger) Find(ctx context.Context, kind, scope, key string) (ledger.Item, error) {
	if key == "" {
		return ledger.Item{}, ledger.ErrNotFound
	}
	return l.first(ctx, ledger.Filter{Kinds: []string{kind}, Scopes: []string{scope}, Key: key})
}

// first is the first item that matches.
func (l *Ledger) first(ctx context.Context, f ledger.Filter) (ledger.Item, error) {
	for it, err := range l.List(ctx, f, 0) {
		return it, err
	}
	return ledger.Item{}, ledger.ErrNotFound
}

// List yields the items that match and have an id above after.
func (l *Ledger) List(ctx context.Context, f ledger.Filter, after int64) iter.Seq2[ledger.Item, error] {
	return l.Walk(ctx, &ledger.Walk{Filter: f, After: ledger.Mark{ItemID: after}})
}

// Walk yields the items in parts, as the server gives them.
func (l *Ledger) Walk(ctx context.Context, w *ledger.Walk) iter.Seq2[ledger.Item, error] {
	return func(yield func(ledger.Item, error) bool) {
		began := time.Now()
		in := calls.WalkIn{Filter: w.Filter, Order: w.Order, Desc: w.Desc, After: w.After, Output: w.Output, Top: w.Top,
			Limit: calls.MostWalked}
		for w.Reached = w.After; ; in.After = w.Reached {
			if w.Time > 0 {
				in.Time = w.Time - time.Since(began)
				if in.Time <= 0 {
					w.Cut = true
					return
				}
			}
			out, err := look(ctx, l, calls.Walk, in)
			if err != nil {
				yield(ledger.Item{}, err)
				return
			}
			w.Reached = out.Reached
			for _, it := range out.Items {
				if !yield(it, nil) {
					return
				}
			}
			if !out.More {
				return
			}
			if w.Top > 0 { // an order without an index has one part; the server had no time for the rest
				w.Cut = true
				return
			}
		}
	}
}

// Count counts the items that match.
func (l *Ledger) Count(ctx context.Context, f ledger.Filter) (int64, error) {
	c, err := look(ctx, l, calls.Count, calls.CountIn{Filter: f})
	return c.N, err
}

// CountUpTo counts the items that match, up to most of them and for at most the time within.
func (l *Ledger) CountUpTo(ctx context.Context, f ledger.Filter, most int64, within time.Duration) (int64, bool,
	error) {
	c, err := look(ctx, l, calls.Count, calls.CountIn{Filter: f, UpTo: true, Most: most, Within: within})
	return c.N, c.Whole, err
}

// AttemptsBefore returns up to limit ended attempts of an item, newest first: those with a number below before, or all
// if before is 0. It takes several calls if limit is above calls.MostAttempts.
func (l *Ledger) AttemptsBefore(ctx context.Context, id, before int64, limit int) (list []ledger.Attempt, err error) {
	for {
		in := calls.AttemptsIn{ID: id, Before: before, Limit: min(limit-len(list), calls.MostAttempts)}
		part, err := look(ctx, l, calls.Attempts, in)
		list = append(list, part...)
		if err != nil || len(part) < in.Limit || len(list) >= limit {
			return list, err
		}
		before = part[len(part)-1].Attempt
	}
}

// LastOutput is the output of the newest completed round of an item.
func (l *Ledger) LastOutput(ctx context.Context, id int64) ([]byte, error) {
	return look(ctx, l, calls.LastOutput, calls.ItemIn{ID: id})
}

// Why describes what an item waits for.
func (l *Ledger) Why(ctx context.Context, id int64) (ledger.Reason, error) {
	return look(ctx, l, calls.Why, calls.ItemIn{ID: id})
}

// Ended returns attempts in the order in which they ended.
func (l *Ledger) Ended(ctx context.Context, q ledger.EndedQuery) (all []ledger.Ended, err error) {
	for want := q.Limit; ; {
		q.Limit = min(want-len(all), calls.MostWalked)
		part, err := look(ctx, l, calls.Ended, q)
		all = append(all, part...)
		if err != nil || len(part) < q.Limit || len(all) >= want {
			return all, err
		}
		q.After = part[len(part)-1].Mark()
	}
}

// Recent returns the newest attempts of the items that ended last.
func (l *Ledger) Recent(ctx context.Context, f ledger.Filter, n int) ([]ledger.Ended, error) {
	return look(ctx, l, calls.Recent, calls.RecentIn{Filter: f, N: n})
}

// Journal returns entries of the journal.
func (l *Ledger) Journal(ctx context.Context, q ledger.JournalQuery) ([]ledger.JournalEntry, error) {
	found, _, err := l.JournalPart(ctx, q, 0)
	return found[:max(min(len(found), q.Limit), 0)], err
}

// JournalPart is Journal for a list that is read in parts.
func (l *Ledger) JournalPart(ctx context.Context, q ledger.JournalQuery, within time.Duration) ([]ledger.JournalEntry,
	ledger.JournalQuery, error) {
	out, err := look(ctx, l, calls.Journal, calls.JournalIn{Query: q, Within: within})
	return out.Entries, out.Next, err
}

// Known reports for each identity whether the ledger has it.
func (l *Ledger) Known(ctx context.Context, keys ...ledger.Identity) ([]bool, error) {
	return look(ctx, l, calls.Known, calls.KnownIn{Keys: keys})
}

// Stats counts the backlog, and the attempts that ended in the last hour.
func (l *Ledger) Stats(ctx context.Context) (stats.Summary, error) {
	return look(ctx, l, calls.Stats, calls.None{})
}

// Counts counts the backlog, and the attempts that ended since.
func (l *Ledger) Counts(ctx context.Context, since time.Time) ([]stats.Counts, error) {
	return look(ctx, l, calls.Counts, calls.CountsIn{Since: since})
}

// Standing counts the open items of a kind.
func (l *Ledger) Standing(ctx context.Context, kind string) (stats.Standing, error) {
	return l.StandingIn(ctx, kind, scheduler.Shard{})
}

// StandingIn is Standing of one shard.
func (l *Ledger) StandingIn(ctx context.Context, kind string, part scheduler.Shard) (stats.Standing, error) {
	return look(ctx, l, calls.Standing, calls.StandingIn{Kind: kind, Shard: part})
}

// Groups counts items by what they have in common.
func (l *Ledger) Groups(ctx context.Context, f ledger.Filter, by string, within time.Duration) ([]stats.Group, bool,
	error) {
	out, err := look(ctx, l, calls.Groups, calls.GroupsIn{Filter: f, By: by, Within: within})
	for i := range out.Groups {
		if string(out.Groups[i].Value) == "null" { // there is no value
			out.Groups[i].Value = nil
		}
	}
	return out.Groups, out.Whole, err
}

// AttemptGroups counts attempts by what they have in common.
func (l *Ledger) AttemptGroups(ctx context.Context, f ledger.Filter, by []string,
	within time.Duration) (ledger.AttemptCounts, time.Time, error) {
	out, err := look(ctx, l, calls.AttemptGroups, calls.AttemptGroupsIn{Filter: f, By: by, Within: within})
	counts := ledger.AttemptCounts{}
	for _, g := range out.Groups {
		g.Hour = g.Hour.UTC()
		counts[g.AttemptGroup] = g.Counts
	}
	return counts, out.Reached, err
}

// Agents are the programs that work.
func (l *Ledger) Agents(ctx context.Context) ([]ledger.Agent, error) {
	return look(ctx, l, calls.Agents, calls.None{})
}

// Lapsed returns the programs whose heartbeat has expired, and that did not end in order.
func (l *Ledger) Lapsed(ctx context.Context) ([]ledger.Agent, error) {
	return look(ctx, l, calls.Lapsed, calls.None{})
}

// Heartbeats returns the newest heartbeat of each program.
func (l *Ledger) Heartbeats(ctx context.Context) ([]ledger.Agent, error) {
	return look(ctx, l, calls.Heartbeats, calls.None{})
}

// LeasedBy counts leased items by agent.
func (l *Ledger) LeasedBy(ctx context.Context) (map[string]int64, error) {
	return look(ctx, l, calls.LeasedBy, calls.None{})
}

// Holders returns the agents that hold items that match f and for which take returns true.
func (l *Ledger) Holders(ctx context.Context, f ledger.Filter, take func(ledger.Item) bool) ([]ledger.Holder, error) {
	var ids []int64
	for it, err := range l.List(ctx, f.And(ledger.Filter{States: []ledger.State{ledger.StateLeased}}), 0) {
		if err != nil {
			return nil, err
		}
		if take(it) && len(ids) < bounds.MaxBatch {
			ids = append(ids, it.ID)
		}
	}
	if len(ids) == 0 {
		return nil, nil
	}
	return look(ctx, l, calls.Holders, calls.FilterIn{Filter: ledger.IDs(ids...)})
}

// Kinds are the policies of all kinds.
func (l *Ledger) Kinds(ctx context.Context) ([]ledger.Kind, error) {
	return look(ctx, l, calls.Kinds, calls.None{})
}

// Kind is the policy of one kind.
func (l *Ledger) Kind(ctx context.Context, name string) (ledger.Kind, error) {
	all, err := l.Kinds(ctx)
	for _, k := range all {
		if k.Name == name {
			return k, nil
		}
	}
	if err == nil {
		err = ledger.ErrNotFound
	}
	return ledger.Kind{}, err
}
