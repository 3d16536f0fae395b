// Package invariant lists the rules that hold in every ledger at any time. A check of a ledger reports violations.
//
// The check is the method Verify of package ledger's Ledger.
package invariant

// Violation is one broken rule.
type Violation struct {
	Rule   string // "S11"
	ItemID int64
	Text   string
}

// Rules are all rules that the check covers.
var Rules = []struct{ Name, Text string }{
	{"S2", "attempt numbers of an item rise without gaps and are never used twice"},
	{"S4", "at most one completion is recorded per item and round"},
	{"S7", "at most one completion is recorded per period and opening of a recurring item"},
	{"S11", "every claim that ended is one attempt, and a claim in force has the next number"},
	{"state", "a row of the backlog is whole: leased with holder, token and expiry, or without all of them"},
	{"checksum", "kind, scope, key and payload of an item are as they were stored"},
	{"slot", "the hash slot is that of the shard key"},
	{"limits", "a kind or a shard key has no more leases than its limits allow; leases from before the limits were " +
		"set do not count"},
	{"orphan", "every row of the backlog and every attempt belongs to an item"},
}

// Orphans are ids of items that break a rule. Backlog and Attempts: rows and attempts without an item. Beyond: items
// that were leased beyond a limit, after the limits of their kind were set. Misfiled: items that are counted under a
// shard key or limits that are not theirs.
type Orphans struct{ Backlog, Attempts, Beyond, Misfiled []int64 }
