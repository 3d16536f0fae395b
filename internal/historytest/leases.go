package historytest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// leases is what the calls of a history granted and acknowledged for one item.
type leases struct {
	until map[string]int64 // lock_id → expiry of the lease, as it was last moved
	ends  []end
}

// end is an acknowledged end of an attempt. attempt is 0 if the call named the lock_id alone.
type end struct {
	lock, outcome string
	attempt       int64
}

// leaseChecker is the state of [Leases].
type leaseChecker struct {
	*Run
	rows   map[int64][]ledger.Attempt
	live   map[int64]*ledger.Work
	items  map[int64]*leases
	claims map[string]*call // lock_id → the claim that granted it
	added  map[string]bool  // identities of items
	bad    []Violation
}

// Leases checks the promises S1 to S6 and S11, item by item, by the database's clock alone.
func Leases(r *Run) []Violation {
	k := &leaseChecker{Run: r, rows: r.rows(), live: r.live(), items: map[int64]*leases{}, claims: map[string]*call{},
		added: map[string]bool{}}
	for _, c := range r.calls() {
		if !c.settled() {
			continue
		}
		items := c.answer.Items
		if c.Op == history.OpUpdate {
			items = c.Items
		}
		for _, it := range items {
			k.see(c, it)
		}
	}
	last := r.last()
	for i := range r.Items {
		k.check(&r.Items[i], last)
	}
	k.refusals()
	return k.bad
}

func (k *leaseChecker) report(rule string, id int64, format string, args ...any) {
	k.bad = append(k.bad, Violation{rule, id, fmt.Sprintf(format, args...)})
}

// leases returns the leases of an item, for changes.
func (k *leaseChecker) leases(id int64) *leases {
	l := k.items[id]
	if l == nil {
		l = &leases{until: map[string]int64{}}
		k.items[id] = l
	}
	return l
}

// see takes in what a call that took effect did to an item.
func (k *leaseChecker) see(c *call, it history.Item) {
	l := k.leases(it.ID)
	switch c.Op {
	case history.OpClaim:
		l.until[it.Lock] = max(l.until[it.Lock], it.Until)
		k.claim(c, it)
	case history.OpRenew:
		l.until[it.Lock] = max(l.until[it.Lock], it.Until)
		if !k.Steady {
			l.until[it.Lock] = it.Until
		}
	case history.OpComplete:
		l.ends = append(l.ends, end{lock: it.Lock, outcome: outcomeOf(c, it)})
	case history.OpUpdate:
		if it.Outcome != "" {
			l.ends = append(l.ends, end{it.Lock, it.Outcome, it.Attempt})
		}
		if it.Identity == "" {
			return
		}
		if k.added[it.Identity] {
			k.report("S6", it.ID, "%s was added twice", it.Identity)
		}
		k.added[it.Identity] = true
		if _, there := k.rows[it.ID]; !there {
			k.report("S5", it.ID, "%s was added, acknowledged, and is gone", it.Identity)
		}
	}
}

// claim checks that the lock_id of a claimed item is of this claim alone, and that its attempt is recorded.
func (k *leaseChecker) claim(c *call, it history.Item) {
	if it.Lock == c.Lock { // else the claim resumes a lease that its agent holds already
		if other := k.claims[it.Lock]; other != nil && other != c {
			k.report("S2", it.ID, "the lock_id %s was granted by two claims", it.Lock)
		}
		k.claims[it.Lock] = c
	}
	a, recorded := byLock(k.rows[it.ID], it.Lock)
	if w := k.live[it.ID]; !recorded && w != nil && w.LockID.String() == it.Lock {
		recorded, a.Attempt = true, w.Attempt
	}
	if !recorded || a.Attempt != it.Attempt {
		k.report("S11", it.ID, "attempt %d was granted, and no row has this attempt and its lock_id", it.Attempt)
	}
}

// outcomeOf returns the outcome that a completion asked for an item.
func outcomeOf(c *call, it history.Item) string {
	for _, asked := range c.Items {
		if asked.ID == it.ID && asked.Lock == it.Lock {
			return asked.Outcome
		}
	}
	return ""
}

