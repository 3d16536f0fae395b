package scheduler

import (
	"cmp"
	"time"
)

// Claim is what a claim asks for: up to Limit items of a kind and shard.
type Claim struct {
	Kind  string
	Shard Shard
	Limit int
}

// Candidate is a ready item as a claim comes upon it.
type Candidate struct {
	ID        int64
	Priority  int16
	Due       time.Time
	Slot      int
	Alone     bool     // it is claimed with nothing beside it
	Resources []string // that it needs, sorted and distinct
	Taken     []string // those of Resources that leased items hold
	PassedAt  time.Time
	BlockedOn string // the resource for want of which a store laid it aside
}

// Compare is the order of claims.
func Compare(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
}
