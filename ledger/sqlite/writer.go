package sqlite

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/ledger"
)

// Times of waiting for the write lock and of releasing it.
const (
	// The lock is tried again after a random time in this range. It is short enough to be fair. If no process commits
	// meanwhile, one long transaction holds the lock. Then the pause grows by a hundredth of the wait, up to
	// longestPause, so that waiting is cheap.
	eagerMin, eagerMax = 50 * time.Microsecond, 350 * time.Microsecond
	longestPause       = 10 * time.Millisecond
	// A tick begins no further operation after slice. After ticks without a break of this length in all (or five times
	// that, if no other process has written for a while), the writer leaves the lock free for gap. That is longer than
	// the pause of a process that waits eagerly.
	slice = 10 * time.Millisecond
	gap   = 400 * time.Microsecond
	// Intervals of the checks for commits of others while there are watchers. Waking up for a check costs 0.1 ms or
	// more, so checks are rarer after a time of silence.
	watchBusy, watchIdle = 4 * time.Millisecond, 30 * time.Millisecond
	silence              = 2 * time.Second
	// Where the system reports writes to the log, a check is needed only until the commit of the last write can be
	// seen. The checks every watchHeard are for writes that the system did not report.
	heardFor, watchHeard = 100 * time.Millisecond, 10 * time.Second
	// A write to the log of another process can be seen as a commit a moment later, when it is on the disk. So the
	// writer checks every followEvery, for followFor. It reacts to writes at most once per hearEvery.
	followEvery, followFor = 100 * time.Microsecond, 3 * time.Millisecond
	hearEvery              = time.Millisecond
	// After waiting longer than longWait for the lock, a process does not expire leases for grace: the holders of the
	// leases have waited as well, and can renew them first. The two times are a quarter and a third of a lease of one
	// minute.
	longWait = 15 * time.Second
	grace    = 20 * time.Second
)

// writer owns the writing connection. All its methods but enqueue, poke, inGrace and watchLog run on its goroutine.
type writer struct {
	h     *handle
	file  *file
	clock func() time.Time
	wait  time.Duration // the longest wait of a turn

	slice, longWait, grace, watchBusy, watchIdle time.Duration // the constants; tests set others

	pending []*turn   // taken from the queue, and waiting
	shared  time.Time // when a commit of others was noticed last

	mu     sync.Mutex
	queue  []*turn
	signal chan struct{} // the queue has turns, or there is a new watcher

	written   chan struct{} // a process has written to the log
	hearing   atomic.Int32  // how many watchers have the log watched by the system
	committed time.Time     // when this writer committed last

	watchers watchers
	spare    atomic.Int64 // end of grace, in ns since birth
	waits    atomic.Int64 // how often a transaction has waited for the write lock
	waiting  atomic.Bool  // a transaction waits for the write lock now

	stop, stopped chan struct{}
}

var birth = time.Now() // of the process; times on the monotonic clock count from here

func (w *writer) enqueue(t *turn) {
	w.mu.Lock()
	w.queue = append(w.queue, t)
	w.mu.Unlock()
	w.poke()
}

func (w *writer) poke() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// inGrace reports whether expired leases must be left alone for now.
func (w *writer) inGrace() bool { return int64(time.Since(birth)) < w.spare.Load() }

// run is the goroutine that owns the connection.
func (w *writer) run() {
	defer close(w.stopped)
	look := time.NewTimer(0)
	defer look.Stop()
	<-look.C
	armed := false                        // the timer of the next check runs
	far := false                          // it was set in a time of silence, so a write to the log brings it forward
	busy, heard := time.Now(), time.Now() // when there was work, and a write to the log, last
	for {
		if !armed && w.watchers.any() {
			armed = true
			after := w.lookAfter(time.Since(busy), time.Since(heard))
			far = after > w.watchBusy
			look.Reset(after)
		}
		select {
		case <-w.stop:
			return
		case <-look.C:
			armed = false
			if w.checkCommits() {
				busy = time.Now()
			}
		case <-w.written:
			heard = time.Now()
			if w.follow() {
				busy = time.Now()
			}
			armed = armed && !far // many writes must not postpone a check that is due soon
		case <-w.signal:
			w.work()
			busy = time.Now()
		}
	}
}

// lookAfter returns the time until the next check for commits. busy and heard are the times since the last work and
// since the last write to the log that the system reported.
func (w *writer) lookAfter(busy, heard time.Duration) time.Duration {
	switch hears := w.hearing.Load() > 0; {
	case hears && heard < heardFor, !hears && busy < silence:
		return w.watchBusy
	case hears:
		return max(w.watchIdle, watchHeard)
	}
	return w.watchIdle
}

// follow waits for the commit of another process whose write to the log was reported. It stops if the queue has turns,
// or if the write was by this writer.
func (w *writer) follow() (changed bool) {
	for start := time.Now(); time.Since(w.committed) > hearEvery && time.Since(start) < followFor; pause(followEvery) {
		if len(w.signal) > 0 || w.checkCommits() {
			return true
		}
	}
	return false
}

// work runs ticks until the queue is empty.
func (w *writer) work() {
	since := time.Now()
	for w.collect(); len(w.pending) > 0; w.collect() {
		if busy := time.Since(since); busy > 5*w.slice || busy > w.slice && time.Since(w.shared) < silence {
			pause(gap)
			since = time.Now()
			w.checkCommits()
		}
		waited, err := w.begin()
		if err != nil {
			w.refuse(err)
			continue
		}
		if waited {
			since = time.Now()
		}
		w.tick()
	}
}

