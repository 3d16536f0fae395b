package sqlite

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const lockColumns = `name, fence, token, holder, since, keep_until, expires_at`

func scanLock(r row) ledger.Lock {
	return ledger.Lock{Name: r.text(0), Fence: r.int(1), Token: r.uuid(2), Holder: r.text(3), Since: r.time(4), KeepUntil: r.time(5), ExpiresAt: r.time(6)}
}

// Locks implements ledger.Store.
func (s *Store) Locks(ctx context.Context, name string) (all []ledger.Lock, now time.Time, err error) {
	query, args := `SELECT `+lockColumns+` FROM ledger_locks ORDER BY name`, []any{}
	if name != "" {
		query, args = `SELECT `+lockColumns+` FROM ledger_locks WHERE name = ?1`, []any{name}
	}
	err = s.read(ctx, false, func(r session) error {
		now = s.clock()
		return r.query(query, func(r row) error {
			all = append(all, scanLock(r))
			return nil
		}, args...)
	})
	return all, now, err
}

// LoadLock implements ledger.Tx. Whoever writes has the file to himself, so there is nothing to lock.
func (x *tx) LoadLock(name string) (l ledger.Lock, held bool, now time.Time, err error) {
	if err := x.begin(); err != nil {
		return l, false, now, err
	}
	err = x.session.query(`SELECT `+lockColumns+` FROM ledger_locks WHERE name = ?1`, func(r row) error {
		l, held = scanLock(r), true
		return nil
	}, name)
	return l, held, x.now, err
}

// GrantLock implements ledger.Tx. Each holder's row is a new one, which gives it its fence.
func (x *tx) GrantLock(l ledger.Lock) (int64, error) {
	if err := x.DropLock(l.Name); err != nil {
		return 0, err
	}
	r, err := x.session.exec(`INSERT INTO ledger_locks (name, token, holder, since, keep_until, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`,
		l.Name, l.Token, l.Holder, l.Since, l.KeepUntil, l.ExpiresAt)
	return r.lastID, err
}

// PutLock implements ledger.Tx.
func (x *tx) PutLock(l ledger.Lock) error {
	if err := x.begin(); err != nil {
		return err
	}
	_, err := x.session.exec(`UPDATE ledger_locks SET token = ?2, keep_until = ?3, expires_at = ?4 WHERE name = ?1`, l.Name, l.Token, l.KeepUntil, l.ExpiresAt)
	return err
}

// DropLock implements ledger.Tx.
func (x *tx) DropLock(name string) error {
	if err := x.begin(); err != nil {
		return err
	}
	_, err := x.session.exec(`DELETE FROM ledger_locks WHERE name = ?1`, name)
	return err
}
