package postgres

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/code"
	"github.com/ledgerd/ledgerd/ledger/tables"
)

// A copy has no table of leases. As on SQLite, each row of the backlog carries its own lease.

// backlog is the table whose rows are copied together with their leases.
const backlog = "ledger_backlog"

// copiedLease is a row of ledger_leases, put together from copied rows of the backlog.
type copiedLease struct {
	lock, kind, agent any
	leased, expires   int64 // µs since 1970; the items have an expiry of their own
	items             []int64
}

// apart splits copied rows of the backlog into leases by lock_id, and columns and rows of ledger_backlog.
func apart(table tables.Table, all []tables.Row) (leases map[[16]byte]*copiedLease, columns []string,
	rows []tables.Row) {
	at := func(column string) int { return slices.Index(table.Columns, column) }
	id, state, kind, lock, agent := at("item_id"), at("state"), at("kind"), at("lock_id"), at("locked_by")
	leasedAt, expiresAt, limit := at("leased_at"), at("expires_at"), at("limit_key")
	columns = slices.Clone(table.Columns)
	columns[state] = "stage"
	columns = append(without(columns, agent, leasedAt), "running")
	leases = map[[16]byte]*copiedLease{}
	for _, r := range all {
		row := slices.Clone(r)
		if row[state] == int64(code.OfState(ledger.StateLeased)) {
			row[state] = int64(code.OfState(ledger.StateReady))
		}
		running := int64(0)
		if token, held := r[lock].([]byte); held && len(token) == 16 {
			l := leases[[16]byte(token)]
			if l == nil {
				l = &copiedLease{r[lock], r[kind], r[agent], r[leasedAt].(int64), r[expiresAt].(int64), nil}
				leases[[16]byte(token)] = l
			}
			l.expires, l.items = min(l.expires, r[expiresAt].(int64)), append(l.items, r[id].(int64))
			if r[limit] != nil {
				running = 1
			}
		}
		rows = append(rows, append(without(row, agent, leasedAt), running))
	}
	return leases, columns, rows
}

// without removes the values at the indices i and j. It changes the list.
func without[S ~[]T, T any](list S, i, j int) S {
	return slices.Delete(slices.Delete(list, max(i, j), max(i, j)+1), min(i, j), min(i, j)+1)
}

// insertLeases inserts leases. A lease that is there already gets the items: a batch of rows may end within a lease.
func (t *tablesOf) insertLeases(leases map[[16]byte]*copiedLease) error {
	var b pgx.Batch
	for lock, l := range leases {
		b.Queue(t.sql(`INSERT INTO {{S}}.ledger_leases AS l (lock_id, kind, agent, leased_at, expires_at, due_at, split, items)
 VALUES ($1, $2, $3, $4, $5, $5, true, $6) ON CONFLICT (lock_id) DO UPDATE SET items = l.items || excluded.items,
 expires_at = least(l.expires_at, excluded.expires_at), due_at = least(l.due_at, excluded.due_at)`),
			lock, l.kind, l.agent, time.UnixMicro(l.leased), time.UnixMicro(l.expires), l.items)
	}
	if err := t.tx.SendBatch(t.ctx, &b).Close(); err != nil {
		return fmt.Errorf("ledger_leases: %w", err)
	}
	return nil
}
