package worker

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const (
	watchEvery = 250 * time.Millisecond // between two checks of the leases by this process alone
	askEvery   = time.Second            // between two checks whether a running item was cancelled
	askMost    = 1000                   // leases of one call
	lateAfter  = 5 * time.Second        // how long a handler may run after its deadline before that is logged
	overtime   = 30 * time.Second       // how long a handler may run after its deadline before its lease is given up
)

// watchLoop checks the leases and never waits for the ledger. So it ends the contexts of handlers whose lease cannot be
// trusted any more, even while the ledger does not answer. It passes leases that have to be renewed or checked to
// askLoop.
func (w *Worker) watchLoop(life context.Context, calls chan<- call) {
	defer close(calls)
	var last watched
	for sleep(life, watchEvery) {
		now := time.Now()
		all := last.slept(now, w.config.Lease/4)
		var renew, ask []*task
		for _, l := range w.lanes() {
			r, a := l.watch(now, all)
			renew, ask = append(renew, r...), append(ask, a...)
		}
		for batch := range slices.Chunk(renew, askMost) {
			w.offer(calls, call{batch, true})
		}
		for batch := range slices.Chunk(ask, askMost) {
			w.offer(calls, call{batch, false})
		}
	}
}

// call is a call to the ledger: to renew leases, or to check whether they are still held.
type call struct {
	tasks []*task
	renew bool
}

// offer passes a call to askLoop. If askLoop has too many calls already, the next check of the leases offers it again.
func (w *Worker) offer(calls chan<- call, c call) {
	c.setBusy(true)
	select {
	case calls <- c:
	default:
		c.setBusy(false)
	}
}

func (c call) setBusy(busy bool) {
	for _, t := range c.tasks {
		t.lane.mu.Lock()
		t.busy = busy
		t.lane.mu.Unlock()
	}
}

// watched is the time of the last check, by both clocks.
type watched struct{ mono, wall time.Time }

// slept reports whether the machine may have slept for more than longer since the last check. During sleep only the
// wall clock runs, not the monotonic clock, so leases are older than the monotonic clock shows.
func (w *watched) slept(now time.Time, longer time.Duration) bool {
	last := *w
	w.mono, w.wall = now, now.Round(0)
	return !last.mono.IsZero() && w.wall.Sub(last.wall)-w.mono.Sub(last.mono) > longer
}

// watch checks the tasks of the lane. It returns the tasks whose lease has to be renewed (all of them if all is set),
// and those to check in the ledger.
func (l *lane) watch(now time.Time, all bool) (renew, ask []*task) {
	ttl := l.worker.config.Lease
	l.mu.Lock()
	defer l.mu.Unlock()
	if stale := l.takeBuffered(func(t *task) bool { return now.Sub(t.claimed) > ttl/4 }); len(stale) > 0 {
		l.handBackLocked(stale)
		signal(l.more)
	}
	stuck := l.givenUp
	for _, t := range slices.Clone(l.tasks) {
		if t.phase == running && l.watchRunning(t, now) {
			stuck++
		}
		switch {
		case t.busy || t.lost:
		case all || !now.Before(t.renewAt):
			renew = append(renew, t)
		case t.phase == running && now.Sub(t.asked) >= askEvery:
			ask = append(ask, t)
		}
	}
	allStuck := l.governor == nil && stuck >= l.config.Concurrency && !l.stopping
	if allStuck && !l.stuck {
		l.log.Error("the kind stands still: handlers that did not return when their context ended have all its places; "+
			"restart this program, and have the handler pass its ctx on", "places", stuck, "since", now.Add(-overtime))
	}
	l.stuck = allStuck
	return renew, ask
}

// watchRunning ends the context of a task whose lease cannot be trusted, and gives up a task that still runs overtime
// after its deadline. It reports whether the handler is stuck: its context ended at least overtime ago. The caller
// holds mu.
func (l *lane) watchRunning(t *task, now time.Time) (stuck bool) {
	if !t.lost && !now.Before(t.trustedUntil) {
		t.lost = true
		t.cancel(ledger.ErrLeaseLost)
	}
	if t.stopped.IsZero() && t.ctx.Err() != nil {
		t.stopped = now
	}
	if t.deadline.IsZero() || now.Sub(t.deadline) < overtime {
		if !t.late && !t.deadline.IsZero() && now.Sub(t.deadline) >= lateAfter {
			t.late = true
			t.log().Warn("the handler has not returned though its context has ended: does it pass its ctx on?", "timeout",
				t.deadline.Sub(t.began))
		}
		return !t.stopped.IsZero() && now.Sub(t.stopped) >= overtime
	}
	// The handler cannot be killed. It still counts for the concurrency, but its task is removed: its lease is not
	// renewed, and no one waits for it.
	t.lost, t.givenUp = true, true
	l.givenUp++
	l.remove(t)
	signal(l.worker.look)
	signal(l.changed)
	t.log().Error("the handler did not return after its timeout; the item is left to others, its place stays taken",
		"timeout", t.deadline.Sub(t.began))
	return true
}

// askLoop makes the calls about leases until the channel is closed.
func (w *Worker) askLoop(life context.Context, calls <-chan call) {
	for c := range calls {
		leases := make([]*ledger.Lease, len(c.tasks))
		for i, t := range c.tasks {
			leases[i] = t.lease
		}
		// A call that hangs must not keep the other leases from being renewed.
		ctx, cancel := context.WithTimeout(life, w.config.Lease/3)
		called := time.Now()
		ends := make([]time.Time, len(leases))
		var errs []error
		if c.renew {
			ends, errs = w.config.Ledger.Extend(ctx, w.config.Lease, leases...)
		} else {
			errs = w.config.Ledger.Held(ctx, leases...)
		}
		cancel()
		if c.renew { // a failed check makes no outage: once its task has ended, no later one would show its end
			w.failed("renew", unavailable(errs))
		}
		for i, t := range c.tasks {
			t.answered(errs[i], called, c.renew, ends[i])
		}
	}
}

// answered records the ledger's answer about a lease: of a renewal also when the lease ends.
func (t *task) answered(err error, called time.Time, renewal bool, end time.Time) {
	l := t.lane
	l.mu.Lock()
	defer l.mu.Unlock()
	t.busy = false
	switch {
	case err == nil, errors.Is(err, ledger.ErrCancelled):
		t.asked = called
		if renewal && !t.lost {
			t.renewed(end, called)
		}
		if err != nil {
			l.withdraw(t, ErrCancelled)
		}
	case errors.Is(err, ledger.ErrLeaseLost):
		t.lost = true
		l.withdraw(t, ledger.ErrLeaseLost)
	case renewal && t.unsure.IsZero():
		t.unsure = called
	}
}

// withdraw ends a task that must not be worked any more. The caller holds mu.
func (l *lane) withdraw(t *task, cause error) {
	switch t.phase {
	case running:
		t.cancel(cause)
	case claimed:
		if unbegun := l.takeBuffered(func(o *task) bool { return o == t }); len(unbegun) > 0 {
			l.handBackLocked(unbegun)
			signal(l.more)
		}
	}
}
