package historytest

import (
	"fmt"

	"github.com/ledgerd/ledgerd/ledger"
)

// Effects checks what plugins did against what the ledger says: every attempt that is recorded as
// done had its effect, and items of kinds that must not be repeated had one at most. again is how
// many effects came more than once for the same round of an item that may be repeated: that is
// promised to no one, but good to know.
func Effects(r *Run) (bad []Violation, again int) {
	did := map[string]map[int64]bool{} // idempotency key → attempts
	for _, e := range r.Effects {
		if did[e.IdempotencyKey] == nil {
			did[e.IdempotencyKey] = map[int64]bool{}
		} else {
			again++
		}
		did[e.IdempotencyKey][e.Attempt] = true
	}
	for i := range r.Items {
		it := &r.Items[i]
		for _, a := range it.Attempts {
			key := fmt.Sprintf("%s/%d/%d", it.Kind, it.ID, a.Epoch) // of items that do not recur
			if worked := a.Worker != "" && !a.LeasedAt.IsZero(); worked && a.Outcome == ledger.OutcomeDone && !did[key][a.Attempt] {
				bad = append(bad, Violation{"S4", it.ID, fmt.Sprintf("attempt %d is done and had no effect", a.Attempt)})
			}
			if n := len(did[key]); n > 1 && it.Policy.OnLost == ledger.OnLostDoubt {
				bad = append(bad, Violation{"doubt", it.ID, fmt.Sprintf("the effect of %s came %d times", key, n)})
				break
			}
		}
	}
	return bad, again
}
