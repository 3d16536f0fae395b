package recorder

import (
	"context"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// Update implements ledger.Store. When the rules are done, and before the commit, it records what they read and decided
// for each item.
func (r *Recorder) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	failpoint.Here("update.before")
	line := history.Line{Op: history.OpUpdate, Call: r.log.Call(), Phase: history.Begin, At: history.Now()}
	decided := false
	err := r.Store.Update(ctx, conn, func(tx ledger.Tx) error {
		w := &watched{Tx: tx, last: map[int64]*history.State{}}
		err := fn(w)
		// A repeated transaction that decides nothing also writes its line, to replace that of the try before.
		if err == nil && (decided || len(w.items) > 0) {
			decided = true
			line.Items = w.items
			r.log.Write(line)
		}
		return err
	})
	if decided {
		call{r.log, line}.end(err, nil)
	} else {
		failpoint.Here("update.after")
	}
	return err
}

// watched is a transaction that is recorded.
type watched struct {
	ledger.Tx
	items []history.Item
	last  map[int64]*history.State // as this transaction sees it, by item
}

// Insert implements ledger.Tx.
func (w *watched) Insert(items []ledger.Record) ([]int64, error) {
	ids, err := w.Tx.Insert(items)
	for i, id := range ids {
		if id == 0 {
			continue
		}
		it := &items[i]
		after := state(it.Work)
		if after.Due == 0 { // zero means now
			after.Due = micro(w.Now())
		}
		w.last[id] = after
		w.items = append(w.items, history.Item{ID: id, Now: micro(w.Now()), Identity: it.Kind + "/" + it.Scope + "/" + it.Key,
			After: after})
	}
	return ids, err
}

// Load implements ledger.Tx.
func (w *watched) Load(ids []int64) ([]ledger.Record, error) {
	return w.saw(w.Tx.Load(ids))
}

// LoadKeys implements ledger.Tx.
func (w *watched) LoadKeys(ids []ledger.Identity) ([]ledger.Record, error) {
	return w.saw(w.Tx.LoadKeys(ids))
}

// LoadExpired implements ledger.Tx.
func (w *watched) LoadExpired(limit int) ([]ledger.Record, error) {
	return w.saw(w.Tx.LoadExpired(limit))
}

// LoadLeased implements ledger.Tx.
func (w *watched) LoadLeased(agent string, limit int) ([]ledger.Record, error) {
	return w.saw(w.Tx.LoadLeased(agent, limit))
}

// saw records what was read.
func (w *watched) saw(recs []ledger.Record, err error) ([]ledger.Record, error) {
	for i := range recs {
		s := state(recs[i].Work)
		w.last[recs[i].ID] = s
		w.items = append(w.items, history.Item{ID: recs[i].ID, Now: micro(w.Now()), Before: s})
	}
	return recs, err
}

// Apply implements ledger.Tx.
func (w *watched) Apply(changes []ledger.Change) error {
	if err := w.Tx.Apply(changes); err != nil {
		return err
	}
	for _, c := range changes {
		it := history.Item{ID: c.ID, Now: micro(w.Now()), Before: w.last[c.ID]}
		switch {
		case c.Work != nil:
			it.After = state(c.Work)
		case c.Finish || c.Forget:
			it.After = &history.State{}
		default:
			it.After = it.Before
		}
		if a := c.Attempt; a != nil {
			it.Attempt, it.Outcome, it.Code, it.Lock = a.Attempt, string(a.Outcome), a.Code, a.LockID
		}
		w.last[c.ID] = it.After
		w.items = append(w.items, it)
	}
	return nil
}

// state returns the state of a row of the backlog.
func state(w *ledger.Work) *history.State {
	if w == nil {
		return &history.State{}
	}
	s := &history.State{State: string(w.State), Attempt: w.Attempt, Until: micro(w.ExpiresAt), Due: micro(w.Due),
		Epoch: w.Epoch, Priority: w.Priority}
	if w.LockID != uuid.Nil {
		s.Lock = w.LockID.String()
	}
	return s
}
