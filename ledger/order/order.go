// Package order has the orders in which a walk goes through the items of a ledger.
package order

import "slices"

// By is an order.
type By string

// The orders. ID and Ended use an index, so they are fast for any number of items. For the others all matching items
// are read, and the first ones are kept.
const (
	ID       By = "id"
	Ended    By = "ended" // the end of the newest attempt; items without an ended attempt are left out
	Added    By = "added"
	Due      By = "due" // finished items come last
	Took     By = "took"
	Key      By = "key"
	Priority By = "priority"
)

// All are all orders.
var All = []By{ID, Ended, Added, Due, Took, Key, Priority}

// Known reports whether b is one of All.
func (b By) Known() bool { return slices.Contains(All, b) }

// Indexed reports whether a walk in this order uses an index, and so can be continued from a mark. "" means ID.
func (b By) Indexed() bool { return b == ID || b == Ended || b == "" }
