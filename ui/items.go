package ui

import (
	"net/url"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
)

// itemsData is a part of a list of items, with the links beside it.
type itemsData struct {
	Items  []answer.Item
	Order  string
	Next   string // path of the next part, "" at the end
	Orders []link
	States []link
	Views  []link // filters and orders that people often use
	Kinds  []string
	Total  string // how many match, in words; "" if it is not known
	Export []link
	Lines  []string // the command and the API request with the same result
}

// link is a link. Here means that it leads to the page that is shown.
type link struct {
	Text, To string
	Here     bool
}

const (
	itemsShown = "50"
	maxKinds   = 50 // that the filter offers
)

// views are filters and orders that people often use.
var views = []struct{ text, where, order string }{
	{"newest failures", "outcome:failed since:1d", "-ended"},
	{"dead, newest first", "state:dead", "-ended"},
	{"ready, longest there", "state:ready", ""},
	{"failing for a day", "failing:..1d", ""},
	{"recovered today", "recovered:1d", "-ended"},
}

func items(v *view) (any, error) {
	q := v.URL.Query()
	d := itemsData{Order: q.Get("order"), Lines: itemsLines(q)}
	for _, o := range [][2]string{{"", "oldest"}, {"-id", "newest"}, {"-ended", "ended last"}, {"ended", "ended first"}} {
		d.Orders = append(d.Orders, link{o[1], "/items?" + with(q, "order", o[0]).Encode(), o[0] == d.Order})
	}
	for _, state := range []string{"waiting", "ready", "leased", "done", "dead", "doubt", "cancelled"} {
		where := "state:" + state
		d.States = append(d.States, link{state, "/items?" + url.Values{"where": {where}}.Encode(), q.Get("where") == where})
	}
	for _, view := range views {
		to := with(with(url.Values{}, "where", view.where), "order", view.order)
		here := q.Get("where") == view.where && d.Order == view.order
		d.Views = append(d.Views, link{view.text, "/items?" + to.Encode(), here})
	}
	kinds, err := get[answer.List[answer.Kind]](v, "/kinds", nil)
	if err != nil {
		return d, err
	}
	for _, k := range kinds.Items[:min(maxKinds, len(kinds.Items))] {
		d.Kinds = append(d.Kinds, k.Kind)
	}
	asked := given(q, "where", "order", "cursor")
	asked.Set("limit", itemsShown)
	list, err := get[answer.List[answer.Item]](v, "/items", asked)
	if err != nil {
		return d, err
	}
	if d.Items = list.Items; list.Next != nil {
		d.Next = "/items?" + with(q, "cursor", *list.Next).Encode()
	}
	for _, f := range [][2]string{{"CSV", "csv"}, {"CSV for Excel", "excel"}, {"JSON lines", "jsonl"}} {
		d.Export = append(d.Export, link{Text: f[0], To: "/export/" + f[1] + "?" + with(q, "limit", "").Encode()})
	}
	return d, d.count(v, q)
}

// count finds how many items match. If this part of the list is all of it, that is known. Otherwise the API counts,
// for a bounded time.
func (d *itemsData) count(v *view, q url.Values) error {
	shown := int64(len(d.Items))
	if q.Get("cursor") == "" && d.Next == "" {
		if shown > 0 {
			d.Total = counted(shown, "item matches", "items match")
		}
		return nil
	}
	n, err := get[answer.Count](v, "/items/count", url.Values{"where": {q.Get("where")}})
	if err != nil {
		return err
	}
	part := report.Count(shown) + " of "
	switch {
	case n.Whole:
		d.Total = part + counted(n.Count, "item that matches", "items that match")
	case n.Count > shown:
		d.Total = part + "more than " + counted(n.Count, "item that matches", "items that match")
	default:
		d.Total = report.Count(shown) + " of them; how many match is not known"
	}
	return nil
}

// with returns the filter and order of a query, with another value for one name; "" removes the name. The cursor is
// removed, too, because it belongs to the old list.
func with(q url.Values, name, value string) url.Values {
	all := given(q, "where", "order")
	all.Set(name, value)
	if value == "" {
		all.Del(name)
	}
	return all
}

// given returns the named parameters of a query that are not empty.
func given(q url.Values, names ...string) url.Values {
	all := url.Values{}
	for _, name := range names {
		if value := q.Get(name); value != "" {
			all.Set(name, value)
		}
	}
	return all
}

// itemsLines are the command and the request with the same answer.
func itemsLines(q url.Values) []string {
	where := q.Get("where")
	command := "ledgerd ls"
	if where != "" {
		command += " --where " + shell.Quote(where)
	}
	if order := q.Get("order"); order != "" {
		command += " --sort " + shell.Quote(order)
	}
	return []string{command, "GET /api/v1/items?" + with(q, "limit", itemsShown).Encode()}
}
