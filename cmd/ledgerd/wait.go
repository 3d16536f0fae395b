package main

import (
	"context"
	"fmt"
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
	default:
		w.Left++
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
	waitPage  = 500 // items looked at each time
)

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
	var ids []int64
	for it, err := range l.List(ctx, chosen, 0) { // an id takes 8 bytes
		if err != nil {
			return err
		}
		ids = append(ids, it.ID)
	}
	res := waited{Items: int64(len(ids))}
	late := time.Now().Add(limit)
	var counted int
	for counted < len(ids) {
		page := ids[counted:min(len(ids), counted+waitPage)]
		rounds, open, err := ends(ctx, l.Ledger, page)
		if err != nil {
			return err
		}
		if open == 0 {
			for _, r := range rounds {
				res.count(r)
			}
			counted += len(page)
			continue
		}
		wait := waitEvery
		if limit > 0 {
			wait = min(wait, time.Until(late))
		}
		if wait <= 0 {
			res.TimedOut = true
			break
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
	for rest := ids[counted:]; len(rest) > 0; { // of those not all have ended
		n := min(len(rest), waitPage)
		rounds, _, err := ends(ctx, l.Ledger, rest[:n])
		if err != nil {
			return err
		}
		for _, r := range rounds {
			res.count(r)
		}
		rest = rest[n:]
	}
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

// ends is how the current rounds of items stand; open is how many have not ended. One that is gone was
// removed after its end.
func ends(ctx context.Context, l *ledger.Ledger, ids []int64) (rounds []ledger.RoundState, open int, err error) {
	found := 0
	for it, err := range l.List(ctx, ledger.IDs(ids...), 0) {
		if err != nil {
			return nil, 0, err
		}
		if found++; it.RoundState == ledger.RoundOpen {
			open++
		}
		rounds = append(rounds, it.RoundState)
	}
	for range len(ids) - found {
		rounds = append(rounds, ledger.RoundDone)
	}
	return rounds, open, nil
}
