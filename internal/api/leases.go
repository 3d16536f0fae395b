package api

import (
	"net/http"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/lending"
)

// claimTime bounds a claim that waits, with its calls of the ledger.
const claimTime = lending.MaxWait + 10*time.Second

func leaseRoutes() []Route {
	lost := []string{"invalid", "lease_lost", "conflict"}
	return []Route{
		route(Route{Name: "claim", Method: http.MethodPost, Path: "/claims", Scope: access.Work, Timeout: claimTime,
			Codes: []string{"invalid", "not_found", "too_many", "conflict"}, Summary: "Claim items of a kind; wait if there are none"}, claim),
		route(Route{Name: "renewLeases", Method: http.MethodPost, Path: "/leases/renew", Scope: access.Work, Codes: lost,
			Summary: "Extend leases, and hear what was cancelled"}, renewLeases),
		route(Route{Name: "heldLeases", Method: http.MethodPost, Path: "/leases/held", Scope: access.Work, Codes: lost,
			Summary: "Hear whether leases are held still, and what was cancelled, without extending them"}, heldLeases),
		route(Route{Name: "startLeases", Method: http.MethodPost, Path: "/leases/start", Scope: access.Work, Codes: lost,
			Summary: "Mark items that were claimed ahead as started"}, startLeases),
		route(Route{Name: "finishLeases", Method: http.MethodPost, Path: "/leases/finish",
			Scope: access.Work, Codes: lost, MaxBody: maxEndsBody,
			Summary: "End attempts, each with its outcome"}, finishLeases),
		route(Route{Name: "releaseLeases", Method: http.MethodPost, Path: "/leases/release", Scope: access.Work, Codes: lost,
			Summary: "Hand items back undone"}, releaseLeases),
		route(Route{Name: "drainAgent", Method: http.MethodPost, Path: "/agents/drain", Scope: access.Operate, AllKinds: true,
			Summary: "Ask an agent that works over HTTP to end its leases and to claim nothing more"}, drain),
	}
}

// caller is the caller in the form that package lending takes.
func (c *Call) caller() lending.Caller {
	return lending.Caller{Name: c.Grant.Name, Reads: c.Grant.May(access.Read), May: func(kind, agent string) bool {
		return c.Grant.MaySee(kind) && c.Grant.MayClaimAs(agent)
	}}
}

type claimIn struct {
	Body lending.Claim `body:"json" doc:"what is claimed, and by whom"`
}

// claim claims items. Items whose client does not get the answer are handed back.
func claim(c *Call, in claimIn) (lending.Claimed, error) {
	got, err := c.api.lender.Claim(c.Context(), c.caller(), in.Body)
	c.unsent = func() { c.api.lender.TakeBack(c.Context(), got) }
	return got, err
}

type renewalIn struct {
	Body lending.Renewal `body:"json" doc:"the leases, by their tokens"`
}

func renewLeases(c *Call, in renewalIn) (lending.LeaseAnswers, error) {
	return single(c.api.lender.Renew(c.Context(), c.caller(), in.Body))
}

func startLeases(c *Call, in renewalIn) (lending.LeaseAnswers, error) {
	return single(c.api.lender.Start(c.Context(), c.caller(), in.Body))
}

type finishIn struct {
	Body finish `body:"json" doc:"how each attempt ended"`
}

type finish struct {
	Endings []lending.Ending `json:"endings"`
}

func finishLeases(c *Call, in finishIn) (lending.LeaseAnswers, error) {
	return single(c.api.lender.Finish(c.Context(), c.caller(), in.Body.Endings))
}

func heldLeases(c *Call, in releaseIn) (lending.LeaseAnswers, error) {
	return single(c.api.lender.Held(c.Context(), c.caller(), in.Body.Tokens))
}

type releaseIn struct {
	Body release `body:"json" doc:"the leases, by their tokens"`
}

type release struct {
	Tokens []string `json:"tokens"`
}

func releaseLeases(c *Call, in releaseIn) (lending.LeaseAnswers, error) {
	return single(c.api.lender.Release(c.Context(), c.caller(), in.Body.Tokens))
}

// single refuses a request that names only one lease if the answer about that lease is a refusal.
func single(all lending.LeaseAnswers, err error) (lending.LeaseAnswers, error) {
	if err == nil && len(all.Answers) == 1 {
		err = all.Answers[0].Err()
	}
	return all, err
}

type drainIn struct {
	Body draining `body:"json" doc:"the agent, and whether it is to end; this server forgets it when it stops"`
}

type draining struct {
	Agent string `json:"agent" jsonschema:"an agent that claims at this server; one that works on the database does not learn of it"`
	Drain *bool  `json:"drain,omitempty" jsonschema:"false takes it back; true if it is not given"`
}

func drain(c *Call, in drainIn) (draining, error) {
	if in.Body.Drain == nil {
		in.Body.Drain = new(true)
	}
	c.api.lender.Drain(in.Body.Agent, *in.Body.Drain)
	return in.Body, nil
}
