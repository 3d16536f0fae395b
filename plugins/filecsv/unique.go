package filecsv

import (
	"crypto/sha256"
	"strconv"

	"github.com/dustin/go-humanize"
)

// maxUnique is how many values the unique columns of a file may have together. They are held in memory, 60 bytes each
// at most, for each file that is worked at the same time.
const maxUnique = 10_000_000

// unique is a column whose values must differ.
type unique struct {
	column int
	lines  map[digest]int64 // of the good rows, by value
	last   digest           // of the row that is being checked
	null   bool             // that row has no value
}

// digest is half of the SHA-256 of a value.
//
// Two different values of a column count as equal if these 128 bits agree. Among n values that happens with a
// probability of at most n²/2¹²⁹: 1.5·10⁻²⁵ for 10 million. An attacker needs 2⁶⁴ hashes to cause it.
type digest [16]byte

// duplicate returns why a row is bad if it repeats a value of a unique column.
func (s *scanner) duplicate(fields [][]byte) BadRow {
	for i := range s.uniques {
		u := &s.uniques[i]
		v := trim(fields[u.column])
		if u.null = s.rules.isNull(v); u.null {
			continue
		}
		sum := sha256.Sum256(v)
		u.last = digest(sum[:])
		if line, known := u.lines[u.last]; known {
			return BadRow{Column: s.columns[u.column].name, Reason: "repeats the value of line " + strconv.FormatInt(line, 10)}
		}
	}
	return BadRow{}
}

// keepUnique keeps the values of a good row, for which duplicate was called before.
func (s *scanner) keepUnique(line int64) error {
	for i := range s.uniques {
		u := &s.uniques[i]
		if u.null {
			continue
		}
		if s.values++; s.values > s.maxUnique {
			return refuse("too_big", "more than %s values of unique columns; a table with a unique index has no such limit",
				humanize.Comma(int64(s.maxUnique)))
		}
		u.lines[u.last] = line
	}
	return nil
}
