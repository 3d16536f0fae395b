package historytest

import (
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// Effects compares the effects of plugins with the ledger. An attempt that is recorded as done must have had its
// effect, and a round of a kind with on_lost = doubt must have had at most one. repeated counts the effects that came
// once more because an attempt was interrupted. They break no promise.
func Effects(r *Run) (bad []Violation, repeated int) {
	effects := map[string]map[int64]bool{} // idempotency key → attempts with an effect
	for _, e := range r.Effects {
		if effects[e.IdempotencyKey] == nil {
			effects[e.IdempotencyKey] = map[int64]bool{}
		}
		effects[e.IdempotencyKey][e.Attempt] = true
	}
	for i := range r.Items {
		it := &r.Items[i]
		for _, a := range it.Attempts {
			key := fmt.Sprintf("%s/%d/%d", it.Kind, it.ID, a.Epoch) // of items that do not recur
			attempts := effects[key]
			worked := a.Worker != "" && !a.LeasedAt.IsZero()
			if worked && a.Outcome == ledger.OutcomeDone && !attempts[a.Attempt] {
				bad = append(bad, Violation{"S4", it.ID, fmt.Sprintf("attempt %d is done and had no effect", a.Attempt)})
			}
			if n := len(attempts); n > 1 && it.Policy != nil && it.Policy.OnLost == ledger.OnLostDoubt {
				bad = append(bad, Violation{"doubt", it.ID, fmt.Sprintf("the effect of %s came %d times", key, n)})
				break
			}
			interrupted := a.Outcome.TakenBack() || a.Outcome == ledger.OutcomeCrashed
			if interrupted && attempts[a.Attempt] && a.Attempt < slices.Max(slices.Collect(maps.Keys(attempts))) {
				repeated++
			}
		}
	}
	return bad, repeated
}
