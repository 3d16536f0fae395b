package item

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/attention"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/ledger"
)

// waited is the result of waiting for items.
type waited struct {
	Items     int64            `json:"items"`
	Done      int64            `json:"done"`
	Dead      int64            `json:"dead"` // or the current round has failed
	Doubt     int64            `json:"doubt"`
	Cancelled int64            `json:"cancelled"`
	Left      int64            `json:"left"` // have not ended
	TimedOut  bool             `json:"timed_out"`
	Seconds   float64          `json:"seconds"`
	Codes     map[string]int64 `json:"codes"` // of the failures that Dead counts
	recurs    bool             // Dead counts an item that waits for its next round
}

// count counts an item that has ended.
func (w *waited) count(it ledger.Item) {
	if it.RoundState == ledger.RoundFailed && it.Code != "" {
		w.Codes[it.Code]++
	}
	switch it.RoundState {
	case ledger.RoundDone:
		w.Done++
	case ledger.RoundFailed:
		w.Dead++
		w.recurs = w.recurs || it.State == ledger.StateWaiting
	case ledger.RoundDoubt:
		w.Doubt++
	case ledger.RoundCancelled:
		w.Cancelled++
	}
}

func (w *waited) exit() error {
	switch {
	case w.TimedOut:
		return failure.Status(failure.ExitTemporary)
	case w.Dead+w.Doubt+w.Cancelled+w.Left > 0:
		return failure.Status(failure.ExitUnfinished)
	}
	return nil
}

const (
	waitEvery = 250 * time.Millisecond
	waitPage  = 500 // items of one query
	waitPages = 4   // queries in one look
)

// waiter follows items until they have ended.
type waiter struct {
	ledger ledgers.Any
	open   []int64 // ids of items that have not ended; the longest not looked at first

	mu      sync.Mutex
	waited  waited
	before  int64                 // items that had ended at the first look
	failing map[int64]ledger.Item // open items that failed and are tried again later, by id; only code and due time
}

// look looks at a number of pages of open items, from the front of w.open, and puts those still open at its end.
func (w *waiter) look(ctx context.Context, pages int) error {
	for ; pages > 0 && len(w.open) > 0; pages-- {
		n := min(len(w.open), waitPage)
		page := w.open[:n]
		w.open = w.open[n:]
		items, err := roundsOf(ctx, w.ledger, page)
		if err != nil {
			return err
		}
		w.mu.Lock()
		for _, id := range page {
			it := items[id]
			delete(w.failing, id)
			if it.RoundState != ledger.RoundOpen {
				w.waited.count(it)
				continue
			}
			w.open = append(w.open, id)
			if it.State == ledger.StateWaiting && it.Failures+it.Crashes > 0 {
				w.failing[id] = ledger.Item{Code: it.Code, Due: it.Due}
			}
		}
		w.mu.Unlock()
	}
	return nil
}

// allPages returns the number of pages of all open items.
func (w *waiter) allPages() int { return (len(w.open) + waitPage - 1) / waitPage }

// progress returns the progress for the display; w.mu must be free.
func (w *waiter) progress() runner.Progress {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.waited
	ended := r.Done + r.Dead + r.Doubt + r.Cancelled
	return runner.Progress{Total: r.Items, Done: r.Done, Failed: r.Dead + r.Doubt, Ended: ended, Waits: w.failingText(),
		Attempts: max(0, ended-w.before)}
}

// failingText describes how many items failed and wait to be tried again; "" if none.
func (w *waiter) failingText() string {
	var next time.Time
	codes := map[string]int64{}
	for _, it := range w.failing {
		codes[it.Code]++
		next = runner.Earliest(next, it.Due)
	}
	if len(codes) == 0 {
		return ""
	}
	return fmt.Sprintf("failed, and tried again later: %d (%s), the first at %s", len(w.failing),
		strings.Join(causes(codes), ", "), next.Local().Format(time.TimeOnly))
}

// until waits until all items have ended, or limit is over; then late is true. A limit of 0 is none.
func (w *waiter) until(ctx context.Context, limit time.Duration) (late bool, err error) {
	end := time.Now().Add(limit)
	if err := w.look(ctx, w.allPages()); err != nil {
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
			err := w.look(ctx, w.allPages()) // for exact counts; perhaps all have ended
			return len(w.open) > 0, err
		}
		if err := intake.Sleep(ctx, wait); err != nil {
			return false, err
		}
		if err := w.look(ctx, waitPages); err != nil {
			return false, err
		}
	}
	return false, nil
}

