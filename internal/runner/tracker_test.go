package runner

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

func event(id int64, recorded ledger.Outcome, state ledger.State) worker.Event {
	round := map[ledger.State]ledger.RoundState{ledger.StateDone: ledger.RoundDone,
		ledger.StateDead: ledger.RoundFailed}[state]
	return worker.Event{Lease: &ledger.Lease{Item: ledger.Item{ID: id, Key: "k"}}, Recorded: recorded, State: state,
		Round:  round,
		Result: ledger.Result{Outcome: recorded, Code: "c", Error: "e"}}
}

// Inputs are kept apart from other items, even if they end before the call that adds them has returned.
func TestTracker(t *testing.T) {
	k := NewTracker()
	var rows []int64
	k.Row = func(e worker.Event) { rows = append(rows, e.Lease.ID) }
	k.Observe(event(90, ledger.OutcomeDone, ledger.StateDone)) // belongs to an earlier run
	k.BeginAdd()
	k.Observe(event(1, ledger.OutcomeDone, ledger.StateDone))
	k.Observe(event(91, ledger.OutcomeFailed, ledger.StateWaiting))
	k.Observe(event(92, ledger.OutcomeCrashed, ledger.StateWaiting))
	k.EndAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictAdded, State: ledger.StateReady},
		{ID: 2, Verdict: ledger.VerdictAdded, State: ledger.StateReady},
		{ID: 3, Verdict: ledger.VerdictKnown, State: ledger.StateDone}, {ID: 4, Verdict: ledger.VerdictKnown,
			State: ledger.StateDoubt},
		{ID: 5, Verdict: ledger.VerdictReopened, State: ledger.StateReady}, {ID: 2, Verdict: ledger.VerdictKnown,
			State: ledger.StateReady},
		{ID: 6, Verdict: ledger.VerdictKnown, State: ledger.StateWaiting}})
	k.Observe(event(2, ledger.OutcomeFailed, ledger.StateWaiting))
	if diff := cmp.Diff([]int64{2, 5, 6}, k.OpenIDs()); diff != "" {
		t.Error(diff)
	}
	k.Observe(event(2, ledger.OutcomeFailed, ledger.StateDead))
	k.Observe(event(5, ledger.OutcomeSkipped, ledger.StateDone))
	lost := event(6, "", "")
	k.Observe(lost)
	select {
	case <-k.AllEnded:
		t.Error("quiet though an input is open")
	default:
	}
	// by another process
	k.RecordState(ledger.Item{ID: 6, Key: "k", State: ledger.StateCancelled, RoundState: ledger.RoundCancelled,
		Outcome: ledger.OutcomeCancelled})
	select {
	case <-k.AllEnded:
	default:
		t.Error("not quiet though no input is open")
	}
	if diff := cmp.Diff([]int64{1, 2, 5}, rows); diff != "" {
		t.Errorf("rows: %s", diff)
	}
	if want := [...]int64{Open: 0, Done: 2, Skipped: 1, Dead: 1, Doubt: 1, Cancelled: 1}; k.Counts != want {
		t.Errorf("inputs %v, want %v", k.Counts, want)
	}
	if want := [...]int64{Open: 0, Done: 1, Skipped: 1, Dead: 1, Doubt: 0, Cancelled: 1}; k.EndedHere != want {
		t.Errorf("ended here %v, want %v", k.EndedHere, want)
	}
	if k.Others.Done != 1 || k.Others.Failed != 2 { // a process that died counts as a failure
		t.Errorf("others %+v", k.Others)
	}
	if f := k.Failures.List(); len(f) != 1 || f[0].Count != 1 || f[0].Examples[0].ID != 2 {
		t.Errorf("failures %+v", f)
	}
	if diff := cmp.Diff([]int64{4}, k.Doubts); diff != "" {
		t.Error(diff)
	}
	if k.Verdicts[ledger.VerdictKnown] != 4 {
		t.Errorf("verdicts %v", k.Verdicts)
	}
}