// last returns when each process wrote the last line of its history, by process number, in microseconds of the
// database's clock.
func (r *Run) last() map[string]int64 {
	last := map[string]int64{}
	for _, l := range r.Lines {
		number, _, _ := strings.Cut(l.Process, "@")
		last[number] = max(last[number], l.At/1000+r.Offset)
	}
	return last
}

// processOf returns the number of a program's process from its agent name, HOST/PID/RANDOM; "" for a person.
func processOf(agent string) string {
	if parts := strings.Split(agent, "/"); len(parts) == 3 {
		return parts[1]
	}
	return ""
}

// check compares the attempts of an item with each other, with its leases and with the end of each process.
func (k *leaseChecker) check(it *ledger.Audited, last map[string]int64) {
	report := func(rule, format string, args ...any) { k.report(rule, it.ID, format, args...) }
	l := k.leases(it.ID)
	claims := claimed(it.Attempts)
	locks := map[string]bool{}
	for i, a := range claims {
		if locks[a.LockID] {
			report("S3", "the lock_id %s ended two attempts", a.LockID)
		}
		locks[a.LockID] = true
		if a.Outcome.TakenBack() && a.Code != ledger.CodeGone && a.FinishedAt.UnixMicro() < l.until[a.LockID] {
			report("S1", "attempt %d was taken from %s at %d, its lease ran until %d", a.Attempt, a.Agent,
				a.FinishedAt.UnixMicro(), l.until[a.LockID])
		}
		if i == 0 {
			continue
		}
		before := claims[i-1]
		if a.Attempt <= before.Attempt {
			report("S2", "attempt %d was granted after %d", a.Attempt, before.Attempt)
		}
		if k.Steady && a.LeasedAt.Before(before.FinishedAt) {
			report("S1", "attempt %d was granted at %d, attempt %d ended at %d", a.Attempt, a.LeasedAt.UnixMicro(),
				before.Attempt, before.FinishedAt.UnixMicro())
		}
	}
	type round struct {
		epoch  int64
		period time.Time
	}
	completed := map[round]int64{} // → attempt
	for _, a := range it.Attempts {
		at := last[processOf(a.Agent)]
		if k.Steady && a.Code == ledger.CodeGone && at > a.FinishedAt.UnixMicro()+slack {
			report("S1", "attempt %d was taken from %s at %d because its process was gone, but the process called at %d",
				a.Attempt, a.Agent, a.FinishedAt.UnixMicro(), at)
		}
		if by, twice := completed[round{a.Epoch, a.Period}]; twice {
			report("S4", "attempt %d of round %d came after its completion by attempt %d", a.Attempt, a.Epoch, by)
		} else if a.Outcome.Completed() {
			completed[round{a.Epoch, a.Period}] = a.Attempt
		}
	}
	for _, e := range l.ends {
		if !e.recorded(it.Attempts) {
			report("S5", "the end %s of attempt %d (lock_id %s) was acknowledged and is not what is recorded", e.outcome,
				e.attempt, e.lock)
		}
	}
}

// recorded reports whether there is a row for an acknowledged end.
func (e end) recorded(rows []ledger.Attempt) bool {
	return slices.ContainsFunc(rows, func(a ledger.Attempt) bool {
		return a.LockID == e.lock && string(a.Outcome) == e.outcome && (e.attempt == 0 || a.Attempt == e.attempt)
	})
}

// slack bounds the error of Run.Offset, in microseconds.
const slack = 5_000

// refusals checks that a result was refused only after its lease had expired and its item was taken back. An attempt
// with another end was ended by the refused result, or by an agent without its lease.
func (k *leaseChecker) refusals() {
	if !k.Steady {
		return
	}
	for _, l := range k.Lines {
		if l.Op != history.OpRefused {
			continue
		}
		for _, it := range l.Items {
			a, recorded := byLock(k.rows[it.ID], it.Lock)
			if at := l.At/1000 + k.Offset; !recorded || a.FinishedAt.UnixMicro() > at+slack {
				k.report("S3", it.ID, "the result of attempt %d was refused at %d though its lease was in force", it.Attempt, at)
				// an item that was to be cancelled ends as cancelled when its lease is taken back
			} else if !a.Outcome.TakenBack() && a.Outcome != ledger.OutcomeCancelled {
				k.report("S3", it.ID, "the result of attempt %d was refused though it ended %s", it.Attempt, a.Outcome)
			}
		}
	}
}
