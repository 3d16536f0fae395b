package locks

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
)

// inForce reports whether a record excludes other callers.
func inForce(l ledger.Lock, now time.Time) bool { return l.ExpiresAt.After(now) }

func heldError(l ledger.Lock) *HeldError {
	return &HeldError{Name: l.Name, Holder: l.Holder, Fence: l.Fence, Since: l.Since, Until: l.ExpiresAt}
}

// take grants the lock to want and returns its fence. The token of want is new. If an earlier call took effect
// although it failed, the holder has the lock already and keeps it.
func take(tx ledger.Tx, want ledger.Lock, o Options) (fence int64, err error) {
	l, there, now, err := tx.LoadLock(want.Name)
	switch {
	case err != nil:
		return 0, err
	case there && l.Token == want.Token:
		l.ExpiresAt = now.Add(o.TTL)
		return l.Fence, tx.PutLock(l)
	case there && inForce(l, now):
		return 0, heldError(l)
	}
	want.Since, want.KeepUntil, want.ExpiresAt = now, now.Add(o.AtLeast), now.Add(o.TTL)
	return tx.GrantLock(want)
}

// mine returns the record of a lock, locked, if it is still held by its holder.
func mine(tx ledger.Tx, l *Lock) (rec ledger.Lock, now time.Time, err error) {
	rec, there, now, err := tx.LoadLock(l.Name)
	if err == nil && !(there && rec.Token == l.token && inForce(rec, now)) {
		err = ErrLost
	}
	return rec, now, err
}

func renew(tx ledger.Tx, l *Lock) error {
	rec, now, err := mine(tx, l)
	if err != nil {
		return err
	}
	rec.ExpiresAt = now.Add(l.ttl)
	return tx.PutLock(rec)
}

// release ends a lock. Before KeepUntil the record stays, without the token of a holder. The record of a lost lock is
// not changed.
func release(tx ledger.Tx, l *Lock) error {
	rec, there, now, err := tx.LoadLock(l.Name)
	if err != nil || !there || rec.Token != l.token {
		return err
	}
	if rec.KeepUntil.After(rec.Since) && rec.KeepUntil.After(now) { // the clock may have been set back
		rec.Token, rec.ExpiresAt = uuid.Nil, rec.KeepUntil
		return tx.PutLock(rec)
	}
	return tx.DropLock(l.Name)
}

// forget undoes a take that may have taken effect although its answer was lost.
func forget(tx ledger.Tx, l ledger.Lock) error {
	rec, there, _, err := tx.LoadLock(l.Name)
	if err != nil || !there || rec.Token != l.Token {
		return err
	}
	return tx.DropLock(l.Name)
}

// breakUp takes a lock from its holder, and returns that holder.
func breakUp(tx ledger.Tx, actor, name string) (from *HeldError, err error) {
	rec, there, now, err := tx.LoadLock(name)
	if err != nil || !there {
		return nil, err
	}
	if err := tx.DropLock(name); err != nil || !inForce(rec, now) {
		return nil, err
	}
	from = heldError(rec)
	return from, tx.Journal(ledger.JournalEntry{Actor: actor, Action: "release-lock", Subject: name, Changed: 1,
		Detail: "held by " + from.Holder + " since " + from.Since.Format(time.RFC3339)})
}

// Check returns nil if the lock is still held, and ErrLost if it is not. It runs on conn, a transaction of the caller
// on the ledger's database. No other caller gets the lock until this transaction ends. So make Check the last
// statement before the commit: then everything that is committed was written under the lock. With a nil conn, Check has
// a transaction of its own, and tells only what holds at that moment. Other error: ledger.ErrUnavailable.
//
// On Postgres, at the isolation levels repeatable read and serializable, Check fails with a serialization failure if
// the lock was renewed after the transaction began to read. Such a transaction must be shorter than a third of the
// lock's TTL, and it must be repeated after this failure. On SQLite no lock is renewed while a transaction writes, so
// the transaction must end within half of the TTL.
func (m *Manager) Check(ctx context.Context, conn ledger.Conn, l *Lock) error {
	return m.store.Update(ctx, conn, func(tx ledger.Tx) error {
		_, _, err := mine(tx, l)
		return err
	})
}
