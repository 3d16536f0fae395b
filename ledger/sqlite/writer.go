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

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/ledger"
)

// Waiting for the write lock, and letting go of it.
const (
	// The lock is asked for again after a random time in this range: short enough to be fair.
	// While no process commits, one long transaction holds it: then the time grows by a
	// hundredth of the wait up to longestPause. That costs little.
	eagerMin, eagerMax = 50 * time.Microsecond, 350 * time.Microsecond
	longestPause       = 10 * time.Millisecond
	// A tick begins no further operation after slice. After as much of ticks without a break,
	// or five times as much when no other process has written for a while, the lock is left
	// alone for gap: that is longer than an eager process waits.
	slice = 10 * time.Millisecond
	gap   = 400 * time.Microsecond
	// How often the file is looked at for commits of others while somebody watches: a look from
	// sleep costs a tenth of a millisecond and more, so it is rarer after a while of silence.
	watchBusy, watchIdle = 4 * time.Millisecond, 30 * time.Millisecond
	silence              = 2 * time.Second
	// Where writes to the log are heard, a look is needed only until the commit of the last one can be seen. The looks
	// every watchHeard are for what the system does not report.
	heardFor, watchHeard = 100 * time.Millisecond, 10 * time.Second
	// When a process writes to the log, its commit can be seen a moment later, when it is on the disk. So it is
	// looked for every followEvery, for followFor. Writes are heard once in hearEvery.
	followEvery, followFor = 100 * time.Microsecond, 3 * time.Millisecond
	hearEvery              = time.Millisecond
	// After waiting longer than longWait for the lock, a process does not expire leases for grace. The holders of the
	// leases have waited as well, and can renew them first. The two times are a quarter and a third of a lease of one
	// minute.
	longWait = 15 * time.Second
	grace    = 20 * time.Second
)

// writer owns the connection that writes. All its methods but enqueue and inGrace run on its
// goroutine.
type writer struct {
	h     *handle
	file  *file
	clock func() time.Time
	wait  time.Duration // that a turn waits at most

	slice, longWait, grace, watchBusy, watchIdle time.Duration // the constants of the same name, but in tests

	pending []*turn   // taken from the queue and not run yet
	shared  time.Time // when a commit of others was noticed last

	mu     sync.Mutex
	queue  []*turn
	signal chan struct{} // there is something in the queue, or a watcher

	written   chan struct{} // some process writes to the log
	hearing   atomic.Int32  // how many watchers hear that
	committed time.Time     // when we did last

	watchers watchers
	spare    atomic.Int64 // expired leases are left alone until then, counted from birth
	waits    atomic.Int64 // for the write lock, so far

	stop, stopped chan struct{}
}

var birth = time.Now() // of the process: a moment to count from, on the monotonic clock

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

// inGrace reports whether expired leases are to be left alone for now.
func (w *writer) inGrace() bool { return int64(time.Since(birth)) < w.spare.Load() }

// run is the goroutine that owns the connection.
func (w *writer) run() {
	defer close(w.stopped)
	look := time.NewTimer(0)
	defer look.Stop()
	<-look.C
	armed, far, busy, heard := false, false, time.Now(), time.Now()
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
			if w.look() {
				busy = time.Now()
			}
		case <-w.written:
			heard = time.Now()
			if w.follow() {
				busy = time.Now()
			}
			armed = armed && !far // writes without end must not put off a look that is near
		case <-w.signal:
			w.work()
			busy = time.Now()
		}
	}
}

// lookAfter is the time until the next look at the file, so long after the last work, and after the last write that
// was heard.
func (w *writer) lookAfter(busy, heard time.Duration) time.Duration {
	switch hears := w.hearing.Load() > 0; {
	case hears && heard < heardFor, !hears && busy < silence:
		return w.watchBusy
	case hears:
		return max(w.watchIdle, watchHeard)
	}
	return w.watchIdle
}

