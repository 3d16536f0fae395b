package ui

import (
	"net/url"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// rows is a part of a list.
type rows[T any] struct {
	Items []T
	Next  string // path of the next part, "" at the end
	Lines []string
}

// list reads a part of a list of the API for the page at a path.
func list[T any](v *view, at, to, command string) (rows[T], error) {
	q := url.Values{"limit": {"100"}}
	if cursor := v.URL.Query().Get("cursor"); cursor != "" {
		q.Set("cursor", cursor)
	}
	l, err := get[answer.List[T]](v, at, q)
	r := rows[T]{Items: l.Items, Lines: []string{command, "GET /api/v1" + at}}
	if l.Next != nil {
		r.Next = to + "?" + url.Values{"cursor": {*l.Next}}.Encode()
	}
	return r, err
}

func journal(v *view) (any, error) {
	return list[answer.Journal](v, "/journal", "/journal", "ledgerd journal")
}
