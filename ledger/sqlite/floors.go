package sqlite

import (
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tables"
)

// numbered are the tables that give numbers: ids of items, and fences.
var numbered = []string{"ledger_items", "ledger_locks"}

// Opened implements ledger.Store.
func (s *Store) Opened() ledger.Schema { return s.opened }

// Floors implements ledger.Tx.
func (x *tx) Floors() (floors []int64, given int64, err error) {
	if floors, err = x.LoadFloors(); err != nil {
		return nil, 0, err
	}
	for _, name := range numbered {
		last, err := (&tablesOf{session: x.session}).Sequence(tables.Table{Name: name})
		if err != nil {
			return nil, 0, err
		}
		given = max(given, last)
	}
	return floors, given, nil
}

// PutFloors implements ledger.Tx.
func (x *tx) PutFloors(floors []int64, above int64) error {
	if err := x.SaveFloors(floors); err != nil {
		return err
	}
	for _, name := range numbered {
		if err := (&tablesOf{session: x.session}).SetSequence(tables.Table{Name: name}, above); err != nil {
			return err
		}
	}
	return nil
}
