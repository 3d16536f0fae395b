package sqlite

import (
	"encoding/json"
	"strings"
)

// bulk is a statement over many rows of arguments, VALUES (?, …), (?, …), written for 64, 8 and 1 rows. These are so
// few texts that all stay prepared. The statement is more than twice as fast as a JSON document with one array per row,
// and it keeps bytes as they are.
type bulk struct {
	texts [len(bulkSizes)]string
}

var bulkSizes = [...]int{64, 8, 1}

// newBulk makes the statement before + VALUES… + after, with width arguments per row.
func newBulk(before string, width int, after string) *bulk {
	b := &bulk{}
	values := "(?" + strings.Repeat(",?", width-1) + ")"
	for i, n := range bulkSizes {
		b.texts[i] = before + " VALUES " + values + strings.Repeat(","+values, n-1) + after
	}
	return b
}

// chunks splits n rows into parts of 64, 8 and 1. For each part [from, to) it calls run with the text of the statement
// and the arguments. args appends the arguments of row i to list.
func (b *bulk) chunks(n int, args func(list []any, i int) []any, run func(from, to int, text string,
	list []any) error) error {
	var list []any
	for from := 0; from < n; {
		for k, size := range bulkSizes {
			if from+size > n {
				continue
			}
			list = list[:0]
			for i := from; i < from+size; i++ {
				list = args(list, i)
			}
			if err := run(from, from+size, b.texts[k], list); err != nil {
				return err
			}
			from += size
			break
		}
	}
	return nil
}

// exec runs the statement for n rows.
func (b *bulk) exec(s session, n int, args func(list []any, i int) []any) error {
	return b.chunks(n, args, func(_, _ int, text string, list []any) error {
		_, err := s.exec(text, list...)
		return err
	})
}

// query runs the statement for n rows and calls each for every row of its results.
func (b *bulk) query(s session, n int, args func(list []any, i int) []any, each func(row) error) error {
	return b.chunks(n, args, func(_, _ int, text string, list []any) error {
		return s.query(text, each, list...)
	})
}

// array returns a list as JSON, for json_each.
func array[T int64 | [2]int64 | string](list []T) string {
	if len(list) == 0 {
		return "[]"
	}
	b, err := json.Marshal(list)
	if err != nil { // numbers and strings always can be
		panic("sqlite: " + err.Error())
	}
	return string(b)
}
