package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
)

func addRoutes() []Route {
	return []Route{
		route(Route{Name: "addItems", Method: http.MethodPost, Path: "/items", Scope: access.Add, MaxBody: maxListBody,
			Codes:   []string{"invalid", "too_many_rows"},
			Summary: "Add items, each with a verdict of its own; one that is known is not added twice"}, addItems),
	}
}

// maxAdded bounds the items of one request, because it adds them in one transaction.
const maxAdded = 5000

type addIn struct {
	Items []answer.Addition `body:"list" doc:"1 … 5,000 items"`
}

// addItems adds the items that are valid. It refuses the others, each with its reason.
func addItems(c *Call, in addIn) (answer.Verdicts, error) {
	all := answer.Verdicts{Items: make([]answer.Verdict, len(in.Items)), Counts: map[string]int64{}}
	if len(in.Items) == 0 || len(in.Items) > maxAdded {
		return all, failure.Usage("too_many_rows", "send them in several requests", "%d items, must be 1 … %d", len(in.Items),
			maxAdded)
	}
	kinds, err := c.Read.Kinds(c.Context())
	if err != nil {
		return all, err
	}
	known := map[string]bool{}
	for _, k := range kinds {
		known[k.Name] = true
	}
	var items []ledger.NewItem
	var places []int
	now := time.Now()
	for i, row := range in.Items {
		it := row.Item(now)
		if all.Items[i] = c.refuse(it, known); all.Items[i].Verdict == "" {
			items, places = append(items, it), append(places, i)
		}
	}
	if len(items) > 0 {
		added, err := c.Ledger.Add(ledger.AddingAct(c.Context(), c.actor(), "added again"), items...)
		if err != nil {
			return all, err
		}
		c.maskVerdicts(items, added)
		for k, a := range added {
			all.Items[places[k]] = answer.Verdict{ID: a.ID, Verdict: string(a.Verdict), State: a.State}
		}
	}
	for _, v := range all.Items {
		all.Counts[v.Verdict]++
	}
	return all, nil
}

// refuse returns why an item is not added, or no verdict if it is added.
func (c *Call) refuse(it ledger.NewItem, known map[string]bool) answer.Verdict {
	no := answer.Verdict{Verdict: "refused"}
	err := ledger.CheckItem(it)
	bad, ok := errors.AsType[*ledger.InvalidError](err)
	switch {
	case ok:
		no.Code, no.Field, no.Reason = "invalid", bad.Field, bad.Reason
	case err != nil:
		no.Code, no.Reason = "invalid", err.Error()
	case !c.Grant.MaySee(it.Kind):
		no.Code, no.Field, no.Reason = "scope", "kind", fmt.Sprintf("the token is not for kind %s", it.Kind)
	case !known[it.Kind]:
		no.Code, no.Field, no.Reason = "not_found", "kind", fmt.Sprintf("there is no kind %s in this ledger", it.Kind)
	default:
		return answer.Verdict{}
	}
	return no
}

// actor is the name of the caller in the journal.
func (c *Call) actor() string { return "api:" + c.Grant.Name }
