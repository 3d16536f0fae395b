package runner

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// mark is how an input of a run stands, as far as the run has seen.
type mark uint8

const (
	Open mark = iota // not ended: ready, waiting or leased
	Done
	Skipped
	Dead
	Doubt
	Cancelled
)

// position is the mark of an input.
type position struct {
	mark
	// endedHere reports whether the input ended in this run, worked by any process. An input that had ended when it was
	// named did not, unless the attempt of this run that ended it is observed later.
	endedHere bool
}

// earlyAttempts are the attempts on an item that this run ended before the item was named.
type earlyAttempts struct {
	outcomes []ledger.Outcome // in the order in which they ended
	last     *worker.Event    // the newest attempt, if it may have to be reported
}

// Tracker follows the inputs of a run. It keeps only an id and a mark for each, so that a run may have a million
// inputs; everything else is read from the ledger.
//
// An item may end before the call that added it has returned. So while such a call runs, ended attempts are kept apart
// until it is known whether their items are inputs.
type Tracker struct {
	Mu      sync.Mutex           // guards all fields but AllEnded and Row
	Inputs  map[int64]position   // by id
	Counts  [Cancelled + 1]int64 // inputs by mark
	adding  bool                 // between BeginAdd and EndAdd
	parked  []worker.Event       // attempts that ended while adding
	changed time.Time            // when something last changed

	Verdicts  map[ledger.Verdict]int64
	Ended     map[ledger.Outcome]int64     // attempts on inputs that this run ended
	Others    struct{ Done, Failed int64 } // attempts of this run on items that are no inputs
	Emitted   map[string]int64             // items that attempts of this run added, by kind
	EndedHere [Cancelled + 1]int64         // inputs that ended in this run, by mark
	// Recurs means that inputs whose round failed wait for their next round.
	Recurs   bool
	Failures report.Failures
	Doubts   []int64 // inputs that were in doubt when they were named
	// waits are the inputs that were waiting when they were named. Their round may have ended before: it counts as ended
	// here only if an attempt of this run ended it.
	waits map[int64]bool

	early map[int64]earlyAttempts // by id; nil after all inputs are named

	AllEnded chan struct{}      // signal: no input is open
	Row      func(worker.Event) // called for each input that ends; may be nil
}

// NewTracker makes a tracker without inputs.
func NewTracker() *Tracker {
	return &Tracker{Inputs: map[int64]position{}, changed: time.Now(), Verdicts: map[ledger.Verdict]int64{},
		Ended: map[ledger.Outcome]int64{}, Emitted: map[string]int64{}, waits: map[int64]bool{},
		early: map[int64]earlyAttempts{}, AllEnded: make(chan struct{}, 1)}
}

// BeginAdd marks the start of a call that adds inputs.
func (t *Tracker) BeginAdd() {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.adding = true
}

// EndAdd makes the items that the call added inputs; added is empty if the call failed.
func (t *Tracker) EndAdd(added []ledger.Added) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.adding, t.changed = false, time.Now()
	for _, a := range added {
		t.Verdicts[a.Verdict]++
		if _, twice := t.Inputs[a.ID]; twice {
			continue
		}
		m := markOf(a.State)
		t.Inputs[a.ID] = position{mark: m}
		t.Counts[m]++
		if m == Doubt {
			t.Doubts = append(t.Doubts, a.ID)
		}
		if a.State == ledger.StateWaiting {
			t.waits[a.ID] = true
		}
		t.countEarly(a.ID, m)
	}
	parked := t.parked
	t.parked = nil
	for _, e := range parked {
		t.take(e)
	}
}

// countEarly counts the early attempts on a newly named input as those on an input. m is the mark of the input by its
// state: that tells done, but not skipped. The caller holds Mu.
func (t *Tracker) countEarly(id int64, m mark) {
	early := t.early[id]
	delete(t.early, id)
	for _, out := range early.outcomes {
		t.Ended[out]++
		switch {
		case out.Completed():
			t.Others.Done--
		case out.Failure():
			t.Others.Failed--
		}
	}
	if n := len(early.outcomes); n > 0 {
		if m == Done && early.outcomes[n-1] == ledger.OutcomeSkipped {
			m = Skipped
		}
		t.setMark(id, m)
	}
	if early.last != nil {
		t.report(*early.last, m)
	}
}

// report adds an input that this run has ended to the failures and the rows. The caller holds Mu.
func (t *Tracker) report(e worker.Event, m mark) {
	if m == Dead || m == Doubt {
		t.Failures.Add(e.Lease.ID, e.Lease.Key, e.Result.Code, cmp.Or(e.Result.Error, string(e.Result.Outcome)))
	}
	if m != Open && t.Row != nil {
		t.Row(e)
	}
}

