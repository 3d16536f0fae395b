package postgres

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ledgerd/ledgerd/ledger"
)

const lockColumns = `name, fence, token, holder, since, keep_until, expires_at`

func scanLock(scan scanner, more ...any) (l ledger.Lock, err error) {
	var token pgtype.UUID
	err = scan(append([]any{&l.Name, &l.Fence, &token, &l.Holder, &l.Since, &l.KeepUntil, &l.ExpiresAt}, more...)...)
	l.Token, l.Since, l.KeepUntil, l.ExpiresAt = token.Bytes, l.Since.UTC(), l.KeepUntil.UTC(), l.ExpiresAt.UTC()
	return l, err
}

// Locks implements ledger.Store.
func (s *Store) Locks(ctx context.Context, name string) (all []ledger.Lock, now time.Time, err error) {
	template, args := `SELECT `+lockColumns+`, (SELECT {{NOW}}) FROM {{S}}.ledger_locks ORDER BY name`, []any{}
	if name != "" {
		template, args = `SELECT `+lockColumns+`, (SELECT {{NOW}}) FROM {{S}}.ledger_locks WHERE name = $1`, []any{name}
	}
	all, err = collect(ctx, s, template, args, func(scan scanner) (ledger.Lock, error) { return scanLock(scan, &now) })
	return all, now.UTC(), err
}

// LoadLock implements ledger.Tx. The clock is that of a statement after the one that may have
// waited for the row.
func (t *tx) LoadLock(name string) (l ledger.Lock, held bool, now time.Time, err error) {
	err = t.later(`SELECT `+lockColumns+` FROM {{S}}.ledger_locks WHERE name = $1 FOR UPDATE`, []any{name}, func(scan scanner) (err error) {
		l, err = scanLock(scan)
		held = true
		return err
	})
	if err == nil {
		err = t.query(`SELECT {{NOW}}`, nil, func(scan scanner) error { return scan(&now) })
	}
	if held {
		t.locked = append(t.locked, name)
	}
	return l, held, now.UTC(), err
}

// errNewLock says that a lock got its record from somebody else after it was loaded.
var errNewLock = errors.New("somebody else has just taken the lock")

// GrantLock implements ledger.Tx. The fence that an insert draws may be older than that of
// somebody who held and dropped the name before the row was in the index; the update draws another
// when nobody can any more.
func (t *tx) GrantLock(l ledger.Lock) (fence int64, err error) {
	args := []any{l.Name, pgUUID(l.Token), l.Holder, l.Since, l.KeepUntil, l.ExpiresAt}
	if !slices.Contains(t.locked, l.Name) {
		inserted := false
		err := t.query(`INSERT INTO {{S}}.ledger_locks (name, token, holder, since, keep_until, expires_at) VALUES ($1, $2, $3, $4, $5, $6)
 ON CONFLICT (name) DO NOTHING RETURNING name`, args, func(scanner) error { inserted = true; return nil })
		if err == nil && !inserted {
			err = misplacedTrust{errNewLock}
		}
		if err != nil {
			return 0, err
		}
	}
	err = t.query(`UPDATE {{S}}.ledger_locks SET fence = DEFAULT, token = $2, holder = $3, since = $4, keep_until = $5, expires_at = $6 WHERE name = $1 RETURNING fence`,
		args, func(scan scanner) error { return scan(&fence) })
	return fence, err
}

// PutLock implements ledger.Tx.
func (t *tx) PutLock(l ledger.Lock) error {
	return t.later(`UPDATE {{S}}.ledger_locks SET token = $2, keep_until = $3, expires_at = $4 WHERE name = $1`,
		[]any{l.Name, pgUUID(l.Token), l.KeepUntil, l.ExpiresAt}, nil)
}

// DropLock implements ledger.Tx.
func (t *tx) DropLock(name string) error {
	return t.later(`DELETE FROM {{S}}.ledger_locks WHERE name = $1`, []any{name}, nil)
}