// follow looks for the commit of another process that is on its way to the disk, unless there is something
// to do, or the write was our own.
func (w *writer) follow() (changed bool) {
	for start := time.Now(); time.Since(w.committed) > hearEvery && time.Since(start) < followFor; pause(followEvery) {
		if len(w.signal) > 0 || w.look() {
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
			w.look()
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

// collect takes what has queued up, and forgets turns that were given up.
func (w *writer) collect() {
	w.mu.Lock()
	w.pending = append(w.pending, w.queue...)
	clear(w.queue)
	w.queue = w.queue[:0]
	w.pending = slices.DeleteFunc(w.pending, func(t *turn) bool { return t.phase.Load() == dropped })
	w.mu.Unlock()
}

// refuse answers the turns that will not come.
func (w *writer) refuse(err error) {
	for _, t := range w.pending {
		if t.phase.CompareAndSwap(queued, running) {
			t.wake <- err
		}
	}
	clear(w.pending)
	w.pending = w.pending[:0]
}

// look notices commits of others.
func (w *writer) look() (changed bool) {
	if changed = w.watchers.look(w.h); changed {
		w.shared = time.Now()
	}
	return changed
}

// errNoCaller: all callers gave up while the lock was waited for.
var errNoCaller = errors.New("sqlite: no caller waits")

// begin takes the write lock, and reports whether it waited for another process. It tries as long as a caller waits,
// then returns errNoCaller.
func (w *writer) begin() (waited bool, err error) {
	start := time.Now()
	p := newPatience(w.look)
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

// tick runs the turns that wait and commits them together. Those that it has no time for, or
// that a failure of others kept from running, stay pending.
func (w *writer) tick() {
	w.collect()
	slices.SortStableFunc(w.pending, func(a, b *turn) int { return cmp.Compare(rank(a), rank(b)) })
	done, err := w.serveAll(time.Now())
	if err == nil {
		failpoint.Here("sqlite.commit")
		err = w.exec("COMMIT")
		w.committed = time.Now()
		failpoint.Here("sqlite.committed")
		if err == nil { // a commit to a log that was removed meanwhile is lost with it
			err = w.file.check()
		}
	}
	if err != nil {
		w.exec("ROLLBACK") // refused if SQLite has done it already
		err = uncommitted(w.file.name, err)
	}
	for _, t := range done {
		t.wake <- err
	}
	for _, t := range w.pending { // no turn is passed over twice
		t.late = false
	}
}

func rank(t *turn) int {
	if t.late {
		return 1
	}
	return 0
}

// serveAll runs turns and returns those that went well. An error means that the transaction
// around them is lost.
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

// serve lends the connection to a turn, within a savepoint, and reports whether it went well.
func (w *writer) serve(t *turn) (ok bool, err error) {
	if err := w.exec("SAVEPOINT turn"); err != nil {
		t.wake <- err
		return false, err
	}
	t.session, t.now = w.h.with(context.Background()), w.clock()
	t.wake <- nil
	if failed := <-t.ended; failed != nil {
		if w.exec("ROLLBACK TO turn") != nil || w.exec("RELEASE turn") != nil {
			return false, failed // SQLite undid everything, as it does when the disk is full
		}
		return false, nil
	}
	return true, w.exec("RELEASE turn")
}

func (w *writer) exec(query string) error {
	_, err := w.h.exec(context.Background(), query, nil)
	return err
}

// uncommitted is the error of operations that went well but were not committed, as far as we
// know: they are to be repeated.
func uncommitted(name string, err error) error {
	err = explain(name, err)
	if known := (*ledger.Error)(nil); errors.As(err, &known) {
		return err
	}
	return &ledger.Error{Kind: ledger.ErrUnavailable, Message: name + ": the commit failed: " + err.Error(),
		Hint: "run the same command again", Err: err}
}

// patience spaces out the attempts to take the write lock.
type patience struct {
	look   func() (changed bool) // reports whether other processes have committed since the last call
	silent time.Time             // the last time when one had
}

func newPatience(look func() (changed bool)) *patience { return &patience{look, time.Now()} }

func (p *patience) pause() {
	if time.Since(p.silent) > gap && p.look() { // other processes commit in turn
		p.silent = time.Now()
	}
	pause(min(eagerMin+rand.N(eagerMax-eagerMin)+time.Since(p.silent)/100, longestPause))
}

// pause sleeps exactly. The timers of an idle Go program are only exact to a millisecond on Linux, and the lock is
// usually held for less.
func pause(d time.Duration) {
	tv := unix.NsecToTimeval(int64(d))
	unix.Select(0, nil, nil, nil, &tv) // a signal ends it early: that does no harm
}
