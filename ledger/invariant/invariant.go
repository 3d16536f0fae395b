// Package invariant has the rules that hold in every ledger at any time, and what a check of one has found broken.
//
// The check is the method Verify of package ledger's Ledger.
package invariant

// Violation is one broken rule.
type Violation struct {
	Rule   string // "S11"
	ItemID int64
	Text   string
}

// Rules are all that are checked, with the text of each.
var Rules = []struct{ Name, Text string }{
	{"S2", "attempt numbers of an item rise without gaps and are never used twice"},
	{"S4", "at most one completion is recorded per item and round"},
	{"S7", "at most one completion is recorded per period and opening of a recurring item"},
	{"S11", "every claim that ended is one attempt, and the live one is the next number"},
	{"state", "a row of the backlog is whole: leased with holder, token and expiry, or without all of them"},
	{"slot", "the hash slot is that of the shard key"},
	{"limits", "no more is leased of a kind, or a shard key, than its limits allow, but for what was leased before " +
		"they were set"},
	{"orphan", "every row of the backlog and every attempt belongs to an item"},
}

// Orphans are ids of items: of rows of the backlog and attempts without an item. Beyond is what is leased beyond a
// limit, of what was leased since the limits of its kind were set. Misfiled is what is kept under a limit that is not
// its own.
type Orphans struct{ Backlog, Attempts, Beyond, Misfiled []int64 }
