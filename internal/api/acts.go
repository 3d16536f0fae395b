package api

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/filter"
)

func actRoutes() []Route {
	return []Route{
		route(Route{Name: "listActs", Method: http.MethodGet, Path: "/acts", Scope: access.Operate,
			Summary: "List the acts that have not ended, in the order in which they were asked for"}, listActs),
		route(Route{Name: "putAct", Method: http.MethodPut, Path: "/acts/{uuid}", Scope: access.Operate,
			Codes:   []string{"bad_filter", "invalid", "conflict", "too_many"},
			Summary: "Act on all items that match; the same request again changes nothing more"}, putAct),
		route(Route{Name: "getAct", Method: http.MethodGet, Path: "/acts/{uuid}",
			Scope: access.Operate, Codes: []string{"not_found"},
			Summary: "Get the progress of an act"}, getAct),
		route(Route{Name: "deleteAct", Method: http.MethodDelete, Path: "/acts/{uuid}", Scope: access.Operate,
			Codes:   []string{"not_found", "conflict"},
			Summary: "Undo an act that is held, or stop one that runs"}, deleteAct),
	}
}

type actIn struct {
	ID string `path:"uuid" doc:"a UUID that the caller has chosen"`
}

type putActIn struct {
	ID      string            `path:"uuid" doc:"a UUID that the caller has chosen"`
	Request answer.ActRequest `body:"json" doc:"what is to be done, and to which items"`
}

// actStates are the states of items that each act may change.
var actStates = map[string][]ledger.State{
	"retry":   {ledger.StateDead, ledger.StateDoubt, ledger.StateWaiting},
	"reopen":  {ledger.StateDone, ledger.StateCancelled, ledger.StateWaiting},
	"cancel":  {ledger.StateWaiting, ledger.StateReady, ledger.StateLeased, ledger.StateDead, ledger.StateDoubt},
	"release": {ledger.StateLeased},
	"decide":  {ledger.StateDead, ledger.StateDoubt},
	"prune":   {ledger.StateDone, ledger.StateCancelled},
}

// changeItems carries out an act on the items that match f, and returns how many it changed.
func changeItems(ctx context.Context, l *ledger.Ledger, actor string, f ledger.Filter, r answer.ActRequest) (int64,
	error) {
	var placed []ledger.ActOption
	if r.Place != nil {
		placed = append(placed, ledger.WithPriority(*r.Place))
	}
	switch {
	case !r.Due.IsZero():
		return l.PutOff(ctx, actor, f, r.Due.Time)
	case r.Act == "retry":
		return l.Retry(ctx, actor, f, placed...)
	case r.Act == "reopen":
		return l.Reopen(ctx, actor, f, placed...)
	case r.Act == "cancel":
		return l.Cancel(ctx, actor, f, ledger.WithReason(r.Reason))
	case r.Act == "release":
		return l.ForceRelease(ctx, actor, f)
	case r.Act == "decide":
		return l.DecideAll(ctx, actor, f, ledger.Result{Outcome: ledger.Outcome(r.Outcome), Code: r.Code, Error: r.Reason})
	case r.Act == "prune":
		n, _, err := l.Forget(ctx, actor, f)
		return n, err
	}
	return 0, bad("act", "", "there is no act %q", r.Act)
}

// Seconds for which an act can be undone.
const (
	holdUsual = 10.0
	holdMost  = 60.0
)

func putAct(c *Call, in putActIn) (answer.BulkAct, error) {
	id, err := uuid.Parse(in.ID)
	if err != nil {
		return answer.BulkAct{}, bad("uuid", "make a new one for each act", "%q is no UUID", in.ID)
	}
	if known, there := c.api.acts.find(id, c.Grant); there {
		if !reflect.DeepEqual(known.request, in.Request) {
			return answer.BulkAct{}, failure.Usage("conflict", "take a new UUID", "another act has this UUID")
		}
		return c.api.acts.state(known), nil
	}
	x, err := c.newAct(id, in.Request)
	if err != nil {
		return answer.BulkAct{}, err
	}
	if in.Request.DryRun {
		x.shown.State = "dry"
		return x.shown, nil
	}
	return c.api.acts.add(x)
}

