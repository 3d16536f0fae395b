package historytest

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// Effects compares the plugins' effects with the ledger: every attempt that is recorded as done had
// its effect, and items of kinds that must not be repeated had one at most. again is how many
// effects came once more because the attempt before was cut off. That is no broken promise, but
// good to know.
func Effects(r *Run) (bad []Violation, again int) {
	did := map[string]map[int64]bool{} // idempotency key → attempts
	for _, e := range r.Effects {
		if did[e.IdempotencyKey] == nil {
			did[e.IdempotencyKey] = map[int64]bool{}
		}
		did[e.IdempotencyKey][e.Attempt] = true
	}
	for i := range r.Items {
		it := &r.Items[i]
		for _, a := range it.Attempts {
			key := fmt.Sprintf("%s/%d/%d", it.Kind, it.ID, a.Epoch) // of items that do not recur
			if worked := a.Worker != "" && !a.LeasedAt.IsZero(); worked && a.Outcome == ledger.OutcomeDone &&
				!did[key][a.Attempt] {
				bad = append(bad, Violation{"S4", it.ID, fmt.Sprintf("attempt %d is done and had no effect", a.Attempt)})
			}
			if n := len(did[key]); n > 1 && it.Policy != nil && it.Policy.OnLost == ledger.OnLostDoubt {
				bad = append(bad, Violation{"doubt", it.ID, fmt.Sprintf("the effect of %s came %d times", key, n)})
				break
			}
			if cutOff := a.Outcome.TakenBack() || a.Outcome == ledger.OutcomeCrashed; cutOff && did[key][a.Attempt] &&
				a.Attempt < newest(did[key]) {
				again++
			}
		}
	}
	return bad, again
}

func newest(attempts map[int64]bool) (last int64) {
	for n := range attempts {
		last = max(last, n)
	}
	return last
}
