package api

import (
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/ledger/order"
)

func itemRoutes() []Route {
	return []Route{
		route(Route{Name: "listItems", Method: http.MethodGet, Path: "/items",
			Scope: access.Read, Codes: []string{"bad_filter", "bad_cursor"},
			Summary: "List items that match a filter"}, listItems),
		route(Route{Name: "countItems", Method: http.MethodGet, Path: "/items/count",
			Scope: access.Read, Codes: []string{"bad_filter"},
			Summary: "Count what matches a filter, up to 10,000 and for a moment at most"}, countItems),
		route(Route{Name: "groupItems", Method: http.MethodGet, Path: "/items/groups",
			Scope: access.Read, Codes: []string{"bad_filter"},
			Summary: "Count what matches a filter by kind, scope, shard key or a field of the payload, for a moment at most"},
			groupItems),
		route(Route{Name: "getItem", Method: http.MethodGet, Path: "/items/{id}",
			Scope: access.Read, Codes: []string{"not_found"},
			Summary: "Get one item"}, getItem),
		route(Route{Name: "explainItem", Method: http.MethodGet, Path: "/items/{id}/why",
			Scope: access.Read, Codes: []string{"not_found"},
			Summary: "Explain why an item is where it is, and which acts would help"}, whyItem),
		route(Route{Name: "listAttempts", Method: http.MethodGet, Path: "/items/{id}/attempts", Scope: access.Read,
			Codes: []string{"not_found", "bad_cursor"}, Summary: "List how the attempts of an item ended, newest first"},
			listAttempts),
		route(Route{Name: "getOutput", Method: http.MethodGet, Path: "/items/{id}/attempts/{attempt}/output",
			Scope: access.Payload,
			Codes: []string{"not_found"}, Summary: "Get the output of an attempt, byte for byte"}, getOutput),
	}
}

// A part of a list ends after partTime, or when its payloads and outputs have partBytes.
const (
	partTime  = 150 * time.Millisecond
	partBytes = 1 << 20
)

type itemsIn struct {
	Where  string `query:"where" doc:"filter, in the language of the command line: state:dead kind:urlcheck since:2h"`
	Order  string `query:"order" default:"id" oneof:"id|-id|ended|-ended" doc:"by id, or by when the newest attempt ended; with a minus the other way round"`
	Limit  int64  `query:"limit" default:"100" range:"1 … 1000" doc:"at most this many items"`
	Cursor string `query:"cursor" doc:"next of the part before"`
	Output bool   `query:"output" doc:"whether items have the output of their newest attempt that has one"`
}

func listItems(c *Call, in itemsIn) (answer.List[answer.Item], error) {
	at, err := begin(in.Cursor, time.Now().UTC(), c.route.Path, in.Where, in.Order)
	if err != nil {
		return answer.List[answer.Item]{}, err
	}
	f, err := c.filter(in.Where, at.Now)
	if err != nil {
		return answer.List[answer.Item]{}, err
	}
	by, desc := strings.CutPrefix(in.Order, "-")
	w := &ledger.Walk{Filter: f, Order: order.By(by), Desc: desc, After: at.mark(), Time: partTime,
		Output: in.Output && c.Grant.May(access.Payload)}
	var items []answer.Item
	size := 0
	for it, err := range c.Read.Walk(c.Context(), w) {
		if err != nil {
			return answer.List[answer.Item]{}, err
		}
		row, err := c.item(it)
		if err != nil {
			return answer.List[answer.Item]{}, err
		}
		size += len(row.Payload) + len(row.Output)
		if items = append(items, row); len(items) == int(in.Limit) || size >= partBytes {
			return answer.NewList(items, at.after(w.Reached)), nil
		}
	}
	next := ""
	if w.Cut {
		next = at.after(w.Reached)
	}
	return answer.NewList(items, next), nil
}

// countTime bounds one count: the pages ask for it as often as they look.
const countTime = 50 * time.Millisecond

type countIn struct {
	Where string `query:"where" doc:"filter, in the language of the command line"`
}

func countItems(c *Call, in countIn) (answer.Count, error) {
	f, err := c.filter(in.Where, time.Now())
	if err != nil {
		return answer.Count{}, err
	}
	n, whole, err := c.Read.CountUpTo(c.Context(), f, maxCounted, countTime)
	return answer.Count{Count: n, Whole: whole}, err
}

// filter reads a filter and narrows it to what the caller may see. Conditions on payloads need the scope payload,
// because the answer reveals their content.
func (c *Call) filter(where string, now time.Time) (ledger.Filter, error) {
	f, err := filter.Parse(where, now)
	if err == nil {
		f, err = c.checkFilter(f)
	}
	return c.visible(f), err
}

