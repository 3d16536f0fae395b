package tables

import (
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// Equal sums must mean equal tables: what is NULL, empty, text or bytes, and in which column.
func TestSumsTellValuesApart(t *testing.T) {
	table := Table{Columns: []string{"b", "a"}}
	sum := func(rows ...Row) Sum {
		t.Helper()
		s, order := Sum{}, byName(table)
		for _, r := range rows {
			must.OK(t, s.add(r, order))
		}
		return s
	}
	one, two := Row{"a", int64(1)}, Row{"a", int64(2)}
	different := [][]Row{
		{}, {one}, {two}, {one, two}, {one, one}, {{int64(1), "a"}}, {{nil, nil}}, {{"", nil}}, {{nil, ""}},
		{{[]byte{}, nil}}, {{"ab", "c"}}, {{"a", "bc"}}, {{[]byte("ab"), "c"}}, {{"1", nil}}, {{int64(1), nil}},
		{{"a", int64(-1)}}, {{"a\x00", nil}},
	}
	for i, first := range different {
		for j, second := range different {
			a, b := sum(first...), sum(second...)
			if a.Equal(b) != (i == j) || (a.String() == b.String()) != (i == j) {
				t.Errorf("%v and %v", first, second)
			}
		}
	}
	if !sum(one, two).Equal(sum(two, one)) {
		t.Error("the order of rows changes the sum")
	}
	other := Sum{}
	if err := other.add(Row{int64(1), "a"}, byName(Table{Columns: []string{"a", "b"}})); err != nil ||
		!other.Equal(sum(one)) {
		t.Errorf("the order of columns changes the sum, %v", err)
	}
	if err := other.add(Row{1.5, "a"}, []int{0, 1}); err == nil {
		t.Error("a value of another type is summed")
	}
}
