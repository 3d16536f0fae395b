package worker

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// lane is the work on one kind.
type lane struct {
	worker   *Worker
	kind     string
	config   KindConfig
	handler  Handler
	governor Governor // the handler, if it is one
	log      *slog.Logger

	hint    chan struct{} // to the claimer: items may have become ready
	room    chan struct{} // to the claimer: there is room for items
	more    chan struct{} // to the dispatcher: something to begin, or room to begin it
	changed chan struct{} // to the caller that ends the kind: a task has ended, or all have left

	// Set when the worker begins to work the kind, see goroutines.work.
	ctx         context.Context    // of the dispatcher
	cancel      context.CancelFunc // ends ctx
	stopClaimer context.CancelFunc
	claimerDone chan struct{} // closed when the claimer has ended

	ending       atomic.Bool   // end was called
	handlersDone chan struct{} // closed when no handler runs any more

	mu        sync.Mutex
	left      *sync.Cond  // a task has left, or the lane stops
	policy    ledger.Kind // with the timeout of this worker
	tasks     []*task     // all tasks that this worker holds
	buffer    []*task     // tasks that have not begun, in order
	running   int
	givenUp   int     // of running: the tasks that were removed
	stuck     bool    // all places are taken by handlers that do not return
	stopping  bool    // new items are handed back
	waitLimit int     // the limit while the claimer waits for room; else 0
	toEnd     []*task // tasks for the claimer to end with the next claim
	dry       bool    // the newest claim found nothing, and no hint has come since
	pace      pace

	// Of the newest claim that found nothing; see scheduler.HeldBack.
	full      bool
	heldUntil time.Time // time.Now plus Wait; zero if Wait is 0
}

func newLane(w *Worker, kind string, h Handler, c KindConfig) *lane {
	c.Concurrency = cmp.Or(c.Concurrency, w.config.Concurrency)
	l := &lane{worker: w, kind: kind, config: c, handler: h, log: w.log.With("kind", kind),
		hint: make(chan struct{}, 1), room: make(chan struct{}, 1), more: make(chan struct{}, 1),
		changed: make(chan struct{}, 1), handlersDone: make(chan struct{})}
	l.left = sync.NewCond(&l.mu)
	l.governor, _ = h.(Governor)
	return l
}

// govern sets the newest policy of the kind, for the lane and its governor.
func (l *lane) govern(policy ledger.Kind) {
	policy.Name = l.kind // of a kind without a row the policy has no name
	if l.config.Timeout > 0 {
		policy.Timeout = l.config.Timeout
	}
	l.mu.Lock()
	l.policy = policy
	l.mu.Unlock()
	if l.governor != nil {
		l.governor.Govern(policy)
	}
}

// limit returns how many items may run at a time, and if none may, until when. A lane that stops does not ask the
// governor, because Limit may start a process.
func (l *lane) limit() (int, time.Time) {
	if l.stopped() {
		return 0, time.Time{}
	}
	if l.governor != nil {
		return l.governor.Limit()
	}
	return l.config.Concurrency, time.Time{}
}

// holds returns how many items of the kind this worker holds.
func (l *lane) holds() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tasks)
}

func (l *lane) stopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopping
}

// doubtful reports whether items of the kind must not be begun twice. The caller holds mu.
func (l *lane) doubtful() bool { return l.policy.OnLost == ledger.OnLostDoubt }

// setHeldBack records which limits hold items back. The caller holds mu.
func (l *lane) setHeldBack(held scheduler.HeldBack) {
	l.full, l.heldUntil = held.Full, time.Time{}
	if held.Wait > 0 {
		l.heldUntil = time.Now().Add(held.Wait)
	}
}

// wanted returns how many items to claim now; 0 while a claim could bring only few. The caller holds mu.
func (l *lane) wanted(limit int) int {
	ahead := 0
	if !l.doubtful() && !l.policy.Limits.Any() { // under limits, items in the buffer would count as running
		ahead = l.pace.ahead()
	}
	n := limit - l.running + ahead - len(l.buffer)
	if limit == 0 || n < max(1, ahead/2) {
		return 0
	}
	return min(n, claimMost)
}

