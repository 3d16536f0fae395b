package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/google/jsonschema-go/jsonschema"
	protocol "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/lending"
)

// mostClaimed is how many items one claim leases: their tokens and the begin of their payloads fit into an answer of
// usualSize.
const mostClaimed = 10

// Inputs of the tools that work.
type (
	addArgs struct {
		Items []answer.Addition `json:"items"`
	}
	claimArgs struct {
		lending.Claim
		size
	}
	renewArgs struct {
		lending.Renewal
		Begin bool `json:"begin,omitempty"`
	}
	finishArgs struct {
		lending.Ending
		Note string `json:"note,omitempty"`
	}
	releaseArgs struct {
		Tokens []string `json:"tokens"`
	}
)

func (a renewArgs) tokens() []string   { return a.Tokens }
func (a finishArgs) tokens() []string  { return []string{a.Token} }
func (a releaseArgs) tokens() []string { return a.Tokens }

// offerWork adds the tools for those who add and work items.
func offerWork(s *protocol.Server, me answer.Me, from visits) {
	offer(s, me, from, tool{name: "add", scopes: []access.Scope{access.Add}, repeats: true,
		about:  "Add items. One whose kind, scope and key are known is not added twice.",
		fields: map[string]string{"items": ""}, edit: chooseItem}, addItems)
	offer(s, me, from, tool{name: "claim", scopes: []access.Scope{access.Work},
		about: "Lease items of a kind to you: first those that you hold, then new ones, limit in all. " +
			"Finish or release each by its token.",
		fields: map[string]string{"kind": "stats lists the kinds", "limit": "1 … 10; 1 if it is not given",
			"lease_s": "seconds until you must make a call; 600 if it is not given", "wait_s": "", "bytes": aboutBytes,
			"ahead": "you call renew with begin before you begin each item; what you have not begun when you end goes back"}},
		claim)
	offer(s, me, from, tool{name: "renew", scopes: []access.Scope{access.Work}, repeats: true,
		about: "Renew your leases, and list what you hold. Every other call renews, too.",
		fields: map[string]string{"tokens": "all if it is not given", "lease_s": "seconds from now",
			"begin": "you begin these items now, which you claimed ahead"},
		edit: func(s *jsonschema.Schema) { s.Required = nil }}, renew)
	offer(s, me, from, tool{name: "finish", scopes: []access.Scope{access.Work}, destroys: true, repeats: true,
		about: "End your attempt of one item.",
		fields: map[string]string{"token": "", "output": "the result: any JSON", "code": "", "error": "", "final": "",
			"outcome": "done if it is not given. failed is tried again; snoozed: later, after delay_s; unknown: a person decides",
			"delay_s": "", "note": "text for others, kept with the attempt"},
		edit: func(s *jsonschema.Schema) {
			s.Properties["outcome"].Enum = []any{"done", "skipped", "failed", "snoozed", "unknown"}
			ofAnyType(s.Properties["output"])
		}}, finish)
	offer(s, me, from, tool{name: "release", scopes: []access.Scope{access.Work}, repeats: true,
		about: "Hand items back undone. This counts as no failure.", fields: map[string]string{"tokens": ""}}, release)
}

// chooseItem leaves of an item what agents give.
func chooseItem(s *jsonschema.Schema) {
	item := s.Properties["items"].Items
	chosen(item, map[string]string{"kind": "", "key": "short name that identifies it",
		"payload":  "what is to be done: description, acceptance, parent (id) and what else helps",
		"priority": "-2 (first) … 2 (last)", "due": "not before", "scope": "a set of items, in which keys count",
		"again": "work a known item once more that has ended"})
	item.Properties["priority"].Minimum, item.Properties["priority"].Maximum = nil, nil
	item.Properties["payload"].Type, item.Properties["payload"].Types = "object", nil
}

