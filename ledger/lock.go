package ledger

import (
	"context"
	"time"

	"github.com/google/uuid"
)

// MaxLockName is the most bytes that the name of a lock has.
const MaxLockName = 256

// Lock is the record of a named lock. A name that nobody has held, or that was given back, has none.
type Lock struct {
	Name      string
	Fence     int64     // greater than that of every earlier holder of the name
	Token     uuid.UUID // of the holder; zero once it was released before KeepUntil
	Holder    string    // for people
	Since     time.Time
	KeepUntil time.Time // it is kept until then, however early it is released
	ExpiresAt time.Time
}

// LockStore is what package locks, which has the rules of locks, needs of a store.
type LockStore interface {
	// Update as in Store.
	Update(ctx context.Context, conn Conn, fn func(Tx) error) error
	// Locks returns the record of a name, or all for "", by name, expired ones too, and unless
	// there are none the database's clock.
	Locks(ctx context.Context, name string) ([]Lock, time.Time, error)
}

// LockTx is the part of a Tx that is about locks.
type LockTx interface {
	// LoadLock returns the record of a name and the database's clock as it stands afterwards. A
	// record is locked until the transaction ends; held is false if there is none.
	LoadLock(name string) (l Lock, held bool, now time.Time, err error)
	// GrantLock writes the record of a new holder, in place of the one that was loaded, and
	// returns its fence: a number drawn when nobody else can hold the name any more. Where no
	// record was loaded and somebody else has made one, the transaction is repeated. It is not for
	// transactions of the caller's.
	GrantLock(l Lock) (fence int64, err error)
	// PutLock writes a record that was loaded; fence and holder stay.
	PutLock(l Lock) error
	// DropLock removes a record that was loaded.
	DropLock(name string) error
}

// LockStore gives package locks what it needs of the ledger's store.
func (l *Ledger) LockStore() LockStore { return fittingLocks{l.store, l} }

// CheckLock says what is wrong with the terms of a lock: its name, the name of its holder, for how
// long it is taken and for how long at least.
func CheckLock(name, holder string, ttl, atLeast time.Duration) error {
	c := checker{}
	if name == "" {
		c.fail("name", "is empty")
	}
	c.text("name", name, MaxLockName)
	if holder == "" {
		c.fail("holder", "is empty")
	}
	c.text("holder", holder, MaxAgent)
	c.ttl(ttl)
	if atLeast < 0 || atLeast > MaxTTL {
		c.fail("at_least", "%s, must be 0s … %s", atLeast.String(), MaxTTL.String())
	}
	return c.err
}
