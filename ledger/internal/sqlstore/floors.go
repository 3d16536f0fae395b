package sqlstore

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/schema"
)

// readFloors reads the floors of a ledger as text; no row means that it was never restored. All numbers that the ledger
// gives are above the newest floor; see ledger.Ledger.Restored.
const readFloors = `SELECT v FROM {{S}}.ledger_meta WHERE k = '` + schema.Restored + `'`

// Floors parses the text in ledger_meta.
func Floors(text string) (floors []int64, err error) {
	for _, word := range strings.Fields(text) {
		floor, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("ledger_meta, %s: %w", schema.Restored, err)
		}
		floors = append(floors, floor)
	}
	return floors, nil
}

// LoadFloors returns the floors, and locks their row if there is one.
func (t Tx) LoadFloors() ([]int64, error) {
	var text string
	if _, err := row(t.in, readFloors+` FOR UPDATE`, nil, &text); err != nil {
		return nil, err
	}
	return Floors(text)
}

// PutEnvironment implements ledger.Tx.
func (t Tx) PutEnvironment(name string, replace bool) error {
	if !replace {
		return exec(t.in, insertMeta+`NOTHING`, schema.Environment, name)
	}
	if name == "" {
		return exec(t.in, `DELETE FROM {{S}}.ledger_meta WHERE k = '`+schema.Environment+`'`)
	}
	return t.putMeta(schema.Environment, name)
}

const insertMeta = `INSERT INTO {{S}}.ledger_meta (k, v) VALUES ($1, $2) ON CONFLICT (k) DO `

// putMeta writes a fact about the ledger as a whole.
func (t Tx) putMeta(k, v string) error {
	return exec(t.in, insertMeta+`UPDATE SET v = excluded.v`, k, v)
}

// SaveFloors writes the floors.
func (t Tx) SaveFloors(floors []int64) error {
	words := make([]string, len(floors))
	for i, floor := range floors {
		words[i] = strconv.FormatInt(floor, 10)
	}
	return t.putMeta(schema.Restored, strings.Join(words, " "))
}
