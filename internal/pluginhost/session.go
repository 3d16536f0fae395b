package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// session is one process and what it has in hand.
//
// A plugin does not say when it begins an item. It takes them in the order in which it got
// them, as many at a time as it has places, so the host knows when an item has begun at the
// latest: when there are fewer unfinished ones before it than places. From then on its timeout
// runs. It may have begun earlier, since results take their time and die with the process:
// whatever the process had in hand when it died may be to blame.
type session struct {
	host   *Host
	proc   *pluginproc.Proc
	stream *pluginproc.Stream
	setup  *setup
	more   chan struct{} // to feed: something is unsent; holds one

	// Guarded by host.mu.
	tasks   map[taskKey]*task
	unsent  []*task // in order, for want of credits; those that have ended are still among them
	waiting []*task // sent and not begun, the same way
	begun   int     // those that have begun for certain, and not ended
	leaving bool    // it has handed back what it had not begun, and goes when the rest has ended

	goes sync.Once // to its end

	strays int // results for items that it does not have; of the stream's reader
}

// said tells whether the n-th of many things that are alike is said: the first ten, and then ever
// more seldom. A plugin may send millions.
func said(n int) bool { return n <= 10 || n&(n-1) == 0 }

type taskKey struct{ id, attempt int64 }

// task is an item that the process has. host.mu guards what changes.
type task struct {
	key    taskKey
	ctx    context.Context
	lease  *ledger.Lease
	settle func(ledger.Result)

	previous []byte // output of the item's last completed round, if the plugin asks for it

	timeout  time.Duration
	sent     bool
	begun    bool
	over     bool
	deadline time.Time // of its timeout; zero if it has none, or has not begun
	told     time.Time // when the process was told that its context has ended, or its timeout is over
}

// add takes an item into the process's hand. The caller holds host.mu.
func (s *session) add(t *task) {
	s.tasks[t.key] = t
	s.unsent = append(s.unsent, t)
	s.send()
}

