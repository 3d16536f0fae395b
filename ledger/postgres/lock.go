package postgres

import (
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// LoadLock implements ledger.Tx.
func (t *tx) LoadLock(name string) (l ledger.Lock, found bool, now time.Time, err error) {
	l, found, now, err = t.sharedTx.LoadLock(name)
	if found {
		t.locked = append(t.locked, name)
	}
	return l, found, now, err
}

// errNewLock means that another process has inserted the lock's row since LoadLock found none.
var errNewLock = errors.New("somebody else has just taken the lock")

// GrantLock implements ledger.Tx. An insert draws its fence before other processes see the row, so one of them may have
// drawn a greater fence for the same name since. The update draws another fence once the row is locked.
func (t *tx) GrantLock(l ledger.Lock) (fence int64, err error) {
	args := []any{l.Name, pgUUID(l.Token), l.Holder, l.Since, l.KeepUntil, l.ExpiresAt}
	if !slices.Contains(t.locked, l.Name) {
		inserted := false
		err := t.query(
			`INSERT INTO {{S}}.ledger_locks (name, token, holder, since, keep_until, expires_at) VALUES ($1, $2, $3, $4, $5, $6)
 ON CONFLICT (name) DO NOTHING RETURNING name`, args, func(scanner) error { inserted = true; return nil })
		if err == nil && !inserted {
			err = keyNotNew{errNewLock}
		}
		if err != nil {
			return 0, err
		}
	}
	err = t.query(
		`UPDATE {{S}}.ledger_locks SET fence = DEFAULT, token = $2, holder = $3, since = $4, keep_until = $5, expires_at = $6 WHERE name = $1 RETURNING fence`,
		args, func(scan scanner) error { return scan(&fence) })
	return fence, err
}