// item is an item as the caller may see it.
func (c *Call) item(it ledger.Item) (row answer.Item, err error) {
	row = answer.NewItem(it)
	if !c.Grant.May(access.Payload) {
		row.Output = nil
	}
	row.Payload, err = c.payload(it.Kind, row.Payload)
	return row, err
}

// itemIn names an item.
type itemIn struct {
	ID int64 `path:"id" range:"1 … 9223372036854775807" doc:"id of the item"`
}

// get reads an item. An item of a kind that the caller may not see is not found.
func (c *Call) get(id int64) (ledger.Item, error) {
	it, err := c.Read.Get(c.Context(), id)
	if errors.Is(err, ledger.ErrNotFound) || err == nil && !c.Grant.MaySee(it.Kind) {
		return it, missing("there is no item %d", id)
	}
	return it, err
}

// missing is the error for an item, kind or act that does not exist, or that the caller may not see.
func missing(format string, args ...any) error {
	return failure.New(failure.ExitError, "not_found", fmt.Sprintf(format, args...), "")
}

func getItem(c *Call, in itemIn) (answer.ItemDetail, error) {
	it, err := c.get(in.ID)
	if err != nil {
		return answer.ItemDetail{}, err
	}
	row := answer.NewItemDetail(it)
	row.Payload, err = c.payload(it.Kind, row.Payload)
	return row, err
}

func whyItem(c *Call, in itemIn) (answer.Why, error) {
	it, err := c.get(in.ID)
	if err != nil {
		return answer.Why{}, err
	}
	why, err := c.Read.Why(c.Context(), it.ID)
	return answer.NewWhy(it.ID, why), err
}

type attemptsIn struct {
	ID     int64  `path:"id" range:"1 … 9223372036854775807" doc:"id of the item"`
	Limit  int64  `query:"limit" default:"20" range:"1 … 100" doc:"at most this many attempts"`
	Cursor string `query:"cursor" doc:"next of the part before"`
}

func listAttempts(c *Call, in attemptsIn) (answer.List[answer.Attempt], error) {
	it, err := c.get(in.ID)
	if err != nil {
		return answer.List[answer.Attempt]{}, err
	}
	at, err := begin(in.Cursor, time.Now().UTC(), c.route.Path, strconv.FormatInt(it.ID, 10))
	if err != nil {
		return answer.List[answer.Attempt]{}, err
	}
	var rows []answer.Attempt
	for size := 0; len(rows) < int(in.Limit) && size < partBytes; {
		most := min(int(in.Limit)-len(rows), attemptsAtATime)
		attempts, err := c.Read.AttemptsBefore(c.Context(), it.ID, at.Num, most)
		if err != nil {
			return answer.List[answer.Attempt]{}, err
		}
		for _, a := range attempts {
			size += len(a.Output) + len(a.Log)
			at.Num = a.Attempt
			row := answer.NewAttempt(a)
			if !c.Grant.May(access.Payload) {
				row.Output, row.Log = nil, ""
			}
			rows = append(rows, row)
		}
		if len(attempts) < most {
			return answer.NewList(rows, ""), nil
		}
	}
	return answer.NewList(rows, at.after(ledger.Mark{Number: at.Num})), nil
}

// attemptsAtATime is how many attempts are read at a time; each has an output of up to 1 MiB.
const attemptsAtATime = 10

type outputIn struct {
	ID      int64 `path:"id" range:"1 … 9223372036854775807" doc:"id of the item"`
	Attempt int64 `path:"attempt" range:"1 … 9223372036854775807" doc:"number of the attempt"`
}

// output is the output of an attempt, as a file to download.
type output struct {
	name string
	text []byte
}

func getOutput(c *Call, in outputIn) (output, error) {
	it, err := c.get(in.ID)
	if err != nil {
		return output{}, err
	}
	attempts, err := c.Read.AttemptsBefore(c.Context(), it.ID, in.Attempt+1, 1)
	if err == nil && (len(attempts) == 0 || attempts[0].Attempt != in.Attempt || len(attempts[0].Output) == 0) {
		err = missing("item %d has no attempt %d with an output", in.ID, in.Attempt)
	}
	if err != nil {
		return output{}, err
	}
	return output{strconv.FormatInt(it.ID, 10) + "." + strconv.FormatInt(in.Attempt, 10), attempts[0].Output}, nil
}

// write sends the bytes with headers that keep browsers from showing them as a page.
func (o output) write(c *Call) error {
	c.w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": o.name}))
	c.send(http.StatusOK, mediaBytes, o.text)
	return nil
}
