package ledger

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// A backup that is put back, or a standby that is promoted, may lack the newest acknowledged writes. Without
// precautions the ledger would give the same numbers once more: ids of items, attempts, fences. Restored begins another
// incarnation of the ledger. All of its numbers are above a floor: a number that is greater than every number given
// before. The floor comes from the clock, so the second restoration of the same backup has a greater one. That works
// because fewer than a thousand attempts of an item begin in a second, and fewer than a million items are added.
const (
	attemptsPerSecond = 1_000
	idsPerAttempt     = 1_000 // ids and fences are above the floor times this
	// A new floor is at least about leastLift above all numbers so far, also if the clock was set back.
	leastLift = 1_000_000
	// maxFloor is in the year 2311. Programs that read numbers of JSON as floating-point would round the ids above it.
	maxFloor = 1 << 53 / idsPerAttempt
)

// dayOne is the time at which a floor is 0: the later it is, the shorter are the numbers.
var dayOne = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// nextFloor returns the floor of the next incarnation. given is the greatest id or fence so far.
func nextFloor(floors []int64, given int64, now time.Time) (int64, error) {
	floor := int64(now.Sub(dayOne)/time.Second) * attemptsPerSecond
	if floor > maxFloor {
		return 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the clock of the database is at %s, and numbers that follow "+
			"from it would be too great", now.UTC().Format(time.DateTime)), Hint: "set that clock right, then try again"}
	}
	above := max(lastFloor(floors), given/idsPerAttempt)
	raised := above + leastLift - above%attemptsPerSecond // rounded down: floors are multiples of attemptsPerSecond
	if floor = max(floor, raised); floor > maxFloor {
		return 0, &Error{Kind: ErrInvalid, Message: fmt.Sprintf("the numbers of this ledger are too great to be raised above "+
			"%d: did a clock that was far ahead raise them before?", max(lastFloor(floors)*idsPerAttempt, given)),
			Hint: "add its items to a new ledger"}
	}
	return floor, nil
}

// lastFloor returns the floor in force; 0 if there is none.
func lastFloor(floors []int64) int64 {
	if len(floors) == 0 {
		return 0
	}
	return floors[len(floors)-1]
}

// Incarnation is 1, and one more for each time that the ledger was restored.
func (s Schema) Incarnation() int { return len(s.Floors) + 1 }

// Above returns the numbers that those of this incarnation exceed: of attempts, and of items and locks.
func (s Schema) Above() (attempts, ids int64) {
	floor := lastFloor(s.Floors)
	return floor, floor * idsPerAttempt
}

// restoredSince returns an error if the ledger was restored since a program opened it: that program must begin nothing
// more in it.
func (s Schema) restoredSince(opened []int64) error {
	if slices.Equal(s.Floors, opened) {
		return nil
	}
	return &Error{Kind: ErrSchema, Hint: "start this program again",
		Message: fmt.Sprintf("the ledger in %s was restored while this program had it open: it is in incarnation %d, and "+
			"was in %d", s.Ledger, s.Incarnation(), len(opened)+1)}
}

// floor returns the number that numbers of new attempts exceed.
func (l *Ledger) floor() int64 { return lastFloor(*l.floors.Load()) }

// next returns the number of the attempt that follows another one.
func next(attempt, floor int64) int64 { return max(attempt, floor) + 1 }

// Next returns the number of the claim that follows an attempt.
func (g *Grant) Next(attempt int64) int64 { return next(attempt, g.Floor) }

// FirstOf reports whether a claimed attempt is certainly the first of its item. Only ids of this incarnation exceed the
// floor, and their attempts begin with the first number above it.
func (g *Grant) FirstOf(id, attempt int64) bool {
	return attempt == 1 || attempt == g.Floor+1 && id > g.Floor*idsPerAttempt
}

// lifted reports whether an attempt follows others in a later incarnation, so that numbers are missing before it.
func lifted(floors []int64, follows, attempt int64) bool {
	return attempt > follows && slices.Contains(floors, attempt-1)
}

// codeRestored is the code of attempts that were lost because the ledger was restored.
const codeRestored = "ledger_restored"

// Restored has to be called after a backup was put back or a standby was promoted, before any program works the ledger;
// it does not check that none does. All numbers from then on are greater than any number given before, and all leases
// end as if they had expired. Other programs that have the ledger open notice the restoration and begin nothing more.
// The journal names actor as the operator. Restored returns the floors, and how many leases it ended.
func (l *Ledger) Restored(ctx context.Context, actor string) (done Schema, lost int64, err error) {
	c := checker{}
	if c.agent(actor); c.err != nil {
		return done, 0, c.err
	}
	home, err := l.store.Home(ctx)
	if err != nil {
		return done, 0, err
	}
	var kinds []string
	err = l.store.Update(ctx, nil, func(tx Tx) error {
		have, given, err := tx.Floors()
		if err != nil {
			return err
		}
		floor, err := nextFloor(have, given, tx.Now())
		if err != nil {
			return err
		}
		done.Floors = append(slices.Clone(have), floor)
		lost, kinds = 0, nil
		for {
			recs, err := tx.LoadLeased("", page)
			if err != nil {
				return err
			}
			if len(recs) == 0 {
				break
			}
			lost += int64(len(recs))
			if err := l.lose(tx, recs, codeRestored, &kinds); err != nil {
				return err
			}
		}
		attempts, ids := done.Above()
		if err := tx.PutFloors(done.Floors, ids); err != nil {
			return err
		}
		if home != "" {
			if err := tx.PutHome(home); err != nil {
				return err
			}
		}
		return tx.Journal(JournalEntry{Actor: actor, Action: "restored", Subject: "ledger", Changed: lost,
			Detail: fmt.Sprintf("incarnation %d: attempts above %d, ids and fencing numbers above %d", done.Incarnation(),
				attempts, ids)})
	})
	if err != nil {
		return Schema{}, 0, err
	}
	l.floors.Store(&done.Floors)
	l.announce(kinds)
	return done, lost, nil
}

// Moved is for a database that was moved and lacks nothing: its standby was synchronous, or it was copied while no
// program worked it. Numbers and leases continue. It returns the place of the database that is now recorded; "" if the
// store does not know that.
func (l *Ledger) Moved(ctx context.Context, actor string) (home string, err error) {
	c := checker{}
	if c.agent(actor); c.err != nil {
		return "", c.err
	}
	if home, err = l.store.Home(ctx); err != nil || home == "" {
		return "", err
	}
	err = l.store.Update(ctx, nil, func(tx Tx) error {
		if err := tx.PutHome(home); err != nil {
			return err
		}
		return tx.Journal(JournalEntry{Actor: actor, Action: "moved", Subject: "ledger",
			Detail: "nothing was lost; now on " + home})
	})
	return home, err
}
