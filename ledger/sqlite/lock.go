package sqlite

import (
	"github.com/ledgerd/ledgerd/ledger"
)

// GrantLock implements ledger.Tx. It inserts a new row for each holder, since the id of the row is the fence.
func (x *tx) GrantLock(l ledger.Lock) (int64, error) {
	if err := x.DropLock(l.Name); err != nil {
		return 0, err
	}
	r, err := x.session.exec(
		`INSERT INTO ledger_locks (name, token, holder, since, keep_until, expires_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6)`,
		l.Name, l.Token, l.Holder, l.Since, l.KeepUntil, l.ExpiresAt)
	return r.lastID, err
}
