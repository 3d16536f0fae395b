package ledger

import (
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// This file is what resources mean for records; package scheduler has the rule which items get them.

// freed are the resources that others may have after these changes of records: of leases that end,
// and of what is not ready any more, for it may have been the reserver.
func freed(recs []Record, changes []Change) (resources []string) {
	became := make(map[int64]State, len(changes))
	for i := range changes {
		if c := &changes[i]; c.Finish {
			became[c.ID] = StateDone
		} else if c.Work != nil {
			became[c.ID] = c.Work.State
		}
	}
	for i := range recs {
		w := recs[i].Work
		if to, changed := became[recs[i].ID]; changed && w != nil && w.Gated && (w.State == StateLeased ||
			!w.PassedAt.IsZero()) && to != w.State {
			resources = append(resources, recs[i].Resources...)
		}
	}
	slices.Sort(resources)
	return slices.Compact(resources)
}

// applyFreeing applies changes of records, and lets those who wait for what they free know: it adds
// their kinds to kinds, at the latest when the transaction has committed.
func applyFreeing(tx Tx, recs []Record, changes []Change, kinds *[]string) error {
	if err := tx.Apply(changes); err != nil {
		return err
	}
	for i := range recs {
		if w := recs[i].Work; w != nil && w.State == StateLeased && recs[i].Policy.Limits.Any() &&
			!slices.Contains(*kinds, recs[i].Kind) {
			*kinds = append(*kinds, recs[i].Kind)
		}
	}
	if names := freed(recs, changes); len(names) > 0 {
		return tx.Wake(names, func(kind string) { *kinds = append(*kinds, kind) })
	}
	return nil
}

// Holds reports which of these resources are not free, and who has them, by resource.
func (l *Ledger) Holds(ctx context.Context, resources ...string) ([]scheduler.Hold, error) {
	return l.store.Holds(ctx, resources)
}

// checkHeld is what Verify finds of the resources of one item.
func (r *Audited) checkHeld(report func(rule, format string, args ...any)) {
	w := r.Work
	leased := w != nil && w.State == StateLeased
	switch {
	case !leased && len(r.Held) > 0:
		report("resources", "%d resources are held by an item that is not leased", len(r.Held))
	case leased && w.Gated == (len(r.Held) == 0):
		report("resources", "it is leased with %d resources held", len(r.Held))
	// while it runs a newer version may bring others, and be cancelled
	case leased && w.LockID != uuid.Nil && !w.Reopen && !w.Cancel && !slices.Equal(r.Held, r.Resources):
		report("resources", "it holds %q and needs %q", r.Held, r.Resources)
	}
	if w != nil && !leased && w.Gated != (len(r.Resources) > 0) {
		report("resources", "it needs %d resources, but would be claimed as if gated is %v", len(r.Resources), w.Gated)
	}
	if w != nil && !w.PassedAt.IsZero() && (w.State != StateReady || !w.Gated) {
		report("resources", "it is %s and has been passed over since %s", w.State, w.PassedAt)
	}
}
