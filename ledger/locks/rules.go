package locks

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
)

// inForce says whether a record keeps others out.
func inForce(l ledger.Lock, now time.Time) bool { return l.ExpiresAt.After(now) }

func heldError(l ledger.Lock) *HeldError {
	return &HeldError{Name: l.Name, Holder: l.Holder, Fence: l.Fence, Since: l.Since, Until: l.ExpiresAt}
}

// take gives the lock to want, whose token is new, and returns its fence. One that has it already,
// because an earlier call took effect though it failed, keeps it.
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

// release ends a lock, or leaves it to its least time without a holder. Of one that is lost
// nothing is changed.
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

// forget undoes take where it may have taken effect though nobody knows of it.
func forget(tx ledger.Tx, l ledger.Lock) error {
	rec, there, _, err := tx.LoadLock(l.Name)
	if err != nil || !there || rec.Token != l.Token {
		return err
	}
	return tx.DropLock(l.Name)
}

// breakUp takes a lock from whoever has it, and says who that was.
func breakUp(tx ledger.Tx, actor, name string) (from *HeldError, err error) {
	rec, there, now, err := tx.LoadLock(name)
	if err != nil || !there {
		return nil, err
	}
	if err := tx.DropLock(name); err != nil || !inForce(rec, now) {
		return nil, err
	}
	from = heldError(rec)
	return from, tx.Journal(ledger.JournalEntry{Actor: actor, Action: "release-lock", Subject: name, Detail: from.Error(), Changed: 1})
}

// Check says, in a transaction of the caller's on the ledger's database, whether a lock is still
// held: nil, ErrLost, or ledger.ErrUnavailable. Until that transaction ends nobody else gets the
// lock, so make it the last statement before the commit: what commits after it was written under the
// lock.
//
// At the isolation levels repeatable read and serializable of Postgres it fails with a
// serialization failure when the lock was renewed after the transaction began to read: such
// transactions must be shorter than a third of the lock's TTL, and be repeated. On SQLite nothing
// is renewed while a transaction writes: it must end within half of the TTL.
func (m *Manager) Check(ctx context.Context, conn ledger.Conn, l *Lock) error {
	return m.store.Update(ctx, conn, func(tx ledger.Tx) error {
		_, _, err := mine(tx, l)
		return err
	})
}
