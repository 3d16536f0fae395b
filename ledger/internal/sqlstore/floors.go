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

// SaveFloors writes the floors.
func (t Tx) SaveFloors(floors []int64) error {
	words := make([]string, len(floors))
	for i, floor := range floors {
		words[i] = strconv.FormatInt(floor, 10)
	}
	return exec(t.in, `INSERT INTO {{S}}.ledger_meta (k, v) VALUES ('`+schema.Restored+`', $1)
 ON CONFLICT (k) DO UPDATE SET v = excluded.v`, strings.Join(words, " "))
}
