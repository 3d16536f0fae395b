package sqlstore

import (
	"cmp"
	"context"
	"math"

	"github.com/ledgerd/ledgerd/ledger"
)

// Journal implements ledger.Store.
func (s Store) Journal(ctx context.Context, before int64, limit int) ([]ledger.JournalEntry, error) {
	before = cmp.Or(before, math.MaxInt64)
	return read(ctx, s, func(in Session) ([]ledger.JournalEntry, error) {
		var e ledger.JournalEntry
		return list(in,
			`SELECT id, at, actor, action, subject, detail, changed FROM {{S}}.ledger_journal WHERE id < $1 ORDER BY id DESC LIMIT $2`,
			[]any{before, limit}, []any{&e.ID, &e.At, &e.Actor, &e.Action, &e.Subject, &e.Detail, &e.Changed}, is(&e))
	})
}

// Journal implements ledger.Tx.
func (t Tx) Journal(e ledger.JournalEntry) error {
	return exec(t.in,
		`INSERT INTO {{S}}.ledger_journal (at, actor, action, subject, detail, changed) VALUES ($1, $2, $3, $4, $5, $6)`,
		t.now(), e.Actor, e.Action, e.Subject, e.Detail, e.Changed)
}
