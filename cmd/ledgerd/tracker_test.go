package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

func event(id int64, recorded ledger.Outcome, state ledger.State) worker.Event {
	round := map[ledger.State]ledger.RoundState{ledger.StateDone: ledger.RoundDone, ledger.StateDead: ledger.RoundFailed}[state]
	return worker.Event{Lease: &ledger.Lease{Item: ledger.Item{ID: id, Key: "k"}}, Recorded: recorded, State: state, Round: round,
		Result: ledger.Result{Outcome: recorded, Code: "c", Error: "e"}}
}

// TestTracker: inputs are told from other items, also those that end while the call that adds
// them is still under way.
func TestTracker(t *testing.T) {
	k := newTracker()
	var rows []int64
	k.row = func(e worker.Event) { rows = append(rows, e.Lease.ID) }
	k.observe(event(90, ledger.OutcomeDone, ledger.StateDone)) // of an earlier run
	k.beginAdd()
	k.observe(event(1, ledger.OutcomeDone, ledger.StateDone))
	k.observe(event(91, ledger.OutcomeFailed, ledger.StateWaiting))
	k.endAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictAdded, State: ledger.StateReady}, {ID: 2, Verdict: ledger.VerdictAdded, State: ledger.StateReady},
		{ID: 3, Verdict: ledger.VerdictKnown, State: ledger.StateDone}, {ID: 4, Verdict: ledger.VerdictKnown, State: ledger.StateDoubt},
		{ID: 5, Verdict: ledger.VerdictReopened, State: ledger.StateReady}, {ID: 2, Verdict: ledger.VerdictKnown, State: ledger.StateReady},
		{ID: 6, Verdict: ledger.VerdictKnown, State: ledger.StateWaiting}}, nil)
	k.observe(event(2, ledger.OutcomeFailed, ledger.StateWaiting))
	if diff := cmp.Diff([]int64{2, 5, 6}, k.opens()); diff != "" {
		t.Error(diff)
	}
	k.observe(event(2, ledger.OutcomeFailed, ledger.StateDead))
	k.observe(event(5, ledger.OutcomeSkipped, ledger.StateDone))
	lost := event(6, "", "")
	k.observe(lost)
	select {
	case <-k.quiet:
		t.Error("quiet though an input is open")
	default:
	}
	k.settle(ledger.Item{ID: 6, Key: "k", State: ledger.StateCancelled, RoundState: ledger.RoundCancelled, Outcome: ledger.OutcomeCancelled}) // by somebody else
	select {
	case <-k.quiet:
	default:
		t.Error("not quiet though no input is open")
	}
	if diff := cmp.Diff([]int64{1, 2, 5}, rows); diff != "" {
		t.Errorf("rows: %s", diff)
	}
	if want := [...]int64{open: 0, done: 2, skipped: 1, dead: 1, doubt: 1, cancelled: 1}; k.counts != want {
		t.Errorf("inputs %v, want %v", k.counts, want)
	}
	if want := [...]int64{open: 0, done: 1, skipped: 1, dead: 1, doubt: 0, cancelled: 1}; k.closed != want {
		t.Errorf("ended here %v, want %v", k.closed, want)
	}
	if k.others.done != 1 || k.others.failed != 1 {
		t.Errorf("others %+v", k.others)
	}
	if f := k.failures.List(); len(f) != 1 || f[0].Count != 1 || f[0].Examples[0].ID != 2 {
		t.Errorf("failures %+v", f)
	}
	if diff := cmp.Diff([]int64{4}, k.doubts); diff != "" {
		t.Error(diff)
	}
	if k.verdicts[ledger.VerdictKnown] != 4 {
		t.Errorf("verdicts %v", k.verdicts)
	}
}

// TestTrackerNamedLate: an attempt of this run may end an input just before it is named, and its report
// come afterwards. The input ended in this run all the same, and once.
func TestTrackerNamedLate(t *testing.T) {
	k := newTracker()
	k.endAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictKnown, State: ledger.StateDone}, {ID: 2, Verdict: ledger.VerdictKnown, State: ledger.StateDead}}, nil)
	if k.closed != ([len(k.closed)]int64{}) {
		t.Errorf("ended here %v before a report came", k.closed)
	}
	k.observe(event(1, ledger.OutcomeDone, ledger.StateDone))
	k.observe(event(1, ledger.OutcomeDone, ledger.StateDone)) // of another round
	k.observe(event(2, ledger.OutcomeDone, ledger.StateDone)) // retried by somebody
	if k.closed[done] != 2 || k.closed[dead] != 0 || k.counts[done] != 2 || k.counts[dead] != 0 {
		t.Errorf("counts %v, closed %v", k.counts, k.closed)
	}
}

// TestTrackerReopened: an input that is worked once more, because it changed while it was
// worked, is open again until it ends.
func TestTrackerReopened(t *testing.T) {
	k := newTracker()
	k.endAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictAdded, State: ledger.StateReady}}, nil)
	k.observe(event(1, ledger.OutcomeDone, ledger.StateReady)) // changed meanwhile: the next round
	if got := k.opens(); len(got) != 1 {
		t.Errorf("open: %v", got)
	}
	k.observe(event(1, ledger.OutcomeDone, ledger.StateDone))
	if k.counts[done] != 1 || k.closed[done] != 1 || len(k.opens()) != 0 {
		t.Errorf("counts %v, closed %v", k.counts, k.closed)
	}
}

// TestTrackerRecurring: an input that was done for its period before it was named is done, and
// did not end in this run; one that somebody else did meanwhile ended in it.
func TestTrackerRecurring(t *testing.T) {
	k := newTracker()
	k.endAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictKnown, State: ledger.StateWaiting}, {ID: 2, Verdict: ledger.VerdictAdded, State: ledger.StateReady}}, nil)
	for _, id := range []int64{1, 2} {
		k.settle(ledger.Item{ID: id, Every: "day", State: ledger.StateWaiting, RoundState: ledger.RoundDone, Outcome: ledger.OutcomeDone})
	}
	if k.counts[done] != 2 || k.closed[done] != 1 || len(k.opens()) != 0 {
		t.Errorf("counts %v, closed %v", k.counts, k.closed)
	}
}

// TestTrackerWorkedBeforeNamed: an item that was there before and that this run worked before it
// came to its name is one of its inputs, and ended in it.
func TestTrackerWorkedBeforeNamed(t *testing.T) {
	k := newTracker()
	k.observe(event(1, ledger.OutcomeFailed, ledger.StateWaiting))
	k.observe(event(1, ledger.OutcomeDone, ledger.StateDone))
	k.observe(event(2, ledger.OutcomeDone, ledger.StateDone)) // is never named
	k.beginAdd()
	k.endAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictKnown, State: ledger.StateDone}}, nil)
	k.allNamed()
	if k.counts[done] != 1 || k.closed[done] != 1 || k.ended[ledger.OutcomeDone] != 1 || k.ended[ledger.OutcomeFailed] != 1 {
		t.Errorf("counts %v, closed %v, ended %v", k.counts, k.closed, k.ended)
	}
	if k.others.done != 1 || k.others.failed != 0 {
		t.Errorf("others %+v", k.others)
	}
}