// An attempt of this run may end an input just before the input is named, and be observed only afterwards. The input
// still ended in this run, and is counted once.
func TestTrackerNamedLate(t *testing.T) {
	k := NewTracker()
	k.EndAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictKnown, State: ledger.StateDone},
		{ID: 2, Verdict: ledger.VerdictKnown, State: ledger.StateDead}})
	if k.EndedHere != ([len(k.EndedHere)]int64{}) {
		t.Errorf("ended here %v before a report came", k.EndedHere)
	}
	k.Observe(event(1, ledger.OutcomeDone, ledger.StateDone))
	k.Observe(event(1, ledger.OutcomeDone, ledger.StateDone)) // belongs to another round
	k.Observe(event(2, ledger.OutcomeDone, ledger.StateDone)) // retried by another process
	if k.EndedHere[Done] != 2 || k.EndedHere[Dead] != 0 || k.Counts[Done] != 2 || k.Counts[Dead] != 0 {
		t.Errorf("counts %v, ended here %v", k.Counts, k.EndedHere)
	}
}

// An input that is worked once more, because it changed while it was worked, is open again until it ends.
func TestTrackerReopened(t *testing.T) {
	k := NewTracker()
	k.EndAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictAdded, State: ledger.StateReady}})
	k.Observe(event(1, ledger.OutcomeDone, ledger.StateReady)) // the input has changed: its next round is open
	if got := k.OpenIDs(); len(got) != 1 {
		t.Errorf("open: %v", got)
	}
	k.Observe(event(1, ledger.OutcomeDone, ledger.StateDone))
	if k.Counts[Done] != 1 || k.EndedHere[Done] != 1 || len(k.OpenIDs()) != 0 {
		t.Errorf("counts %v, ended here %v", k.Counts, k.EndedHere)
	}
}

// An input that was done for its period before it was named did not end in this run. An input that another process did
// during the run ended in it.
func TestTrackerRecurring(t *testing.T) {
	k := NewTracker()
	k.EndAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictKnown, State: ledger.StateWaiting},
		{ID: 2, Verdict: ledger.VerdictAdded, State: ledger.StateReady}})
	for _, id := range []int64{1, 2} {
		k.RecordState(ledger.Item{ID: id, Stored: ledger.Stored{Every: "day"}, State: ledger.StateWaiting,
			RoundState: ledger.RoundDone, Outcome: ledger.OutcomeDone})
	}
	if k.Counts[Done] != 2 || k.EndedHere[Done] != 1 || len(k.OpenIDs()) != 0 {
		t.Errorf("counts %v, ended here %v", k.Counts, k.EndedHere)
	}
}

// An item that existed before the run, and that this run worked before naming it, is an input and ended in the run.
func TestTrackerWorkedBeforeNamed(t *testing.T) {
	k := NewTracker()
	var rows []int64
	k.Row = func(e worker.Event) { rows = append(rows, e.Lease.ID) }
	k.Observe(event(1, ledger.OutcomeFailed, ledger.StateWaiting))
	k.Observe(event(1, ledger.OutcomeDone, ledger.StateDone))
	k.Observe(event(3, ledger.OutcomeFailed, ledger.StateDead))
	k.Observe(event(4, ledger.OutcomeSkipped, ledger.StateDone))
	k.Observe(event(2, ledger.OutcomeDone, ledger.StateDone)) // never named
	k.BeginAdd()
	k.EndAdd([]ledger.Added{{ID: 1, Verdict: ledger.VerdictKnown, State: ledger.StateDone},
		{ID: 3, Verdict: ledger.VerdictKnown, State: ledger.StateDead},
		{ID: 4, Verdict: ledger.VerdictKnown, State: ledger.StateDone}})
	k.AllNamed()
	if !slices.Equal(rows, []int64{1, 3, 4}) || len(k.Failures.List()) != 1 {
		t.Errorf("rows %v, failures %+v", rows, k.Failures.List())
	}
	if k.Counts[Done] != 1 || k.EndedHere[Done] != 1 || k.Counts[Skipped] != 1 || k.EndedHere[Skipped] != 1 ||
		k.Ended[ledger.OutcomeDone] != 1 || k.Ended[ledger.OutcomeFailed] != 2 {
		t.Errorf("counts %v, ended here %v, ended %v", k.Counts, k.EndedHere, k.Ended)
	}
	if k.Others.Done != 1 || k.Others.Failed != 0 {
		t.Errorf("others %+v", k.Others)
	}
}
