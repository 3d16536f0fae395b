package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/finding"
)

// Opened implements ledger.Store.
func (s *Store) Opened() ledger.Schema { return s.opened }

const (
	// stopAll keeps all others from leasing, renewing, adding and locking. The tables come in the order in which other
	// transactions lock rows of them.
	stopAll = `LOCK TABLE {{S}}.ledger_items, {{S}}.ledger_backlog, {{S}}.ledger_leases, {{S}}.ledger_locks IN EXCLUSIVE MODE`

	itemIDs    = `pg_get_serial_sequence('{{S}}.ledger_items', 'id')::regclass`
	lockFences = `pg_get_serial_sequence('{{S}}.ledger_locks', 'fence')::regclass`
	readGiven  = `SELECT greatest(pg_sequence_last_value(` + itemIDs + `), pg_sequence_last_value(` + lockFences + `),
 (SELECT max(id) FROM {{S}}.ledger_items), (SELECT max(fence) FROM {{S}}.ledger_locks), 0)`
	raiseGiven = `SELECT setval(` + itemIDs + `, greatest($1::bigint, pg_sequence_last_value(` + itemIDs + `))),
 setval(` + lockFences + `, greatest($1, pg_sequence_last_value(` + lockFences + `)))`

	// lagging are sequences that would give again the number of a row: logical replication copies rows, not sequences.
	// A sequence that the role may not read is left out.
	lagging = ` FROM (VALUES ('items', ` + itemIDs + `, (SELECT max(id) FROM {{S}}.ledger_items)),
 ('locks', ` + lockFences + `, (SELECT max(fence) FROM {{S}}.ledger_locks)),
 ('journal', ` + entries + `, (SELECT max(id) FROM {{S}}.ledger_journal))) v (name, sequence, rows)
 WHERE CASE WHEN has_sequence_privilege(sequence, 'SELECT, USAGE') THEN rows > coalesce(pg_sequence_last_value(sequence), 0)
 ELSE false END`
	entries      = `pg_get_serial_sequence('{{S}}.ledger_journal', 'id')::regclass`
	raiseLagging = `SELECT setval(sequence, rows)` + lagging
	showLagging  = `SELECT name, rows` + lagging
)

// examineSequences reports sequences that lag behind their rows.
func (s *Store) examineSequences(ctx context.Context, pool *pgxpool.Pool) (all []finding.Finding, err error) {
	rows, _ := pool.Query(ctx, s.render(showLagging), pgx.QueryExecModeCacheDescribe) // ForEachRow returns its error
	var table string
	var last int64
	_, err = pgx.ForEachRow(rows, []any{&table, &last}, func() error {
		all = append(all, finding.Problem("sequence", fmt.Sprintf("the sequence of ledger_%s lags behind its rows: these go up to %d",
			table, last), "logical replication leaves sequences as they are: what is added there fails",
			"as the owner of the tables, raise it").By(act.Moved))
		return nil
	})
	if sqlState(err) == "42501" { // insufficient_privilege: only some roles read all these tables
		return nil, nil
	}
	return all, err
}

// Floors implements ledger.Tx.
func (t *tx) Floors() (floors []int64, given int64, err error) {
	if err := t.later(stopAll, nil, nil); err != nil {
		return nil, 0, err
	}
	if floors, err = t.LoadFloors(); err != nil {
		return nil, 0, err
	}
	err = t.query(readGiven, nil, func(scan scanner) error { return scan(&given) })
	return floors, given, err
}

// PutFloors implements ledger.Tx.
func (t *tx) PutFloors(floors []int64, above int64) error {
	if err := t.SaveFloors(floors); err != nil {
		return err
	}
	if err := t.query(raiseGiven, []any{above}, func(scanner) error { return nil }); err != nil {
		return err
	}
	return t.raise()
}

// raise raises lagging sequences above their rows. Until then all that is added fails.
func (t *tx) raise() error {
	return t.query(raiseLagging, nil, func(scanner) error { return nil })
}