// collect takes the turns from the queue, and drops those that were given up.
func (w *writer) collect() {
	w.mu.Lock()
	w.pending = append(w.pending, w.queue...)
	clear(w.queue)
	w.queue = w.queue[:0]
	w.pending = slices.DeleteFunc(w.pending, func(t *turn) bool { return t.phase.Load() == dropped })
	w.mu.Unlock()
}

// refuse returns err to all pending turns.
func (w *writer) refuse(err error) {
	for _, t := range w.pending {
		if t.phase.CompareAndSwap(queued, running) {
			t.wake <- err
		}
	}
	clear(w.pending)
	w.pending = w.pending[:0]
}

// checkCommits reports whether others have committed since the last check.
func (w *writer) checkCommits() (changed bool) {
	if changed = w.watchers.check(w.h); changed {
		w.shared = time.Now()
	}
	return changed
}

// errNoCaller means that all callers gave up while the writer waited for the lock.
var errNoCaller = errors.New("sqlite: no caller waits")

// begin takes the write lock, and reports whether it waited for another process. It tries as long as a caller waits,
// then returns errNoCaller.
func (w *writer) begin() (waited bool, err error) {
	start := time.Now()
	p := newPatience(w.checkCommits)
	defer func() {
		if time.Since(start) > w.longWait {
			w.spare.Store(int64(time.Since(birth) + w.grace))
		}
	}()
	for err = w.exec("BEGIN IMMEDIATE"); err != nil; err = w.exec("BEGIN IMMEDIATE") {
		if !busy(err) {
			w.exec("ROLLBACK") // an earlier ROLLBACK may have failed
			return waited, err
		}
		if !waited {
			w.waits.Add(1)
			w.waiting.Store(true)
			defer w.waiting.Store(false)
		}
		waited = true
		p.pause()
		if w.collect(); len(w.pending) == 0 {
			return waited, errNoCaller
		}
	}
	if err = w.file.check(); err != nil {
		w.exec("ROLLBACK")
	}
	return waited, err
}

// tick runs the pending turns and commits them together. Turns for which there was no time, or which another turn's
// failure kept from running, stay pending.
func (w *writer) tick() {
	w.collect()
	slices.SortStableFunc(w.pending, func(a, b *turn) int { return cmp.Compare(rank(a), rank(b)) })
	done, err := w.serveAll(time.Now())
	if err == nil {
		failpoint.Here("sqlite.commit")
		err = w.exec("COMMIT")
		w.committed = time.Now()
		failpoint.Here("sqlite.committed")
		if err == nil { // a commit to a log that was removed is lost
			err = w.file.check()
		}
	}
	if err != nil {
		w.exec("ROLLBACK") // refused if SQLite has rolled back already
		err = uncommitted(w.file.name, err)
	}
	for _, t := range done {
		t.wake <- err
	}
	for _, t := range w.pending { // others run before a late turn in one tick only
		t.late = false
	}
}

func rank(t *turn) int {
	if t.late {
		return 1
	}
	return 0
}

// serveAll runs turns and returns those that succeeded. After an error the transaction around them is lost.
func (w *writer) serveAll(start time.Time) (done []*turn, err error) {
	for len(w.pending) > 0 && (len(done) == 0 || time.Since(start) < w.slice) {
		t := w.pending[0]
		w.pending = w.pending[1:]
		if !t.phase.CompareAndSwap(queued, running) {
			continue
		}
		ok, err := w.serve(t)
		if ok {
			done = append(done, t)
		}
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// serve lends the connection to a turn, within a savepoint, and reports whether the turn succeeded.
func (w *writer) serve(t *turn) (ok bool, err error) {
	if err := w.exec("SAVEPOINT turn"); err != nil {
		t.wake <- err
		return false, err
	}
	t.session, t.now = w.h.with(context.Background()), w.clock()
	t.wake <- nil
	if failed := <-t.ended; failed != nil {
		if w.exec("ROLLBACK TO turn") != nil || w.exec("RELEASE turn") != nil {
			return false, failed // SQLite rolled back everything, as it does when the disk is full
		}
		return false, nil
	}
	return true, w.exec("RELEASE turn")
}

func (w *writer) exec(query string) error {
	_, err := w.h.exec(context.Background(), query, nil)
	return err
}

// uncommitted returns the error for operations that succeeded but were probably not committed: the caller has to repeat
// them.
func uncommitted(name string, err error) error {
	err = explain(name, err)
	if known := (*ledger.Error)(nil); errors.As(err, &known) {
		return err
	}
	return &ledger.Error{Kind: ledger.ErrUnavailable, Message: name + ": the commit failed: " + err.Error(),
		Hint: "run the same command again", Err: err}
}

// patience sets the pauses between tries to take the write lock.
type patience struct {
	look   func() (changed bool) // reports whether other processes have committed since the last call
	silent time.Time             // when a commit was last noticed
}

func newPatience(look func() (changed bool)) *patience { return &patience{look, time.Now()} }

func (p *patience) pause() {
	if time.Since(p.silent) > gap && p.look() { // other processes commit in turn
		p.silent = time.Now()
	}
	pause(min(eagerMin+rand.N(eagerMax-eagerMin)+time.Since(p.silent)/100, longestPause))
}