// ofAnyType lets a field hold any JSON but null. Programs of agents refuse a list of types, a schema without a type,
// and an array without items.
func ofAnyType(s *jsonschema.Schema) {
	choice := func() (all []*jsonschema.Schema) {
		for _, name := range []string{"object", "string", "number", "boolean"} {
			all = append(all, &jsonschema.Schema{Type: name})
		}
		return all
	}
	s.Types, s.AnyOf = nil, append(choice(), &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{AnyOf: choice()}})
}

func addItems(ctx context.Context, v *visit, in addArgs) (any, error) {
	var got answer.Verdicts
	if err := v.api.ask(ctx, http.MethodPost, "/items", nil, in.Items, &got); err != nil {
		return nil, err
	}
	return got, nil
}

// claimed are the fields of leases that agents see.
var claimed = []string{"token", "id", "kind", "scope", "key", "attempt", "failures", "payload", "expires_at", "resumed",
	"idempotency_key"}

func claim(ctx context.Context, v *visit, in claimArgs) (any, error) {
	c := in.Claim
	if v.agent == "" {
		return nil, wrong("agent", "ask your user to add it to the URL of this server: …/mcp?agent=NAME, another name for each "+
			"agent", "over HTTP an agent that claims needs a name")
	}
	if c.Limit > mostClaimed {
		return nil, wrong("limit", "claim again when you have finished some", "%d, must be 1 … %d", c.Limit, mostClaimed)
	}
	c.Agent, c.Resume, c.Lease = v.agent, true, v.leaseFor(c.Lease)
	var text json.RawMessage
	if err := v.api.ask(ctx, http.MethodPost, "/claims", nil, c, &text); err != nil {
		return nil, err
	}
	var got lending.Claimed
	var shown struct {
		Leases []map[string]any `json:"leases"`
	}
	if err := errors.Join(json.Unmarshal(text, &got), json.Unmarshal(text, &shown)); err != nil {
		return nil, err
	}
	for _, ls := range got.Leases {
		v.put(holding{ID: ls.ID, Kind: ls.Kind, Key: ls.Key, Token: ls.Token, Begun: !c.Ahead, Expires: ls.Expires})
	}
	v.tellDrain(got.Drain)
	data := map[string]any{"items": only(shown.Leases, claimed...)}
	if got.WaitS > 0 {
		data["next_in_s"] = got.WaitS
	}
	if got.Full {
		data["full"] = "as many items run as may"
	}
	return data, nil
}

func renew(ctx context.Context, v *visit, in renewArgs) (any, error) {
	act, r := "renew", in.Renewal
	if in.Begin {
		act = "start"
	}
	if r.Lease = v.leaseFor(r.Lease); len(r.Tokens) == 0 {
		r.Tokens = v.tokens(nil)
	}
	var refused []map[string]any
	if len(r.Tokens) > 0 {
		got, err := v.leases(ctx, act, r, r.Tokens)
		if len(in.Tokens) > 0 { // an agent must not begin what it has lost
			_, err = ended(got, err)
		}
		if err != nil {
			return nil, err
		}
		for _, a := range got.Answers {
			if !a.Recorded {
				refused = append(refused, map[string]any{"token": a.Token, "code": a.Reason, "text": a.Message})
			}
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	held := []holding{}
	for _, h := range v.held {
		held = append(held, h)
	}
	return map[string]any{"items": held, "refused": refused}, nil
}

func finish(ctx context.Context, v *visit, in finishArgs) (any, error) {
	e := in.Ending
	e.Log, e.Worker = in.Note, v.client
	got, err := v.leases(ctx, "finish", map[string]any{"endings": []lending.Ending{e}}, []string{e.Token})
	return ended(got, err)
}

func release(ctx context.Context, v *visit, in releaseArgs) (any, error) {
	got, err := v.leases(ctx, "release", in, in.Tokens)
	return ended(got, err)
}

// ended is the answer of a call about leases. It is an error if nothing of it is recorded.
func ended(got lending.LeaseAnswers, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	for _, a := range got.Answers {
		if a.Recorded {
			return map[string]any{"items": got.Answers}, nil
		}
	}
	a := got.Answers[0]
	return nil, &refusal{answer.Problem{Code: a.Reason, Detail: a.Message, Hint: "claim again"}}
}
