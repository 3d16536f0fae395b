package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// Lock is the record of a named lock. A name that was never held, or was given back, has none.
type Lock struct {
	Name      string
	Fence     int64     // greater than that of every earlier holder of the name
	Token     uuid.UUID // of the holder; zero if it was released before KeepUntil
	Holder    string    // for people
	Since     time.Time
	KeepUntil time.Time // the lock stays taken until then, even if it is released earlier
	ExpiresAt time.Time
}

// LockStore is the part of a store that package locks needs. The rules of locks are there.
type LockStore interface {
	// Update runs fn in one write transaction and commits it if fn returns nil. When the database gives up on the
	// transaction (deadlock, serialization failure, busy) all of it is repeated, so fn must have no other effects. With
	// a conn, fn runs in the transaction of the caller: Update commits and repeats nothing.
	Update(ctx context.Context, conn Conn, fn func(Tx) error) error
	// Locks returns the record of a name, or for "" all records by name, expired ones too. If there is any, it also
	// returns the time of the database's clock.
	Locks(ctx context.Context, name string) ([]Lock, time.Time, error)
}

// lockTx is the part of a Tx for locks.
type lockTx interface {
	// LoadLock returns the record of a name, and the time of the database's clock after it was read. The row of the
	// record stays locked until the transaction ends. found is false if there is no record; a record that is found may
	// have expired.
	LoadLock(name string) (l Lock, found bool, now time.Time, err error)
	// GrantLock writes the record of a new holder, in place of the loaded record, and returns its fence. The fence is
	// drawn when no other process can take the name any more. If no record was loaded and another process has made one,
	// the transaction is repeated. GrantLock must not be called in a transaction of the caller.
	GrantLock(l Lock) (fence int64, err error)
	// PutLock updates a loaded record; fence and holder stay.
	PutLock(l Lock) error
	// DropLock removes a loaded record.
	DropLock(name string) error
}

// LockStore returns the part of the ledger's store that package locks needs.
func (l *Ledger) LockStore() LockStore { return fittingLocks{l.store, l} }

// Check validates a lock before it is taken: its name, its holder, its TTL and the time for which it is kept at least.
func (l Lock) Check(ttl, atLeast time.Duration) error {
	c := checker{}
	if l.Name == "" {
		c.fail("name", "is empty")
	}
	c.text("name", l.Name, bounds.MaxLockName)
	if l.Holder == "" {
		c.fail("holder", "is empty")
	}
	c.text("holder", l.Holder, bounds.MaxAgent)
	c.ttl(ttl)
	if atLeast < 0 || atLeast > bounds.MaxTTL {
		c.fail("at_least", "%s, must be 0s … %s", atLeast.String(), bounds.MaxTTL.String())
	}
	return c.err
}
