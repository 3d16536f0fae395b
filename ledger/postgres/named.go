package postgres

import (
	"context"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// placesOfItems reads where the items $1 are in the index of ready rows, and whether kind $2 has or had limits.
const placesOfItems = `SELECT priority, due_at, item_id, coalesce((SELECT laned FROM {{S}}.ledger_kinds WHERE kind = $2), false)
 FROM {{S}}.ledger_backlog WHERE item_id` + listed

// named reads the places of the items that a claim names, in the order of claims, and whether its kind has or had
// limits. Items that have finished have no place.
func (s *Store) named(ctx context.Context, g ledger.Grant) (all []scheduler.Candidate, laned bool, err error) {
	err = s.lookUp(ctx, func(ss session) error {
		all = nil
		return ss.query(placesOfItems, []any{g.Items, g.Kind}, func(scan scanner) error {
			var c scheduler.Candidate
			err := scan(&c.Priority, &c.Due, &c.ID, &laned)
			all = append(all, c)
			return err
		})
	})
	slices.SortFunc(all, scheduler.Compare)
	s.laned.learn(g.Kind, laned)
	return all, laned, err
}