// AllNamed means that no more inputs will be named.
func (t *Tracker) AllNamed() {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	t.early = nil
}

// Observe records an ended attempt.
func (t *Tracker) Observe(e worker.Event) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	if t.adding {
		t.parked = append(t.parked, e)
		return
	}
	t.take(e)
}

// take counts an ended attempt, as one on an input or on another item. The caller holds Mu.
func (t *Tracker) take(e worker.Event) {
	t.changed = time.Now()
	if !e.Accepted() {
		return
	}
	for _, n := range e.Result.Emit {
		t.Emitted[n.Kind]++
	}
	m := roundMark(e.Round, e.Recorded)
	if _, isInput := t.Inputs[e.Lease.ID]; !isInput {
		t.takeOther(e, m)
		return
	}
	t.Ended[e.Recorded]++
	t.Recurs = t.Recurs || m == Dead && e.State == ledger.StateWaiting
	t.setMark(e.Lease.ID, m)
	t.report(e, m)
}

// takeOther counts an ended attempt on an item that is no input so far. The caller holds Mu.
func (t *Tracker) takeOther(e worker.Event, m mark) {
	switch {
	case e.Recorded.Completed():
		t.Others.Done++
	case e.Recorded.Failure():
		t.Others.Failed++
	}
	if t.early == nil {
		return
	}
	early := earlyAttempts{outcomes: append(t.early[e.Lease.ID].outcomes, e.Recorded)}
	if t.Row != nil || m == Dead || m == Doubt {
		early.last = &e
	}
	t.early[e.Lease.ID] = early
}

// setMark records the new mark of an input. The caller holds Mu.
func (t *Tracker) setMark(id int64, now mark) {
	was := t.Inputs[id]
	t.Inputs[id] = position{now, now != Open}
	t.Counts[was.mark]--
	t.Counts[now]++
	if was.endedHere {
		t.EndedHere[was.mark]--
	}
	if now != Open {
		t.EndedHere[now]++
	}
	if t.Counts[Open] == 0 {
		select {
		case t.AllEnded <- struct{}{}:
		default:
		}
	}
}

// RecordState records the state in the ledger of an input that another process may have worked.
func (t *Tracker) RecordState(it ledger.Item) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	m := roundMark(it.RoundState, it.Outcome)
	t.Recurs = t.Recurs || m == Dead && it.State == ledger.StateWaiting
	if t.Inputs[it.ID].mark == Open && m != Open {
		t.setMark(it.ID, m)
		if it.State == ledger.StateWaiting && t.waits[it.ID] {
			t.Inputs[it.ID] = position{mark: m}
			t.EndedHere[m]--
		}
		if m == Dead || m == Doubt {
			t.Failures.Add(it.ID, it.Key, it.Code, cmp.Or(it.Error, string(it.Outcome)))
		}
	}
}

// roundMark returns the mark of an input from its round and its newest attempt.
func roundMark(r ledger.RoundState, o ledger.Outcome) mark {
	switch r {
	case ledger.RoundDone:
		if o == ledger.OutcomeSkipped {
			return Skipped
		}
		return Done
	case ledger.RoundFailed:
		return Dead
	case ledger.RoundDoubt:
		return Doubt
	case ledger.RoundCancelled:
		return Cancelled
	}
	return Open
}

// OpenIDs returns the ids of the inputs that have not ended, in order.
func (t *Tracker) OpenIDs() (ids []int64) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	for id, p := range t.Inputs {
		if p.mark == Open {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// IsOpen reports whether an item is an input that has not ended.
func (t *Tracker) IsOpen(id int64) bool {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	p, named := t.Inputs[id]
	return named && p.mark == Open
}

// Progress returns how many inputs there are, how many are open, and when something last changed.
func (t *Tracker) Progress() (total, left int64, changed time.Time) {
	t.Mu.Lock()
	defer t.Mu.Unlock()
	return int64(len(t.Inputs)), t.Counts[Open], t.changed
}

// markOf returns the mark of an input from its state when it was named. A waiting input is open: RecordState
// decides later whether its round is over.
func markOf(s ledger.State) mark {
	switch s {
	case ledger.StateDone:
		return Done
	case ledger.StateDead:
		return Dead
	case ledger.StateDoubt:
		return Doubt
	case ledger.StateCancelled:
		return Cancelled
	}
	return Open
}
