package ui

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger/filter"
)

// causesData has the causes of failures.
type causesData struct {
	answer.Causes
	Where  string
	Kinds  []string
	Trends []template.HTML // one for each cause
	Part   string          // how long the time of one bar of a trend is, in words
	Lines  []string
}

// causes groups dead items by cause, or the items of another filter if one is given.
func causes(v *view) (any, error) {
	d := causesData{Where: cmp.Or(v.URL.Query().Get("where"), "state:dead since:7d")}
	if f, err := filter.Parse(d.Where, time.Now()); err == nil && !answer.Dated(f) {
		d.Where += " since:24h" // as the API does, so that an act on a cause is about the same items
	}
	q := url.Values{"where": {d.Where}}
	d.Lines = []string{"ledgerd errors --where " + shell.Quote(d.Where), "GET /api/v1/causes?" + q.Encode()}
	var err error
	if d.Causes, err = get[answer.Causes](v, "/causes", q); err != nil {
		return d, err
	}
	s := span{time.Time(d.From), time.Time(d.To)}
	for _, c := range d.Items {
		d.Trends = append(d.Trends, spark(s, c.Trend))
		if len(c.Trend) > 0 {
			part := s.To.Sub(s.From) / time.Duration(len(c.Trend))
			if d.Part = spelled(part.String()); d.Part == part.String() {
				d.Part = duration(part.Seconds())
			}
		}
		for _, k := range c.Kinds {
			if !slices.Contains(d.Kinds, k) && len(d.Kinds) < maxKinds {
				d.Kinds = append(d.Kinds, k)
			}
		}
	}
	return d, nil
}
