package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/ledger"
)

// itemData is one item.
type itemData struct {
	Item     answer.ItemDetail
	Why      answer.Why
	Rounds   []round // the newest first; an item that does not recur has one, without a name
	More     string  // path with the older attempts, "" if these are all
	Parent   *answer.ItemDetail
	Children []answer.Item // the first items that its newest completed attempt emitted
	Emitted  string        // filter for all items that it emitted; "" if none is known
	Acts     []offer
	Claim    bool   // the user may claim it: it is ready, people work its kind, and the user has scope work
	Where    string // filter for the item
	Trace    string // URL of the trace with which it was added; "": only the id is shown
	Lines    []string
}

// TakesLease reports whether the acts take the item from its holder. They cannot be undone, so the page asks first.
func (d itemData) TakesLease() bool { return d.Item.State == ledger.StateLeased }

// round has attempts of one round.
type round struct {
	Name     string
	Attempts []answer.Attempt
}

// offer is an act that the page offers.
type offer struct {
	Act, Outcome, Label string
	Main                bool
}

func item(v *view) (any, error) {
	id := v.PathValue("id")
	at := "/items/" + url.PathEscape(id)
	it, err := get[answer.ItemDetail](v, at, nil)
	if err != nil {
		return nil, err
	}
	d := itemData{Item: it, Where: "id:" + id, Trace: v.site.Trace(it.TraceID),
		Lines: []string{"ledgerd show " + id, "GET /api/v1" + at, "GET /api/v1" + at + "/attempts"}}
	if d.Why, err = get[answer.Why](v, at+"/why", nil); err != nil {
		return d, err
	}
	d.Acts = offers(it, d.Why)
	if it.State == ledger.StateReady {
		if d.Claim, err = v.mayClaim(it.Kind); err != nil {
			return d, err
		}
	}
	list, err := get[answer.List[answer.Attempt]](v, at+"/attempts", given(v.URL.Query(), "cursor"))
	if err != nil {
		return d, err
	}
	if list.Next != nil {
		d.More = "/items/" + id + "?" + url.Values{"cursor": {*list.Next}}.Encode()
	}
	for _, a := range list.Items {
		name := ""
		if it.Every != "" {
			name = a.Round
		}
		if n := len(d.Rounds); n == 0 || d.Rounds[n-1].Name != name {
			d.Rounds = append(d.Rounds, round{Name: name})
		}
		last := &d.Rounds[len(d.Rounds)-1]
		last.Attempts = append(last.Attempts, a)
	}
	if err := d.parent(v); err != nil {
		return d, err
	}
	return d, d.children(v, list.Items)
}

// mayClaim reports whether the user may work, and people work the kind.
func (v *view) mayClaim(kind string) (bool, error) {
	me, err := get[answer.Me](v, "/me", nil)
	if err != nil || !me.May("work") {
		return false, err
	}
	people, err := v.forPeople()
	return slices.Contains(people, kind), err
}

// parent finds the item that emitted this one, if its source tells so.
func (d *itemData) parent(v *view) error {
	i := strings.LastIndexByte(d.Item.Source, '/')
	if id, err := strconv.ParseInt(d.Item.Source[i+1:], 10, 64); err != nil || id < 1 || i < 1 {
		return nil
	}
	it, err := get[answer.ItemDetail](v, "/items/"+d.Item.Source[i+1:], nil)
	if err != nil { // it was forgotten, the user may not see it, or the source is a file with such a name
		if problemOf(err).Code == "not_found" {
			return nil
		}
		return err
	}
	if it.Kind == d.Item.Source[:i] && it.ID < d.Item.ID {
		d.Parent = &it
	}
	return nil
}

// maxChildren is how many emitted items are listed.
const maxChildren = 10

// children finds the items that the newest completed attempt emitted. They were added when it ended.
func (d *itemData) children(v *view, attempts []answer.Attempt) error {
	i := slices.IndexFunc(attempts, func(a answer.Attempt) bool { return a.Outcome.Completed() })
	if i < 0 || v.URL.Query().Has("cursor") { // the newest one is not among older attempts
		return nil
	}
	source := fmt.Sprintf("source:%s/%d", d.Item.Kind, d.Item.ID)
	at := time.Time(attempts[i].Ended)
	list, err := get[answer.List[answer.Item]](v, "/items", url.Values{"limit": {strconv.Itoa(maxChildren)},
		"where": {fmt.Sprintf("%s added:%s..%s", source, at.Add(-time.Second).Format(time.RFC3339),
			at.Add(2*time.Second).Format(time.RFC3339))}})
	if d.Children = list.Items; len(list.Items) > 0 || list.Next != nil {
		d.Emitted = source
	}
	return err
}

// offers are the acts that would change an item.
func offers(it answer.ItemDetail, why answer.Why) (all []offer) {
	add := func(o offer, states ...ledger.State) {
		if slices.Contains(states, it.State) {
			all = append(all, o)
		}
	}
	add(offer{"retry", "", "Retry", true}, ledger.StateDead, ledger.StateDoubt)
	switch {
	case it.State != ledger.StateWaiting:
	case it.Failures+it.Crashes > 0, it.RoundState == ledger.RoundFailed, why.Code == "put_off":
		add(offer{"retry", "", "Retry", true}, it.State)
	case it.RoundState == ledger.RoundDone:
		add(offer{"reopen", "", "Do it again", true}, it.State)
	}
	add(offer{"reopen", "", "Do it again", true}, ledger.StateDone, ledger.StateCancelled)
	add(offer{"decide", "done", "Mark done", false}, ledger.StateDead, ledger.StateDoubt)
	add(offer{"release", "", "Take it back", false}, ledger.StateLeased)
	add(offer{"cancel", "", "Cancel", false}, ledger.StateWaiting, ledger.StateReady, ledger.StateLeased, ledger.StateDead,
		ledger.StateDoubt)
	return all
}

// output sends the output of an attempt, byte for byte, as a file.
func (s *site) output(w http.ResponseWriter, v *view) {
	a, err := v.ask(http.MethodGet, fmt.Sprintf("/items/%s/attempts/%s/output", url.PathEscape(v.PathValue("id")),
		url.PathEscape(v.PathValue("attempt"))), nil, nil)
	if err != nil {
		s.fail(w, v.Request, "/items/"+url.PathEscape(v.PathValue("id")), err)
		return
	}
	for _, name := range []string{"Content-Type", "Content-Disposition"} {
		w.Header().Set(name, a.Header().Get(name))
	}
	_, _ = w.Write(a.Bytes()) // the caller may have gone
}
