package code

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
)

// The names in SQL are those of package ledger.
func TestCodes(t *testing.T) {
	for code, s := range map[string]ledger.State{Waiting: ledger.StateWaiting, Ready: ledger.StateReady,
		Leased: ledger.StateLeased, Dead: ledger.StateDead, Doubt: ledger.StateDoubt} {
		if n := OfState(s); strconv.Itoa(int(n)) != code || State(n) != s {
			t.Errorf("%s has the code %d, in statements %s", s, n, code)
		}
	}
	outcomes := map[string]ledger.Outcome{Done: ledger.OutcomeDone, Skipped: ledger.OutcomeSkipped,
		Failed: ledger.OutcomeFailed, Snoozed: ledger.OutcomeSnoozed, Released: ledger.OutcomeReleased,
		Cancelled: ledger.OutcomeCancelled, Unknown: ledger.OutcomeUnknown, Lost: ledger.OutcomeLost,
		Crashed: ledger.OutcomeCrashed}
	for code, o := range outcomes {
		if n := OfOutcome(o); strconv.Itoa(int(n)) != code || Outcome(n) != o {
			t.Errorf("%s has the code %d, in statements %s", o, n, code)
		}
	}
	if len(outcomes) != len(ledger.Outcomes) {
		t.Errorf("%d outcomes have names in statements, of %d", len(outcomes), len(ledger.Outcomes))
	}
	if n := OfState(ledger.StateDone); n != -1 {
		t.Errorf("an item that is done has no row of the backlog, and the code %d", n)
	}
	if n := OfOutcome("nothing"); n != -1 {
		t.Errorf("an outcome that does not exist has the code %d", n)
	}
}

// in reports whether a list for IN has the code of an outcome.
func in(list string, o ledger.Outcome) bool {
	return slices.Contains(strings.Split(strings.Trim(list, "()"), ", "), strconv.Itoa(int(OfOutcome(o))))
}

// The lists of outcomes in SQL are those for which the methods in Go return true, and every outcome is in exactly one
// of the lists of the indexes of attempts by their end.
func TestLists(t *testing.T) {
	for _, o := range ledger.Outcomes {
		for _, l := range []struct {
			name, list string
			is         bool
		}{{"Completed", Completed, o.Completed()}, {"Failures", Failures, o.Failure()},
			{"Uncertain", Uncertain, o.Uncertain()}, {"GaveUp", GaveUp, o.GaveUp()}} {
			if has := in(l.list, o); has != l.is {
				t.Errorf("%s: %v in %s, %v in Go", o, has, l.name, l.is)
			}
		}
		indexes := 0
		for _, list := range []string{Closed, Failures, NoVerdict} {
			if in(list, o) {
				indexes++
			}
		}
		if indexes != 1 {
			t.Errorf("%s is in %d of Closed, Failures and NoVerdict", o, indexes)
		}
	}
}