// wait is watch with items or --until-ended.
func wait(ctx context.Context, a *app.App, f app.FilterFlags, args []string, limit time.Duration) error {
	if err := f.CheckChoice("watch --until-ended", args); err != nil {
		return err
	}
	if _, err := f.Parse(); err != nil { // before a ledger is opened
		return err
	}
	l, err := a.Open(ctx, app.ToRead)
	if err != nil {
		return err
	}
	defer l.Close()
	chosen, err := choose(ctx, l.Any, f, args)
	if err != nil {
		return err
	}
	w := &waiter{ledger: l.Any}
	for it, err := range l.List(ctx, chosen, 0) { // an id takes 8 bytes
		if err != nil {
			return err
		}
		w.open = append(w.open, it.ID)
	}
	res, err := followItems(ctx, a, w, limit)
	if err != nil {
		return err
	}
	if err := app.One(a, res, res.text()); err != nil {
		return err
	}
	if res.Items == 0 && a.ErrorOnEmpty {
		return failure.Status(failure.ExitEmpty)
	}
	return res.exit()
}

// followItems waits until the items of w.open have ended, at most for limit, and shows their progress.
func followItems(ctx context.Context, a *app.App, w *waiter, limit time.Duration) (res waited, err error) {
	began := time.Now()
	w.waited = waited{Items: int64(len(w.open)), Codes: map[string]int64{}}
	w.failing = map[int64]ledger.Item{}
	if err := sayUnworked(ctx, a, w.ledger, w.open); err != nil {
		return res, err
	}
	stop := func() {}
	if a.Progress.Value != "auto" || app.IsTerminal(a.Stderr) { // the log of a script needs no progress
		stop = a.StartProgress(w.progress).Stop
	}
	late, err := w.until(ctx, limit)
	stop()
	res = w.waited
	res.Left, res.TimedOut = int64(len(w.open)), late
	res.Seconds = report.InSeconds(time.Since(began))
	return res, err
}

// sayUnworked names kinds of the first waitPage items that a plugin should work and no program works now.
func sayUnworked(ctx context.Context, a *app.App, l ledgers.Any, ids []int64) error {
	items, err := roundsOf(ctx, l, ids[:min(len(ids), waitPage)])
	if err != nil || a.Quiet {
		return err
	}
	agents, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	kinds := map[string]bool{}
	for _, it := range items {
		if it.RoundState == ledger.RoundOpen {
			kinds[it.Kind] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k, err := l.Kind(ctx, name)
		if err != nil {
			return err
		}
		if command, byPlugin := a.Worker(ctx, name, k); byPlugin && !k.Paused && !attention.Worked(name, agents) {
			a.Advise(a.Stderr, "no program works kind %s now: %s\n", name, command)
		}
	}
	return nil
}

func (w *waited) text() string {
	text := fmt.Sprintf("done %s of %s", report.Count(w.Done), report.Count(w.Items))
	failed := "dead"
	if w.recurs {
		failed = "failed"
	}
	for _, c := range []struct {
		n    int64
		what string
	}{{w.Dead, failed}, {w.Doubt, "in doubt"}, {w.Cancelled, "cancelled"}, {w.Left, "left"}} {
		if c.n > 0 {
			text += fmt.Sprintf("   %s %s", c.what, report.Count(c.n))
		}
	}
	return text + w.end()
}

// end returns the end of a line for people: how long it took, and whether the limit was over.
func (w *waited) end() string {
	text := "   " + report.Seconds(time.Duration(w.Seconds*float64(time.Second)))
	if w.TimedOut {
		return "   the time was over" + text
	}
	return text
}

// causes returns codes with their counts, the most frequent first; a single code without its count.
func causes(codes map[string]int64) []string {
	names := slices.SortedFunc(maps.Keys(codes), func(a, b string) int {
		return cmp.Or(cmp.Compare(codes[b], codes[a]), strings.Compare(a, b))
	})
	if len(names) == 1 {
		return names
	}
	for i, name := range names {
		names[i] = report.Count(codes[name]) + " × " + cmp.Or(name, "no code")
	}
	return names
}

// roundsOf returns items by id. An item that was removed is returned as done: only ended items are removed.
func roundsOf(ctx context.Context, l ledgers.Any, ids []int64) (map[int64]ledger.Item, error) {
	items := make(map[int64]ledger.Item, len(ids))
	for _, id := range ids {
		items[id] = ledger.Item{RoundState: ledger.RoundDone}
	}
	for it, err := range l.List(ctx, ledger.IDs(ids...), 0) {
		if err != nil {
			return nil, err
		}
		items[it.ID] = it
	}
	return items, nil
}