// checkAct refuses a request with a field that is wrong or belongs to another act. hold is in seconds.
func checkAct(r answer.ActRequest, hold float64) error {
	decides := slices.Contains([]string{"done", "skipped", "cancelled", "failed"}, r.Outcome)
	switch {
	case actStates[r.Act] == nil:
		return bad("act", "there are retry, reopen, cancel, release, decide, prune", "there is no act %q", r.Act)
	case r.Limit < 0:
		return bad("limit", "", "limit must not be negative")
	case hold < 0 || hold > holdMost:
		return bad("hold_s", "", "hold_s must be 0 … %g seconds", holdMost)
	case r.Act == "decide" && !decides:
		return bad("outcome", "", "outcome must be done, skipped, cancelled or failed")
	case !r.Due.IsZero() && (r.Act != "retry" || r.Place != nil):
		return bad("due", "", "due is only for the act retry, without priority")
	case time.Until(r.Due.Time) > bounds.MaxDelay:
		return bad("due", "", "due must be at most %s ahead", bounds.MaxDelay)
	case r.Place != nil && r.Act != "retry" && r.Act != "reopen":
		return bad("priority", "", "priority is only for the acts retry and reopen")
	case r.Act != "decide" && r.Outcome+r.Code != "":
		return bad("outcome", "", "outcome and code are only for the act decide")
	}
	return nil
}

// newAct checks a request and counts the items that match, for a bounded time.
func (c *Call) newAct(id uuid.UUID, r answer.ActRequest) (*act, error) {
	hold := holdUsual
	if r.Hold != nil {
		hold = *r.Hold
	}
	if err := checkAct(r, hold); err != nil {
		return nil, err
	}
	now := time.Now()
	f, err := c.filter(r.Where, now)
	if err != nil {
		return nil, err
	}
	if asked, _ := filter.Parse(r.Where, now); reflect.ValueOf(asked).IsZero() { // without the kinds of the token
		return nil, bad("where", "kind:NAME is all of a kind", "the filter is empty; name the items to act on")
	}
	if _, err := changeItems(c.Context(), c.api.Ledger, c.actor(), ledger.IDs(), r); err != nil { // of no item: a check
		return nil, err
	}
	states := actStates[r.Act]
	if r.Act == "decide" && ledger.Outcome(r.Outcome) == ledger.OutcomeFailed { // a dead item has failed already
		states = []ledger.State{ledger.StateDoubt}
	}
	if !r.Due.IsZero() {
		states = []ledger.State{ledger.StateReady, ledger.StateWaiting, ledger.StateDead}
	}
	f = f.And(ledger.Filter{States: states})
	if r.Act == "reopen" { // an item that waits is opened again only if its round is closed
		f = f.And(ledger.Filter{Rounds: []ledger.RoundState{ledger.RoundDone, ledger.RoundCancelled}})
	}
	n, whole, err := c.Read.CountUpTo(c.Context(), f, maxCounted, partTime)
	x := &act{id: id, owner: c.Grant.Name, request: r, filter: f, asked: asCommand(r),
		begins: now.Add(time.Duration(hold * float64(time.Second)))}
	x.shown = answer.BulkAct{ID: id.String(), Act: r.Act, Where: r.Where, By: c.actor(), Matched: n, Whole: whole,
		Limit: r.Limit, Asked: stamp(now), Begins: stamp(x.begins)}
	x.do = func(ctx context.Context, f ledger.Filter) (int64, error) {
		return changeItems(ctx, c.api.Ledger, x.shown.By, f, r)
	}
	return x, err
}

// asCommand writes a request in the form of a command line, with the reason in brackets, as the journal keeps it.
func asCommand(r answer.ActRequest) string {
	text := "--where " + r.Where
	if !r.Due.IsZero() {
		text += " --due " + r.Due.UTC().Format(time.RFC3339)
	}
	if r.Outcome != "" {
		text += " --outcome " + r.Outcome
	}
	if r.Reason != "" {
		text += " (" + r.Reason + ")"
	}
	return text
}

// maxCounted bounds how many matching items are counted.
const maxCounted = 10_000

func listActs(c *Call, _ none) (answer.List[answer.BulkAct], error) {
	return answer.NewList(c.api.acts.open(c.Grant), ""), nil
}

// act finds an act that the caller may see.
func (c *Call) act(text string) (*act, error) {
	id, err := uuid.Parse(text)
	x, there := c.api.acts.find(id, c.Grant)
	if err != nil || !there {
		return nil, missing("there is no act %s; an act is forgotten an hour after its end, or when a thousand others came, "+
			"and of a dry run nothing is kept", text)
	}
	return x, nil
}

func getAct(c *Call, in actIn) (answer.BulkAct, error) {
	x, err := c.act(in.ID)
	if err != nil {
		return answer.BulkAct{}, err
	}
	return c.api.acts.state(x), nil
}

func deleteAct(c *Call, in actIn) (answer.BulkAct, error) {
	x, err := c.act(in.ID)
	if err != nil {
		return answer.BulkAct{}, err
	}
	return c.api.acts.stop(x)
}