// push puts claimed items into the buffer, or hands them back when the worker stops.
func (l *lane) push(tasks []*task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopping {
		l.handBackLocked(tasks)
		return
	}
	l.buffer = append(l.buffer, tasks...)
	signal(l.more)
}

// handBack releases tasks that were not begun and are not in the buffer.
func (l *lane) handBack(tasks []*task) {
	l.mu.Lock()
	l.handBackLocked(tasks)
	l.mu.Unlock()
}

// handBackLocked is handBack for a caller that holds mu.
func (l *lane) handBackLocked(tasks []*task) {
	for _, t := range tasks {
		t.phase, t.result = ended, ledger.Release()
	}
	l.worker.finisher.add(tasks...)
}

// dispatchLoop hands items to the handler until life ends.
func (l *lane) dispatchLoop(life context.Context) {
	for life.Err() == nil {
		tasks, late, again := l.next(time.Now())
		l.handBack(late)
		for _, t := range tasks {
			t.handle()
			failpoint.Here("worker.handed")
		}
		if len(tasks) == 0 {
			wait(life, l.more, again)
		}
	}
}

// next begins as many buffered items as may run, and returns them. late are the items whose lease cannot be trusted any
// more. again is the time after which to call next again; 0 means when more is signalled.
func (l *lane) next(now time.Time) (tasks, late []*task, again time.Duration) {
	limit, until := l.limit()
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(limit-l.running, len(l.buffer))
	for i := 0; i < n; i++ {
		t := l.buffer[i]
		l.buffer[i] = nil
		if now.Before(t.trustedUntil) && !t.lost {
			t.begin(l.worker.base, now, l.timeout())
			tasks = append(tasks, t)
		} else {
			late = append(late, t)
		}
	}
	if n > 0 {
		l.buffer = l.buffer[n:]
		l.running += len(tasks)
		l.pace.begun += len(tasks)
	} else if len(l.buffer) > 0 && l.governor != nil { // a governor does not signal when it takes more
		again = l.worker.config.Poll
		if limit == 0 && !until.IsZero() {
			again = min(again, max(until.Sub(now), time.Millisecond))
		}
	}
	if l.wanted(limit) > 0 {
		signal(l.room)
	}
	return tasks, late, again
}

// timeout returns the timeout of an attempt if the worker has to apply it; else 0. The caller holds mu.
func (l *lane) timeout() time.Duration {
	if l.governor != nil {
		return 0
	}
	return l.policy.Timeout
}

// takeBuffered takes the items for which test is true out of the buffer. The caller holds mu.
func (l *lane) takeBuffered(test func(*task) bool) (taken []*task) {
	kept := l.buffer[:0]
	for _, t := range l.buffer {
		if test(t) {
			taken = append(taken, t)
		} else {
			kept = append(kept, t)
		}
	}
	clear(l.buffer[len(kept):])
	l.buffer = kept
	return taken
}

// stop releases items that were not begun, and those that a running claim will return.
func (l *lane) stop() {
	l.mu.Lock()
	l.stopping = true
	unbegun := l.buffer
	l.buffer = nil
	l.left.Broadcast()
	l.mu.Unlock()
	l.handBack(unbegun)
}

// add adds new tasks. The caller holds mu.
func (l *lane) add(tasks []*task) {
	for _, t := range tasks {
		t.index = len(l.tasks)
		l.tasks = append(l.tasks, t)
	}
}

// remove removes a task whose end is recorded, or that is given up. The caller holds mu.
func (l *lane) remove(t *task) {
	last := len(l.tasks) - 1
	if t.index > last || l.tasks[t.index] != t { // it was removed before
		return
	}
	l.tasks[t.index] = l.tasks[last]
	l.tasks[t.index].index = t.index
	l.tasks[last] = nil
	l.tasks = l.tasks[:last]
	l.left.Broadcast()
}

// idle reports whether this worker holds nothing, and nothing is to be claimed as far as it knows.
func (l *lane) idle() bool {
	limit, _ := l.limit()
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tasks) == 0 && (l.dry || limit == 0)
}
