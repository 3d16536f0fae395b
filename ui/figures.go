package ui

import (
	"net/url"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

// rows is a part of a list.
type rows[T any] struct {
	Items []T
	Next  string // path of the next part, "" at the end
	Part  bool   // there are more entries
	Lines []string
}

// list reads a part of a list of the API for the page at the same path. The path of the next part keeps the range.
func list[T any](v *view, at, command string) (rows[T], error) {
	q := given(v.URL.Query(), "cursor")
	q.Set("limit", "100")
	l, err := get[answer.List[T]](v, at, q)
	r := rows[T]{Items: l.Items, Lines: []string{command, "GET /api/v1" + at},
		Part: l.Next != nil || q.Has("cursor")}
	if l.Next != nil {
		to := given(v.URL.Query(), "range")
		to.Set("cursor", *l.Next)
		r.Next = at + "?" + to.Encode()
	}
	return r, err
}

// ranges are the times for which a page can look back, such as 24h, and the chosen one.
type ranges struct {
	Ranges []link
	Range  string
}

// timeRange returns the time range that the request asks for, or usual, and its span in whole steps. So the page stays
// the same while nothing happens.
func (v *view) timeRange(at string, steps int, usual string, all ...string) (r ranges, s span) {
	if r.Range = v.URL.Query().Get("range"); !slices.Contains(all, r.Range) {
		r.Range = usual
	}
	for _, name := range all {
		r.Ranges = append(r.Ranges, link{name, at + "?" + url.Values{"range": {name}}.Encode(), name == r.Range})
	}
	long, _ := recurrence.ParseDuration(r.Range) // all are durations
	step := long / time.Duration(steps)
	s.To = time.Now().UTC().Truncate(step).Add(step)
	s.From = s.To.Add(-long)
	return r, s
}

func journal(v *view) (any, error) {
	return list[answer.Journal](v, "/journal", "ledgerd journal")
}
