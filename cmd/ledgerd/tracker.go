package main

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// mark is where an input of a run stands, as far as the run has seen.
type mark uint8

const (
	open mark = iota // not ended: ready, waiting or leased
	done
	skipped
	dead
	doubt
	cancelled
)

// position is where an input stands, and whether it came to that end in this run: an input that had
// ended when it was named did not, unless the report of the attempt that ended it comes later.
type position struct {
	mark
	here bool
}

// tracker knows the inputs of a run and follows what becomes of them. Of each it keeps the id
// and a mark, so that a run may have a million; the rest is asked of the ledger.
//
// An item may end before the call that added it has returned. So while an add is under way,
// what ends is parked until it is known whose it is.
type tracker struct {
	mu      sync.Mutex
	inputs  map[int64]position
	counts  [cancelled + 1]int64 // inputs by mark
	adding  bool
	parked  []worker.Event
	changed time.Time // when something last happened

	verdicts map[ledger.Verdict]int64
	ended    map[ledger.Outcome]int64 // of inputs: attempts that this run ended
	others   struct{ done, failed int64 }
	emitted  map[string]int64
	closed   [cancelled + 1]int64 // inputs that ended in this run, by mark
	sums     sums                 // of the outputs of inputs that were done in this run
	failures report.Failures
	doubts   []int64 // inputs that were in doubt when they were named
	// waits are inputs that waited when they were named: if the round of one turns out to be over without an
	// attempt of this run, it did not end in this run.
	waits map[int64]bool
	// theirs are what was named and belongs to other shards: none of the inputs.
	theirs map[int64]bool

	// strangers are items of which this run ended attempts, and how, before they were named, if
	// they will be. Nil once all inputs are named.
	strangers map[int64][]ledger.Outcome

	quiet chan struct{}      // no input is open
	row   func(worker.Event) // for each input that ends; may be nil
}

func newTracker() *tracker {
	return &tracker{inputs: map[int64]position{}, changed: time.Now(), verdicts: map[ledger.Verdict]int64{}, ended: map[ledger.Outcome]int64{},
		emitted: map[string]int64{}, waits: map[int64]bool{}, theirs: map[int64]bool{}, strangers: map[int64][]ledger.Outcome{}, quiet: make(chan struct{}, 1)}
}

// beginAdd says that a call is under way that adds inputs.
func (t *tracker) beginAdd() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.adding = true
}

// endAdd says what the call added, nothing if it failed, and which of it belongs to other shards.
func (t *tracker) endAdd(added []ledger.Added, theirs map[int64]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.adding, t.changed = false, time.Now()
	maps.Copy(t.theirs, theirs)
	for _, a := range added {
		t.verdicts[a.Verdict]++
		if _, twice := t.inputs[a.ID]; twice || theirs[a.ID] {
			continue
		}
		m := markOf(a.State)
		t.inputs[a.ID] = position{mark: m}
		t.counts[m]++
		if m == doubt {
			t.doubts = append(t.doubts, a.ID)
		}
		if a.State == ledger.StateWaiting {
			t.waits[a.ID] = true
		}
		t.recognise(a.ID, m)
	}
	parked := t.parked
	t.parked = nil
	for _, e := range parked {
		t.take(e)
	}
}

// recognise takes an item that has just been named out of the others, if this run has worked it
// already. The caller holds mu.
func (t *tracker) recognise(id int64, m mark) {
	outcomes := t.strangers[id]
	delete(t.strangers, id)
	for _, out := range outcomes {
		t.ended[out]++
		switch {
		case out.Completed():
			t.others.done--
		case out == ledger.OutcomeFailed:
			t.others.failed--
		}
	}
	if len(outcomes) > 0 {
		t.move(id, m)
	}
}

// allNamed says that no more inputs come.
func (t *tracker) allNamed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.strangers = nil
}

// observe takes note of an ended attempt.
func (t *tracker) observe(e worker.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.adding {
		t.parked = append(t.parked, e)
		return
	}
	t.take(e)
}

// take sorts an ended attempt. The caller holds mu.
func (t *tracker) take(e worker.Event) {
	t.changed = time.Now()
	if !e.Accepted() {
		return
	}
	for _, n := range e.Result.Emit {
		t.emitted[n.Kind]++
	}
	_, mine := t.inputs[e.Lease.ID]
	if !mine && t.strangers != nil {
		t.strangers[e.Lease.ID] = append(t.strangers[e.Lease.ID], e.Recorded)
	}
	switch {
	case !mine && e.Recorded.Completed():
		t.others.done++
	case !mine && e.Recorded == ledger.OutcomeFailed:
		t.others.failed++
	case mine:
		t.ended[e.Recorded]++
		m := roundMark(e.Round, e.Recorded)
		t.move(e.Lease.ID, m)
		if m == done {
			t.sums.add(e.Result.Output)
		}
		if m == dead || m == doubt {
			t.failures.Add(e.Lease.ID, e.Lease.Key, e.Result.Code, e.Result.Error)
		}
		if m != open && t.row != nil {
			t.row(e)
		}
	}
}

// move notes where an input stands after something happened to it. The caller holds mu.
func (t *tracker) move(id int64, now mark) {
	was := t.inputs[id]
	t.inputs[id] = position{now, now != open}
	t.counts[was.mark]--
	t.counts[now]++
	if was.here {
		t.closed[was.mark]--
	}
	if now != open {
		t.closed[now]++
	}
	if t.counts[open] == 0 {
		select {
		case t.quiet <- struct{}{}:
		default:
		}
	}
}

// settle notes what the ledger says about an input that somebody else may have worked.
func (t *tracker) settle(it ledger.Item) {
	t.mu.Lock()
	defer t.mu.Unlock()
	m := roundMark(it.RoundState, it.Outcome)
	if t.inputs[it.ID].mark == open && m != open {
		t.move(it.ID, m)
		if it.State == ledger.StateWaiting && t.waits[it.ID] {
			t.inputs[it.ID] = position{mark: m}
			t.closed[m]--
		}
		if m == dead || m == doubt {
			t.failures.Add(it.ID, it.Key, it.Code, it.Error)
		}
	}
}

// roundMark is where an input stands by its round and its newest attempt.
func roundMark(r ledger.RoundState, o ledger.Outcome) mark {
	switch r {
	case ledger.RoundDone:
		if o == ledger.OutcomeSkipped {
			return skipped
		}
		return done
	case ledger.RoundFailed:
		return dead
	case ledger.RoundDoubt:
		return doubt
	case ledger.RoundCancelled:
		return cancelled
	}
	return open
}

// opens are the ids of the inputs that have not ended, in order.
func (t *tracker) opens() []int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	ids := make([]int64, 0, t.counts[open])
	for id, s := range t.inputs {
		if s.mark == open {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// progress of the inputs: how many there are, how many are open, and when something last happened.
func (t *tracker) progress() (total, left int64, changed time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return int64(len(t.inputs)), t.counts[open], t.changed
}

// markOf is where an input stands that was named; whether the round of one that waits is over is asked later.
func markOf(s ledger.State) mark {
	switch s {
	case ledger.StateDone:
		return done
	case ledger.StateDead:
		return dead
	case ledger.StateDoubt:
		return doubt
	case ledger.StateCancelled:
		return cancelled
	}
	return open
}
