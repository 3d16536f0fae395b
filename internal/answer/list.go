package answer

import "github.com/ledgerd/ledgerd/internal/report"

// List is one part of an ordered list.
type List[T any] struct {
	Items []T `json:"items"`
	// Next is the value of the parameter cursor for the next part. It is null at the end. A part may have fewer
	// entries than were asked for, even none, although more parts follow: the time for one part is bounded.
	Next *string `json:"next"`
}

// NewList makes a List; next is "" at the end.
func NewList[T any](items []T, next string) List[T] {
	l := List[T]{Items: report.OrEmpty(items)}
	if next != "" {
		l.Next = &next
	}
	return l
}

// Cursor returns Next, "" at the end of the list.
func (l List[T]) Cursor() string {
	if l.Next == nil {
		return ""
	}
	return *l.Next
}

// Rows returns the entries.
func (l List[T]) Rows() []any {
	all := make([]any, len(l.Items))
	for i, row := range l.Items {
		all[i] = row
	}
	return all
}

// Count is how many items match.
type Count struct {
	Count int64 `json:"count"`
	Whole bool  `json:"whole"` // false: there are more, since counting ended at its bound
}

// Problem is an error, in the form of RFC 9457.
type Problem struct {
	Type   string `json:"type"`   // a page about the code
	Title  string `json:"title"`  // of the code
	Status int    `json:"status"` // of HTTP
	Code   string `json:"code"`   // for programs; none is renamed
	Detail string `json:"detail"` // what went wrong, and where
	Hint   string `json:"hint"`   // what to do next; may be empty
	// Column and Length are where a filter is wrong, in characters from 1.
	Column int    `json:"column,omitempty"`
	Length int    `json:"length,omitempty"`
	Field  string `json:"field,omitempty"` // of the input that is wrong
	Index  *int   `json:"index,omitempty"` // of the entry of a list that is wrong, from 0
}
