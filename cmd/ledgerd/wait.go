package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// waited is how the items stood in the end.
type waited struct {
	Items     int64   `json:"items"`
	Done      int64   `json:"done"`
	Dead      int64   `json:"dead"`
	Doubt     int64   `json:"doubt"`
	Cancelled int64   `json:"cancelled"`
	Left      int64   `json:"left"` // that had not ended
	TimedOut  bool    `json:"timed_out"`
	Seconds   float64 `json:"seconds"`
}

func (w *waited) count(r ledger.RoundState) {
	switch r {
	case ledger.RoundDone:
		w.Done++
	case ledger.RoundFailed:
		w.Dead++
	case ledger.RoundDoubt:
		w.Doubt++
	case ledger.RoundCancelled:
		w.Cancelled++
	}
}

func (w *waited) exit() error {
	switch {
	case w.TimedOut:
		return status(exitTemporary)
	case w.Dead+w.Doubt+w.Cancelled+w.Left > 0:
		return status(exitUnfinished)
	}
	return nil
}

const (
	waitEvery = 250 * time.Millisecond
	waitPage  = 500 // items that one query looks at
	waitPages = 4   // queries each time
)

// waiter follows items until they have ended.
type waiter struct {
	ledger *ledger.Ledger
	open   []int64 // ids; first those that were looked at the longest time ago

	mu     sync.Mutex
	waited waited
	before int64 // items that had ended at the first look
}

// look looks at the first of what is open, a number of pages.
func (w *waiter) look(ctx context.Context, pages int) error {
	for ; pages > 0 && len(w.open) > 0; pages-- {
		n := min(len(w.open), waitPage)
		page := w.open[:n]
		w.open = w.open[n:]
		rounds, err := roundsOf(ctx, w.ledger, page)
		if err != nil {
			return err
		}
		w.mu.Lock()
		for _, id := range page {
			if rounds[id] == ledger.RoundOpen {
				w.open = append(w.open, id)
				continue
			}
			w.waited.count(rounds[id])
		}
		w.mu.Unlock()
	}
	return nil
}

// all are the pages of a look at everything.
func (w *waiter) all() int { return (len(w.open) + waitPage - 1) / waitPage }

// progress is how far the items are.
func (w *waiter) progress() progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.waited
	p := progress{Total: r.Items, Done: r.Done, Failed: r.Dead + r.Doubt, Ended: r.Done + r.Dead + r.Doubt + r.Cancelled}
	p.attempts = max(0, p.Ended-w.before)
	return p
}

// until waits until all have ended, at most for limit, if that is not 0; it says whether that was over.
func (w *waiter) until(ctx context.Context, limit time.Duration) (late bool, err error) {
	end := time.Now().Add(limit)
	if err := w.look(ctx, w.all()); err != nil {
		return false, err
	}
	w.mu.Lock()
	w.before = w.waited.Items - int64(len(w.open))
	w.mu.Unlock()
	for len(w.open) > 0 {
		wait := waitEvery
		if limit > 0 {
			wait = min(wait, time.Until(end))
		}
		if wait <= 0 {
			return true, w.look(ctx, w.all()) // also at what was looked at some time ago
		}
		if err := pause(ctx, wait); err != nil {
			return false, err
		}
		if err := w.look(ctx, waitPages); err != nil {
			return false, err
		}
	}
	return false, nil
}

func (a *app) wait(ctx context.Context, f filter, args []string, limit time.Duration) error {
	if err := f.checkChoice("watch --until-ended", args); err != nil {
		return err
	}
	if _, err := f.parse(); err != nil { // before a ledger is opened
		return err
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	chosen, err := choose(ctx, l.Ledger, f, args)
	if err != nil {
		return err
	}
	began := time.Now()
	w := &waiter{ledger: l.Ledger}
	for it, err := range l.List(ctx, chosen, 0) { // an id takes 8 bytes
		if err != nil {
			return err
		}
		w.open = append(w.open, it.ID)
	}
	w.waited.Items = int64(len(w.open))
	stop := func() {}
	if a.progress.value != "auto" || isTerminal(a.stderr) { // a script that waits is not told how far it is
		stop = a.startProgress(w.progress).stop
	}
	late, err := w.until(ctx, limit)
	stop()
	if err != nil {
		return err
	}
	res := w.waited
	res.Left, res.TimedOut = int64(len(w.open)), late
	res.Seconds = inSeconds(time.Since(began))
	if err := one(a, res, res.text()); err != nil {
		return err
	}
	if res.Items == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return res.exit()
}

func (w *waited) text() string {
	text := fmt.Sprintf("done %s of %s", report.Count(w.Done), report.Count(w.Items))
	for _, c := range []struct {
		n    int64
		what string
	}{{w.Dead, "dead"}, {w.Doubt, "in doubt"}, {w.Cancelled, "cancelled"}, {w.Left, "left"}} {
		if c.n > 0 {
			text += fmt.Sprintf("   %s %s", c.what, report.Count(c.n))
		}
	}
	if w.TimedOut {
		text += "   the time was over"
	}
	return text + "   " + seconds(time.Duration(w.Seconds*float64(time.Second)))
}

// roundsOf is how the current rounds of items stand. One that is gone was removed after its end.
func roundsOf(ctx context.Context, l *ledger.Ledger, ids []int64) (map[int64]ledger.RoundState, error) {
	rounds := make(map[int64]ledger.RoundState, len(ids))
	for _, id := range ids {
		rounds[id] = ledger.RoundDone
	}
	for it, err := range l.List(ctx, ledger.IDs(ids...), 0) {
		if err != nil {
			return nil, err
		}
		rounds[it.ID] = it.RoundState
	}
	return rounds, nil
}