// send sends as many items as there are credits for; feed sees to the rest. The caller holds
// host.mu.
func (s *session) send() {
	var items []*wire.Item
	var tasks []*task
	for credits := s.stream.Credits(); len(items) < credits && len(s.unsent) > 0; {
		t := s.unsent[0]
		s.unsent[0] = nil
		s.unsent = s.unsent[1:]
		if !t.over {
			items, tasks = append(items, item(t)), append(tasks, t)
		}
	}
	if len(items) > 0 && s.stream.Send(items) != nil {
		return // the stream has ended: tend settles what is left
	}
	for _, t := range tasks {
		t.sent = true
	}
	s.waiting = append(s.waiting, tasks...)
	s.begin()
	if len(s.unsent) > 0 {
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// feed sends what has to wait for credits, until the process has ended.
func (s *session) feed() {
	for {
		select {
		case <-s.more:
		case <-s.stream.Ended():
			return
		}
		if _, err := s.stream.WaitCredits(context.Background()); err != nil {
			return
		}
		s.host.mu.Lock()
		s.send()
		s.host.mu.Unlock()
	}
}

// begin takes note of which items can have begun by now. The caller holds host.mu.
func (s *session) begin() {
	for len(s.waiting) > 0 && s.begun < s.setup.places {
		t := s.waiting[0]
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		if t.over {
			continue
		}
		t.begun = true
		s.begun++
		if t.timeout > 0 {
			t.deadline = time.Now().Add(t.timeout + s.setup.wait)
		}
	}
}

// take removes a task, nil if the process does not have it. The caller holds host.mu.
func (s *session) take(key taskKey) *task {
	t := s.tasks[key]
	if t == nil {
		return nil
	}
	delete(s.tasks, key)
	t.over = true
	if t.begun {
		s.begun--
		s.begin()
	}
	return t
}

// end settles a task that was taken.
func (s *session) end(t *task, res ledger.Result) {
	if res.NoReport { // it has the plugin's last words
		res.Error, res.Log = s.setup.hide.Hide(res.Error), s.setup.hide.Hide(res.Log)
	}
	res.Worker = s.setup.worker
	t.settle(res)
}

// results are events of the stream.
func (s *session) results(all []*wire.Result) {
	h := s.host
	tasks := make([]*task, len(all))
	h.mu.Lock()
	for i, r := range all {
		tasks[i] = s.take(taskKey{r.Id, r.Attempt})
		if tasks[i] != nil && h.session == s && r.Outcome != wire.Result_OUTCOME_RELEASED {
			h.breaker.worked()
		}
	}
	h.mu.Unlock()
	for i, r := range all {
		if t := tasks[i]; t != nil {
			s.end(t, s.setup.result(r, t))
			continue
		}
		if s.strays++; said(s.strays) {
			h.log.Warn("the plugin reports on an item that it does not have", "item", r.Id, "attempt", r.Attempt, "times", s.strays)
		}
	}
}

func (s *session) progress(all []*wire.Progress) {
	for _, p := range all {
		s.host.mu.Lock()
		report, t := s.host.config.Progress, s.tasks[taskKey{p.Id, p.Attempt}]
		s.host.mu.Unlock()
		if t != nil && report != nil {
			report(Progress{ItemID: p.Id, Key: t.lease.Key, Done: p.Done, Total: p.Total, Unit: p.Unit})
		}
	}
}

// Why the host kills a process.
var (
	errFrozen  = errors.New("the plugin did not answer any more and was killed")
	errOverrun = errors.New("the plugin did not end an item in time and was killed")
)

// tend looks after the process until it has ended, and settles what it leaves behind.
func (s *session) tend() {
	h := s.host
	why := s.watch()
	h.mu.Lock()
	current := h.session == s
	if current {
		h.session = nil // nothing more for it
	}
	h.mu.Unlock()
	if why != nil {
		h.log.Error("the process of the plugin is killed", "error", why)
		s.proc.Kill() // results that are there already are still taken
	} else {
		why = s.proc.Err()
	}
	h.mu.Lock()
	doubtful := h.policy.OnLost == ledger.OnLostDoubt
	left := make([]*task, 0, len(s.tasks))
	for _, t := range s.tasks {
		left = append(left, t)
	}
	clear(s.tasks)
	crash, crashed := errors.AsType[*pluginproc.CrashError](why)
	if current && (crashed || errors.Is(why, errFrozen)) {
		h.crashed()
	}
	h.mu.Unlock()
	if crashed {
		h.log.Error("the process of the plugin died", "error", s.setup.hide.Error(crash), "items", len(left))
	}
	<-s.proc.Done()
	if pids := s.proc.Left(); len(pids) > 0 {
		h.log.Warn("processes that the plugin had started outside of its process group were ended with it", "pids", pids)
	}
	now := time.Now()
	for _, t := range left {
		s.end(t, h.leftBy(why, t, now, doubtful))
	}
}

// watch returns when the process has ended (nil), or why it has to.
func (s *session) watch() error {
	tick := time.NewTicker(s.host.times.tend)
	defer tick.Stop()
	health := s.watchHealth()
	for {
		select {
		case <-s.proc.Done():
			return nil
		case <-health:
			return errFrozen
		case now := <-tick.C:
			if s.watchItems(now) {
				return errOverrun
			}
			s.host.mu.Lock()
			over := s.leaving && len(s.tasks) == 0
			s.host.mu.Unlock()
			if over {
				s.leave(0)
			}
		}
	}
}

// handBack has the process hand back what it has not begun; what it has gets grace. The caller holds host.mu,
// and settles what it returns: what the process has not got yet.
func (s *session) handBack(grace time.Duration) (unsent []*task) {
	s.leaving = true
	for _, t := range s.unsent {
		if !t.over {
			unsent = append(unsent, s.take(t.key))
		}
	}
	s.unsent = nil
	s.proc.Drain(grace)
	return unsent
}

// leave stops the process in good order, and does not wait for it.
func (s *session) leave(grace time.Duration) {
	s.goes.Do(func() { s.host.ends.Go(func() { s.proc.Stop(context.Background(), grace) }) })
}

// watchItems tells the process which items are to end, and says whether one should have long ago.
func (s *session) watchItems(now time.Time) (overrun bool) {
	var unsent []*task
	s.host.mu.Lock()
	for _, t := range s.tasks {
		reason, ends := t.toEnd(now)
		switch {
		case !ends:
		case !t.sent:
			unsent = append(unsent, s.take(t.key))
		case t.told.IsZero():
			t.told = now
			s.stream.Cancel(t.key.id, t.key.attempt, reason)
		}
		overrun = overrun || t.overran(now, s.host.times.overrun)
	}
	s.host.mu.Unlock()
	for _, t := range unsent {
		s.end(t, ledger.Release())
	}
	return overrun
}

// toEnd says whether an item is to end, and why.
func (t *task) toEnd(now time.Time) (wire.Cancel_Reason, bool) {
	if t.ctx.Err() == nil {
		return wire.Cancel_REASON_TIMEOUT, !t.deadline.IsZero() && now.After(t.deadline)
	}
	switch cause := context.Cause(t.ctx); {
	case errors.Is(cause, worker.ErrCancelled):
		return wire.Cancel_REASON_CANCELLED, true
	case errors.Is(cause, ledger.ErrLeaseLost):
		return wire.Cancel_REASON_LEASE_LOST, true
	}
	return wire.Cancel_REASON_STOPPING, true
}

// overran says whether the item should have ended long ago.
func (t *task) overran(now time.Time, most time.Duration) bool {
	return !t.told.IsZero() && now.Sub(t.told) > most
}

// timedOut says whether the item had its time, if it has ended by now.
func (t *task) timedOut(now time.Time) bool { return !t.deadline.IsZero() && now.After(t.deadline) }

// watchHealth asks now and then whether the process answers; the channel closes when it does not
// any more.
func (s *session) watchHealth() <-chan struct{} {
	frozen := make(chan struct{})
	times := s.host.times
	s.host.ends.Go(func() {
		tick := time.NewTicker(times.healthEvery)
		defer tick.Stop()
		for misses := 0; misses < times.healthMisses; {
			select {
			case <-s.proc.Done():
				return
			case <-tick.C:
			}
			ctx, cancel := context.WithTimeout(context.Background(), times.healthWait)
			if err := s.proc.Ping(ctx); err != nil {
				misses++
			} else {
				misses = 0
			}
			cancel()
		}
		close(frozen)
	})
	return frozen
}

const lastWords = 2 << 10 // bytes of stderr in the error of an item; more is in its log

// leftBy is what becomes of an item that the process had in hand when it ended: why is nil if it
// was stopped in good order.
func (h *Host) leftBy(why error, t *task, now time.Time, doubtful bool) ledger.Result {
	crash, crashed := errors.AsType[*pluginproc.CrashError](why)
	switch {
	case !t.sent:
		return ledger.Release()
	case crashed:
		text := crash.Error()
		if words := crash.Stderr; words != "" {
			text += "\n" + words[max(0, len(words)-lastWords):]
		}
		res := ledger.Crashed(text)
		res.Log = crash.Stderr
		return res
	case errors.Is(why, errFrozen):
		return ledger.Crashed(why.Error())
	case errors.Is(why, errOverrun) && t.timedOut(now):
		res := ledger.Fail(fmt.Errorf("did not end within %s of its timeout of %s; its process was killed", h.times.overrun, t.timeout))
		res.Code, res.NoReport = "timeout", true
		return res
	}
	// No failure of the item, but nobody knows how far it had come.
	res := ledger.Result{Outcome: ledger.OutcomeReleased, Code: "killed", Error: "its process was stopped"}
	if doubtful {
		res.Outcome = ledger.OutcomeUnknown
	}
	switch {
	case t.overran(now, h.times.overrun):
		res.Error = "it did not end when it was told to; its process was killed"
	case errors.Is(why, errOverrun):
		res.Error = "its process was killed because of another item"
	}
	return res
}
