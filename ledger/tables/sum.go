package tables

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
)

// Sum is a checksum of a table. Equal tables have equal sums, whatever the order of their rows and the database that
// they are in. It is the sum of the SHA-256 of all rows, in four numbers of 64 bits each.
type Sum struct {
	Rows  int64
	parts [4]uint64
	row   []byte
}

// add counts a row with the columns in order.
func (s *Sum) add(r Row, order []int) error {
	s.row = s.row[:0]
	for _, i := range order {
		switch v := r[i].(type) {
		case nil:
			s.row = append(s.row, 'n')
		case int64:
			s.row = binary.BigEndian.AppendUint64(append(s.row, 'i'), uint64(v))
		case string:
			s.row = append(binary.BigEndian.AppendUint64(append(s.row, 't'), uint64(len(v))), v...)
		case []byte:
			s.row = append(binary.BigEndian.AppendUint64(append(s.row, 'b'), uint64(len(v))), v...)
		default:
			return fmt.Errorf("tables: a value of type %T", v)
		}
	}
	hash := sha256.Sum256(s.row)
	for i := range s.parts {
		s.parts[i] += binary.BigEndian.Uint64(hash[8*i:])
	}
	s.Rows++
	return nil
}

// String is the sum in hexadecimal digits.
func (s Sum) String() string {
	var b []byte
	for _, p := range s.parts {
		b = binary.BigEndian.AppendUint64(b, p)
	}
	return hex.EncodeToString(b)
}

// Equal reports whether two sums are of equal tables.
func (s Sum) Equal(o Sum) bool { return s.Rows == o.Rows && s.parts == o.parts }

// byName are the positions of the table's columns, sorted by their names: two databases may have
// them in different orders.
func byName(t Table) []int {
	names := slices.Sorted(slices.Values(t.Columns))
	order := make([]int, len(names))
	for i, n := range names {
		order[i] = slices.Index(t.Columns, n)
	}
	return order
}

// sum reads a table.
func sum(r Reader, t Table) (s Sum, err error) {
	order := byName(t)
	err = r.Scan(t, nil, func(row Row) error { return s.add(row, order) })
	return s, err
}
