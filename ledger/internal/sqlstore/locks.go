package sqlstore

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

const lockColumns = `name, fence, token, holder, since, keep_until, expires_at`

func lockDest(l *ledger.Lock) []any {
	return []any{&l.Name, &l.Fence, &l.Token, &l.Holder, &l.Since, &l.KeepUntil, &l.ExpiresAt}
}

// Locks implements ledger.Store.
func (s Store) Locks(ctx context.Context, name string) (all []ledger.Lock, now time.Time, err error) {
	err = s.db.Read(ctx, func(in Session) (err error) {
		if _, err = row(in, `SELECT {{NOW}}`, nil, &now); err != nil {
			return err
		}
		var l ledger.Lock
		all, err = list(in, `SELECT `+lockColumns+` FROM {{S}}.ledger_locks WHERE $1 IN ('', name) ORDER BY name`,
			[]any{name}, lockDest(&l), is(&l))
		return err
	})
	return all, now, err
}

// LoadLock implements ledger.Tx. The first statement may wait for the row, so a later one reads the clock.
func (t Tx) LoadLock(name string) (l ledger.Lock, found bool, now time.Time, err error) {
	err = t.in.Later(`SELECT `+lockColumns+` FROM {{S}}.ledger_locks WHERE name = $1 FOR UPDATE`, []any{name},
		lockDest(&l), func() error { found = true; return nil })
	if err == nil {
		_, err = row(t.in, `SELECT {{NOW}}`, nil, &now)
	}
	return l, found, now, err
}

// PutLock implements ledger.Tx.
func (t Tx) PutLock(l ledger.Lock) error {
	return exec(t.in, `UPDATE {{S}}.ledger_locks SET token = $2, keep_until = $3, expires_at = $4 WHERE name = $1`, l.Name,
		l.Token, l.KeepUntil, l.ExpiresAt)
}

// DropLock implements ledger.Tx.
func (t Tx) DropLock(name string) error {
	return exec(t.in, `DELETE FROM {{S}}.ledger_locks WHERE name = $1`, name)
}
