package ledger

import (
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"iter"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/invariant"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// Verify checks the whole ledger against its invariants and yields every violation, and the first few hundred orphans.
// It reads in pages, each from one snapshot, and may run beside workers.
func (l *Ledger) Verify(ctx context.Context) iter.Seq2[invariant.Violation, error] {
	return func(yield func(invariant.Violation, error) bool) {
		s, err := l.store.Schema(ctx)
		if err != nil {
			yield(invariant.Violation{}, err)
			return
		}
		var last int64
		for {
			recs, err := l.store.Audit(ctx, last, page)
			if err != nil {
				yield(invariant.Violation{}, err)
				return
			}
			if len(recs) == 0 {
				break
			}
			for i := range recs {
				for _, v := range recs[i].check(s.Floors) {
					if !yield(v, nil) {
						return
					}
				}
			}
			last = recs[len(recs)-1].ID
		}
		orphans, err := l.store.Orphans(ctx, page)
		if err != nil {
			yield(invariant.Violation{}, err)
			return
		}
		for _, o := range []struct {
			rule string
			ids  []int64
			text string
		}{
			{"orphan", orphans.Backlog, "a row of the backlog without an item"},
			{"orphan", orphans.Attempts, "attempts without an item"},
			{"limits", orphans.Beyond, "it is leased beyond a limit of its kind"},
			{"limits", orphans.Misfiled, "it is counted under a shard key that is not its own, or under limits that its kind " +
				"has never had"},
		} {
			for _, id := range o.ids {
				if !yield(invariant.Violation{Rule: o.rule, ItemID: id, Text: o.text}, nil) {
					return
				}
			}
		}
	}
}

// Checksum returns the checksum of an item with this identity and payload: CRC-32C (Castagnoli). It is never 0, since 0
// means that the ledger has none. The ledger keeps it, so that Verify finds damage that the database does not see.
func (id Identity) Checksum(payload []byte) uint32 {
	sum := ^uint32(0)
	for _, text := range [...]string{id.Kind, id.Scope, id.Key} { // crc32.Update would need a copy of each text
		for i := range len(text) {
			sum = castagnoli[byte(sum)^text[i]] ^ sum>>8
		}
		sum = castagnoli[byte(sum)] ^ sum>>8 // a zero ends each text
	}
	return max(1, crc32.Update(^sum, castagnoli, payload))
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// check returns the violations that one item and its attempts show.
// floors: the attempt numbers at which the ledger was restored; numbers may be missing there.
func (r *Audited) check(floors []int64) []invariant.Violation {
	var bad []invariant.Violation
	report := func(rule, format string, args ...any) {
		bad = append(bad, invariant.Violation{Rule: rule, ItemID: r.ID, Text: fmt.Sprintf(format, args...)})
	}
	newest := r.BaseAttempt
	completed := map[string]bool{} // rounds
	for _, a := range r.Attempts {
		if a.Attempt != newest+1 && !lifted(floors, newest, a.Attempt) {
			report("S2", "attempt %d follows %d", a.Attempt, newest)
		}
		newest = a.Attempt
		if !a.Outcome.Completed() {
			continue
		}
		rule, round := "S4", fmt.Sprintf("round %d", a.Epoch)
		if !a.Period.IsZero() {
			rule, round = "S7", fmt.Sprintf("period %s of opening %d", a.Period, a.Epoch)
		}
		if completed[round] {
			report(rule, "%s was completed twice", round)
		}
		completed[round] = true
	}
	w := r.Work
	switch {
	case w == nil && len(r.Attempts) == 0:
		report("S11", "finished without an attempt")
	case w == nil && !r.Attempts[len(r.Attempts)-1].Final:
		report("S11", "left the backlog by an attempt that is not final (%s)", r.Attempts[len(r.Attempts)-1].Outcome)
	case w != nil && w.State == StateLeased && w.Attempt != newest+1 && !lifted(floors, newest, w.Attempt):
		report("S11", "attempt %d is live after %d ended", w.Attempt, newest)
	case w != nil && w.State != StateLeased && w.Attempt != newest:
		report("S11", "the backlog counts %d attempts, %d ended", w.Attempt, newest)
	}
	if w != nil && r.Every == "" && completed[fmt.Sprintf("round %d", w.Epoch)] {
		report("S4", "round %d is %s though it was completed", w.Epoch, w.State)
	}
	if w != nil {
		whole := w.Agent != "" && w.LockID != uuid.Nil && !w.LeasedAt.IsZero() && !w.ExpiresAt.IsZero()
		empty := w.Agent == "" && w.LockID == uuid.Nil && w.LeasedAt.IsZero() && w.StartedAt.IsZero() && w.ExpiresAt.IsZero()
		if leased := w.State == StateLeased; leased && !whole || !leased && !empty {
			report("state", "%s with holder %q until %s", w.State, w.Agent, w.ExpiresAt)
		}
		if w.Epoch > r.Epoch {
			report("state", "round %d is queued of %d opened", w.Epoch, r.Epoch)
		}
	}
	if sum := r.Identity.Checksum(r.Payload); r.Checksum != 0 && r.Checksum != sum && !r.pruned() {
		report("checksum", "kind, scope, key or payload has changed since it was stored: checksum %08x, must be %08x", sum,
			r.Checksum)
	}
	if slot := scheduler.Slot(cmp.Or(r.ShardKey, r.Key)); slot != r.Slot {
		report("slot", "slot %d, must be %d", r.Slot, slot)
	}
	return bad
}
