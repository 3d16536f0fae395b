package postgres

// Opened implements ledger.Store.
func (s *Store) Opened() []int64 { return s.floors }

const (
	// stopAll keeps all others from leasing, renewing, adding and locking. Others lock items before their backlog, too.
	stopAll = `LOCK TABLE {{S}}.ledger_items, {{S}}.ledger_backlog, {{S}}.ledger_leases, {{S}}.ledger_locks IN EXCLUSIVE MODE`

	itemIDs    = `pg_get_serial_sequence('{{S}}.ledger_items', 'id')::regclass`
	lockFences = `pg_get_serial_sequence('{{S}}.ledger_locks', 'fence')::regclass`
	readGiven  = `SELECT greatest(pg_sequence_last_value(` + itemIDs + `), pg_sequence_last_value(` + lockFences + `), 0)`
	raiseGiven = `SELECT setval(` + itemIDs + `, greatest($1::bigint, pg_sequence_last_value(` + itemIDs + `))),
 setval(` + lockFences + `, greatest($1, pg_sequence_last_value(` + lockFences + `)))`
)

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
	return t.query(raiseGiven, []any{above}, func(scanner) error { return nil })
}
