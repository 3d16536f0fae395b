package scheduler

import (
	"cmp"
	"time"
)

// Candidate is a ready item in a claim.
type Candidate struct {
	ID       int64
	Priority int16
	Due      time.Time
	Alone    bool // no other item is claimed with it
}

// Compare is the order of claims.
func Compare(a, b Candidate) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.Due.Compare(b.Due), cmp.Compare(a.ID, b.ID))
}
