package historytest

import (
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/ledger"
)

// leases is the history of the claims of one item.
type leases struct {
	until map[string]int64 // token → expiry as it was last moved
	acked []acked          // ends that were acknowledged
}

// acked is an end of an attempt that a client was told to be recorded.
type acked struct {
	lock, outcome string
	attempt       int64
}

// Leases checks the promises S1 to S6 and S11, item by item, by the database's clock alone.
func Leases(r *Run) (bad []Violation) {
	report := func(rule string, id int64, format string, args ...any) {
		bad = append(bad, Violation{rule, id, fmt.Sprintf(format, args...)})
	}
	items := map[int64]*leases{}
	of := func(id int64) *leases {
		l := items[id]
		if l == nil {
			l = &leases{until: map[string]int64{}}
			items[id] = l
		}
		return l
	}
	rows := r.rows()
	live := r.live()
	tokens := map[string]int64{}    // token of a claim → the call that gave it
	identities := map[string]bool{} // that were inserted
	for n, c := range r.calls() {
		if !c.settled() {
			continue
		}
		answered := c.answer.Items
		if c.Op == history.OpUpdate {
			answered = c.Items
		}
		for _, it := range answered {
			l := of(it.ID)
			switch c.Op {
			case history.OpClaim:
				if by, given := tokens[it.Lock]; it.Lock != c.Lock {
					// It resumes what its agent holds already: the token stays that of the claim before.
				} else if given && by != int64(n) {
					report("S2", it.ID, "the token %s was given by two claims", it.Lock)
				} else {
					tokens[it.Lock] = int64(n)
				}
				l.until[it.Lock] = max(l.until[it.Lock], it.Until)
				a, ok := byLock(rows[it.ID], it.Lock)
				if w := live[it.ID]; !ok && w != nil && w.LockID.String() == it.Lock {
					ok, a.Attempt = true, w.Attempt
				}
				if !ok || a.Attempt != it.Attempt {
					report("S11", it.ID, "attempt %d was granted and did not become that attempt's row", it.Attempt)
				}
			case history.OpRenew:
				l.until[it.Lock] = max(l.until[it.Lock], it.Until)
				if !r.Steady {
					l.until[it.Lock] = it.Until
				}
			case history.OpComplete:
				l.acked = append(l.acked, acked{lock: it.Lock, outcome: outcomeOf(c, it)})
			case history.OpUpdate:
				if it.Outcome != "" {
					l.acked = append(l.acked, acked{it.Lock, it.Outcome, it.Attempt})
				}
				if it.Identity != "" {
					if identities[it.Identity] {
						report("S6", it.ID, "%s was added twice", it.Identity)
					}
					identities[it.Identity] = true
					if _, there := rows[it.ID]; !there {
						report("S5", it.ID, "%s was added, acknowledged, and is gone", it.Identity)
					}
				}
			}
		}
	}
	last := r.last()
	for i := range r.Items {
		it := &r.Items[i]
		for _, a := range it.Attempts {
			if at := last[processOf(a.Agent)]; r.Steady && a.Code == ledger.CodeGone && at > a.FinishedAt.UnixMicro()+slack {
				report("S1", it.ID, "attempt %d was taken from %s at %d as from one that is gone, and it called at %d", a.Attempt,
					a.Agent, a.FinishedAt.UnixMicro(), at)
			}
		}
		of(it.ID).check(r, it, func(rule, format string, args ...any) { report(rule, it.ID, format, args...) })
	}
	r.refusals(rows, report)
	return bad
}

// last is when processes wrote the last line of their history, by their number; microseconds of the
// database's clock.
func (r *Run) last() map[string]int64 {
	last := map[string]int64{}
	for _, l := range r.Lines {
		number, _, _ := strings.Cut(l.Process, "@")
		last[number] = max(last[number], l.At/1000+r.Offset)
	}
	return last
}

// processOf is the number of the process that a program is, "" of a person.
func processOf(agent string) string {
	if parts := strings.Split(agent, "/"); len(parts) == 3 {
		return parts[1]
	}
	return ""
}

// outcomeOf is what a completion asked for an item.
func outcomeOf(c *call, it history.Item) string {
	for _, asked := range c.Items {
		if asked.ID == it.ID && asked.Lock == it.Lock {
			return asked.Outcome
		}
	}
	return ""
}

// check looks at one item.
func (l *leases) check(r *Run, it *ledger.Audited, report func(rule, format string, args ...any)) {
	claims := claimed(it.Attempts)
	locks := map[string]bool{}
	for i, a := range claims {
		if locks[a.LockID] {
			report("S3", "the token %s ended two attempts", a.LockID)
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
		if r.Steady && a.LeasedAt.Before(before.FinishedAt) {
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
		if at, twice := completed[round{a.Epoch, a.Period}]; twice {
			report("S4", "attempt %d of round %d came after its completion by attempt %d", a.Attempt, a.Epoch, at)
		} else if a.Outcome.Completed() {
			completed[round{a.Epoch, a.Period}] = a.Attempt
		}
	}
	for _, e := range l.acked {
		if !e.recorded(it.Attempts) {
			report("S5", "the end %s of attempt %d (token %s) was acknowledged and is not what is recorded", e.outcome,
				e.attempt, e.lock)
		}
	}
}

// recorded reports whether there is a row for an acknowledged end.
func (e acked) recorded(rows []ledger.Attempt) bool {
	for _, a := range rows {
		if a.LockID == e.lock && string(a.Outcome) == e.outcome && (e.attempt == 0 || a.Attempt == e.attempt) {
			return true
		}
	}
	return false
}

// slack is by how much the offset of two clocks may be wrong, microseconds.
const slack = 5_000

// refusals checks that results were refused only of leases that had run out and been taken by then. Another
// end of the attempt would be another agent's, or the one that was refused.
func (r *Run) refusals(rows map[int64][]ledger.Attempt, report func(rule string, id int64, format string,
	args ...any)) {
	if !r.Steady {
		return
	}
	for _, l := range r.Lines {
		if l.Op != history.OpRefused {
			continue
		}
		for _, it := range l.Items {
			a, ok := byLock(rows[it.ID], it.Lock)
			if at := l.At/1000 + r.Offset; !ok || a.FinishedAt.UnixMicro() > at+slack {
				report("S3", it.ID, "the result of attempt %d was refused at %d though its lease was in force", it.Attempt, at)
				// an item that was to be cancelled ends as cancelled when its lease is taken back
			} else if !a.Outcome.TakenBack() && a.Outcome != ledger.OutcomeCancelled {
				report("S3", it.ID, "the result of attempt %d was refused though it ended %s", it.Attempt, a.Outcome)
			}
		}
	}
}
