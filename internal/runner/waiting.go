package runner

import (
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Waits finds out what a program waits for while it works no item.
type Waits struct {
	Ledger ledgers.Any
	Kinds  []string // that the program works
	Shard  scheduler.Shard
	Take   func(ledger.Item) bool  // reports whether a leased item of these kinds belongs to the program's work
	Mine   func(agent string) bool // reports whether an agent is the program itself
}

// Waiting is what a program waits for. It is empty while the program has work.
type Waiting struct {
	Holders []ledger.Holder // other agents with items of the program's work
	NextDue time.Time       // zero if there are holders, or nothing waits
	// Error is the error of the last attempt of the item that was put off last.
	Error string
}

// Look reads from the ledger what the program waits for.
func (w *Waits) Look(ctx context.Context) (Waiting, error) {
	holders, busy, err := w.Holders(ctx)
	if err != nil || busy || len(holders) > 0 {
		return Waiting{Holders: holders}, err
	}
	next, idle := NextDue(ctx, w.Ledger, w.Kinds, w.Shard)
	if !idle || next.IsZero() {
		return Waiting{}, nil
	}
	now := Waiting{NextDue: next}
	last, err := w.Ledger.Recent(ctx, ledger.Filter{Kinds: w.Kinds, States: []ledger.State{ledger.StateWaiting}}, 1)
	if len(last) == 1 {
		now.Error = last[0].Error
	}
	return now, err
}

// Holders returns the other agents with items that the program waits for. busy means that the program itself works an
// item; then it waits for none.
func (w *Waits) Holders(ctx context.Context) (holders []ledger.Holder, busy bool, err error) {
	if len(w.Kinds) == 0 {
		return nil, false, nil
	}
	holders, err = w.Ledger.Holders(ctx, ledger.Filter{Kinds: w.Kinds}, w.Take)
	if slices.ContainsFunc(holders, func(h ledger.Holder) bool { return w.Mine(h.Agent) }) {
		return nil, true, err
	}
	return holders, false, err
}

// NextDue returns when the first item of these kinds and the shard is due, zero if none waits. idle means that none is
// ready now.
func NextDue(ctx context.Context, l ledgers.Any, kinds []string, shard scheduler.Shard) (next time.Time, idle bool) {
	for _, kind := range kinds {
		st, err := l.StandingIn(ctx, kind, shard)
		if err != nil || st.Ready > 0 {
			return time.Time{}, false
		}
		next = Earliest(next, st.NextDue)
	}
	return next, true
}

// Earliest returns the earlier of two times; zero means none.
func Earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// WaitsFor returns the Waits of a drain.
func (p *Pool) WaitsFor() *Waits {
	return &Waits{Ledger: p.Ledger, Kinds: p.KindsHere(), Shard: p.Shard,
		Take: func(it ledger.Item) bool { return p.Shard.Covers(it.Slot) },
		Mine: func(agent string) bool { return agent == p.Agent }}
}

// Left completes a report by what is left of the kinds that are worked here. Ready, waiting and held items are added
// only without UntilIdle: a drain has counted them. Items that came into doubt since began are added, and items that
// wait for their next round are taken out of Waiting.
func (p *Pool) Left(ctx context.Context, rep *worker.Report, began time.Time) error {
	for _, name := range p.KindsHere() {
		st, err := p.Ledger.StandingIn(ctx, name, p.Shard)
		if err != nil {
			return err
		}
		doubt, err := p.countOwn(ctx, ledger.Filter{Kinds: []string{name}, States: []ledger.State{ledger.StateDoubt},
			Since: st.Now.Add(-time.Since(began))})
		if err != nil {
			return err
		}
		rep.Doubt += doubt
		over, err := p.countOwn(ctx, ledger.Filter{Kinds: []string{name}, States: []ledger.State{ledger.StateWaiting},
			Rounds: []ledger.RoundState{ledger.RoundDone, ledger.RoundFailed}})
		if err != nil {
			return err
		}
		rep.Waiting -= min(over, rep.Waiting)
		if p.UntilIdle {
			continue
		}
		rep.Ready += st.Ready
		rep.Waiting += st.Waiting - min(over, st.Waiting)
		rep.Held += st.Held + st.Persons
		rep.NextDue = Earliest(rep.NextDue, st.NextDue)
	}
	return nil
}

// countOwn counts the items of the own shard that match.
func (p *Pool) countOwn(ctx context.Context, f ledger.Filter) (n int64, err error) {
	if p.Shard.Count == 0 {
		return p.Ledger.Count(ctx, f)
	}
	for it, err := range p.Ledger.List(ctx, f, 0) {
		if err != nil {
			return n, err
		}
		if p.Shard.Covers(it.Slot) {
			n++
		}
	}
	return n, nil
}
