package ledger

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// Schema describes which version the tables of a ledger have, and which versions this program knows.
type Schema struct {
	Ledger     string  // where it is, for people
	Have       int     // number of its newest migration; 0: there is no ledger
	Compatible int     // the lowest number that a program must know to use it
	Oldest     int     // the oldest number from which this program can bring a ledger up to date
	Known      int     // the newest number that this program knows
	Floors     []int64 // one floor for each time that the ledger was restored, rising; see Ledger.Restored

	Environment string // that the ledger is of; "": none, see Ledger.SetEnvironment
}

// Fits returns an error that matches [ErrSchema] if this program is too old for the ledger, or the ledger for it.
func (s Schema) Fits() error {
	switch {
	case 0 < s.Have && s.Have < s.Oldest:
		return &Error{Kind: ErrSchema, Hint: "list its items with the build that made it, and add them to a new ledger",
			Message: fmt.Sprintf("the ledger in %s has schema %d, of a build before the first release; this program can "+
				"use schema %d or later", s.Ledger, s.Have, s.Oldest)}
	case s.Compatible <= s.Known:
		return nil
	}
	return &Error{Kind: ErrSchema, Hint: "upgrade ledgerd on this machine: the ledger is fine",
		Message: fmt.Sprintf("the ledger in %s has schema %d, which programs that know schema %d or later may use, and "+
			"this one knows %d", s.Ledger, s.Have, s.Compatible, s.Known)}
}

// lookEvery is how often a program checks whether it may still use the ledger, because a newer release may have
// upgraded the ledger. It is less than the time between two heartbeats of a worker.
const lookEvery = 5 * time.Second

// fitness is the newest answer to the question whether this program may use the ledger.
type fitness struct {
	mu   sync.Mutex
	next time.Time // when the ledger has to be checked again
	err  error     // of the last check; nil: the program may use the ledger
}

// fit returns an error if this program must not begin new work: it is too old for the ledger, the ledger was restored
// since it was opened, or is of another environment. Calls that begin something, or are repeated for ever, ask it
// first: adding, claiming, the acts of operators, the upkeep of workers, heartbeats, lists, taking locks. Calls that
// end earlier work do not ask it: renewals, finishing, the last heartbeat, releasing locks. So a worker stops in
// order, and all that it holds is ended or released.
//
// The ledger is checked once in lookEvery. The first call after that makes the check and waits for it. In a transaction
// of the caller it does not wait, because the transaction may hold the only connection: the result is for the next
// call. A check that fails is ignored; the call itself is about to fail in the same way.
func (l *Ledger) fit(ctx context.Context, conn Conn) error {
	due, err := l.fitness.ask()
	switch {
	case !due:
		return err
	case conn == nil:
		return l.checkFitness(ctx)
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookEvery)
		defer cancel()
		_ = l.checkFitness(ctx)
	}()
	return err
}

// ask reports whether a check is due, and the result of the last check. If it is due, the caller makes it.
func (f *fitness) ask() (due bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if due = !now.Before(f.next); due {
		f.next = now.Add(lookEvery)
	}
	return due, f.err
}

// checkFitness reads the schema and keeps the answer. If the schema cannot be read, the answer of the last check stays.
func (l *Ledger) checkFitness(ctx context.Context) error {
	s, err := l.store.Schema(ctx)
	f := &l.fitness
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.err = cmp.Or(s.Fits(), s.restoredSince(*l.floors.Load()), s.of(l.environment))
	}
	return f.err
}

// fittingLocks are the locks of a store. A program that is too old for the ledger cannot take them.
type fittingLocks struct {
	LockStore
	l *Ledger
}

// Locks implements LockStore. Package locks calls it before it takes a lock.
func (s fittingLocks) Locks(ctx context.Context, name string) ([]Lock, time.Time, error) {
	if err := s.l.fit(ctx, nil); err != nil {
		return nil, time.Time{}, err
	}
	return s.LockStore.Locks(ctx, name)
}
