package api

import (
	"context"
	"fmt"
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

// sort is a type of act: the states of items that it may change, and how it changes them.
type sort struct {
	states []ledger.State
	do     func(ctx context.Context, l *ledger.Ledger, actor string, f ledger.Filter, r answer.ActRequest) (int64, error)
}

// sorts are all acts by name.
var sorts = map[string]sort{
	"retry": {[]ledger.State{ledger.StateDead, ledger.StateDoubt, ledger.StateWaiting}, func(ctx context.Context,
		l *ledger.Ledger, actor string, f ledger.Filter, r answer.ActRequest) (int64, error) {
		if !r.Due.IsZero() {
			return l.PutOff(ctx, actor, f, r.Due)
		}
		return l.Retry(ctx, actor, f, acting(r)...)
	}},
	"reopen": {[]ledger.State{ledger.StateDone, ledger.StateCancelled, ledger.StateWaiting}, func(ctx context.Context,
		l *ledger.Ledger, actor string, f ledger.Filter, r answer.ActRequest) (int64, error) {
		return l.Reopen(ctx, actor, f, acting(r)...)
	}},
	"cancel": {[]ledger.State{ledger.StateWaiting, ledger.StateReady, ledger.StateLeased, ledger.StateDead,
		ledger.StateDoubt}, func(ctx context.Context, l *ledger.Ledger, actor string, f ledger.Filter,
		r answer.ActRequest) (int64, error) {
		return l.Cancel(ctx, actor, f, ledger.WithReason(r.Reason))
	}},
	"release": {[]ledger.State{ledger.StateLeased}, func(ctx context.Context, l *ledger.Ledger, actor string,
		f ledger.Filter, _ answer.ActRequest) (int64, error) {
		return l.ForceRelease(ctx, actor, f)
	}},
	"decide": {[]ledger.State{ledger.StateDead, ledger.StateDoubt}, func(ctx context.Context, l *ledger.Ledger,
		actor string, f ledger.Filter, r answer.ActRequest) (int64, error) {
		return l.DecideAll(ctx, actor, f, decision(r))
	}},
	"prune": {[]ledger.State{ledger.StateDone, ledger.StateCancelled}, func(ctx context.Context, l *ledger.Ledger,
		actor string, f ledger.Filter, _ answer.ActRequest) (int64, error) {
		n, _, err := l.Forget(ctx, actor, f)
		return n, err
	}},
}

// statesOf returns the states of items that an act may change.
func (k sort) statesOf(r answer.ActRequest) []ledger.State {
	if r.Due.IsZero() {
		return k.states
	}
	return []ledger.State{ledger.StateReady, ledger.StateWaiting, ledger.StateDead}
}

func acting(r answer.ActRequest) []ledger.Acting {
	if r.Place == nil {
		return nil
	}
	return []ledger.Acting{ledger.WithPriority(*r.Place)}
}

func decision(r answer.ActRequest) ledger.Result {
	return ledger.Result{Outcome: ledger.Outcome(r.Outcome), Code: r.Code, Error: r.Reason}
}

const (
	holdUsual = 10.0 // seconds
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

// newAct checks a request and counts what matches, for a bounded time.
func (c *Call) newAct(id uuid.UUID, r answer.ActRequest) (*act, error) {
	kind, known := sorts[r.Act]
	if !known {
		return nil, bad("act", "there are retry, reopen, cancel, release, decide, prune", "there is no act %q", r.Act)
	}
	hold := holdUsual
	if r.Hold != nil {
		hold = *r.Hold
	}
	decides := slices.Contains([]string{"done", "skipped", "cancelled", "failed"}, r.Outcome)
	switch {
	case r.Limit < 0:
		return nil, bad("limit", "", "limit must not be negative")
	case hold < 0 || hold > holdMost:
		return nil, bad("hold_s", "", "hold_s must be 0 … %g seconds", holdMost)
	case r.Act == "decide" && !decides:
		return nil, bad("outcome", "", "outcome must be done, skipped, cancelled or failed")
	case !r.Due.IsZero() && (r.Act != "retry" || r.Place != nil):
		return nil, bad("due", "", "due is only for the act retry, without priority")
	case time.Until(r.Due) > bounds.MaxDelay:
		return nil, bad("due", "", "due must be at most %s ahead", bounds.MaxDelay)
	case r.Act != "decide" && r.Outcome+r.Code != "":
		return nil, bad("outcome", "", "outcome and code are only for the act decide")
	}
	now := time.Now()
	f, err := c.filter(r.Where, now)
	if err != nil {
		return nil, err
	}
	if asked, _ := filter.Parse(r.Where, now); reflect.ValueOf(asked).IsZero() { // before it is confined to kinds
		return nil, bad("where", "kind:NAME is all of a kind", "the filter is empty; name the items to act on")
	}
	f = f.And(ledger.Filter{States: kind.statesOf(r)})
	if r.Act == "reopen" { // what waits is only done again if its round is done
		f = f.And(ledger.Filter{Rounds: []ledger.RoundState{ledger.RoundDone, ledger.RoundCancelled}})
	}
	n, whole, err := c.Read.CountUpTo(c.Context(), f, mostCounted, partTime)
	x := &act{id: id, owner: c.Grant.Name, request: r, filter: f,
		begins: now.Add(time.Duration(hold * float64(time.Second)))}
	x.shown = answer.BulkAct{ID: id.String(), Act: r.Act, Where: r.Where, By: c.actor(), Matched: n, Whole: whole,
		Limit: r.Limit, Asked: stamp(now), Begins: stamp(x.begins)}
	x.do = func(ctx context.Context, f ledger.Filter) (int64, error) {
		return kind.do(ctx, c.api.Ledger, x.shown.By, f, r)
	}
	x.asked = fmt.Sprintf("%s --where %s", r.Act, r.Where)
	if !r.Due.IsZero() {
		x.asked += " --due " + r.Due.UTC().Format(time.RFC3339)
	}
	if r.Outcome != "" {
		x.asked += " --outcome " + r.Outcome
	}
	if r.Reason != "" {
		x.asked += " (" + r.Reason + ")"
	}
	return x, err
}

// mostCounted bounds how many matching items are counted.
const mostCounted = 10_000

func listActs(c *Call, _ none) (answer.List[answer.BulkAct], error) {
	return answer.NewList(c.api.acts.open(c.Grant), ""), nil
}

func getAct(c *Call, in actIn) (answer.BulkAct, error) {
	id, err := uuid.Parse(in.ID)
	x, there := c.api.acts.find(id, c.Grant)
	if err != nil || !there {
		return answer.BulkAct{}, noAct(in.ID)
	}
	return c.api.acts.state(x), nil
}

func noAct(id string) error {
	return missing("there is no act %s; an act is forgotten an hour after its end, and of a dry run nothing is kept", id)
}

func deleteAct(c *Call, in actIn) (answer.BulkAct, error) {
	id, err := uuid.Parse(in.ID)
	x, there := c.api.acts.find(id, c.Grant)
	if err != nil || !there {
		return answer.BulkAct{}, noAct(in.ID)
	}
	return c.api.acts.stop(x)
}
