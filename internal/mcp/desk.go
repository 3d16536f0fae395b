package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/google/jsonschema-go/jsonschema"
	protocol "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/report"
)

// desk records the leases of one agent.
type desk struct {
	agent string

	mu    sync.Mutex
	lease int                // seconds that leases last, as the agent last asked
	held  map[string]holding // by token
}

// holding is a lease on a desk.
type holding struct {
	ID      int64       `json:"id"`
	Kind    string      `json:"kind,omitempty"`
	Key     string      `json:"key,omitempty"`
	Token   string      `json:"token"`
	Begun   bool        `json:"begun"`
	Expires report.Time `json:"expires_at,omitzero"`
}

const (
	defaultLease = 600  // seconds: agents think for minutes between two calls
	maxHeld      = 1000 // leases per agent
	maxNamed     = 10   // lost leases of one answer whose new holder is looked up
)

func newDesk(agent string) *desk {
	return &desk{agent: agent, lease: defaultLease, held: map[string]holding{}}
}

// visit is one call of an agent.
type visit struct {
	*desk
	api     *Caller
	req     *protocol.CallToolRequest // nil if no tool is called
	most    int                       // bytes of the answer
	notices []notice
}

// notice is a message of the server beside an answer. Holder is a name that another program chose.
type notice struct {
	Event  string `json:"event"` // lost, taken, cancelled, drain
	Item   int64  `json:"item,omitempty"`
	Token  string `json:"token,omitempty"`
	State  string `json:"state,omitempty"`  // of the item now
	Holder string `json:"holder,omitempty"` // agent that has the item now
	Text   string `json:"text"`
}

// tokens returns the tokens that the agent holds, without some of them.
func (d *desk) tokens(but []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.held)), func(t string) bool { return slices.Contains(but, t) })
}

// put records a lease.
func (d *desk) put(h holding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	h.Begun = h.Begun || d.held[h.Token].Begun
	d.held[h.Token] = h
}

// leaseFor returns how long leases last, in seconds: asked, or as before if that is 0.
func (d *desk) leaseFor(asked int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return cmp.Or(asked, d.lease)
}

// setLease sets how long leases last, after the API has accepted the value: each beat sends it.
func (d *desk) setLease(seconds int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lease = seconds
}

// beat renews the leases of the agent, without some of them. Errors are dropped, because the call that the agent makes
// fails then, too.
func (v *visit) beat(ctx context.Context, but []string) {
	if tokens := v.tokens(but); len(tokens) > 0 {
		_, _ = v.leases(ctx, beat, lending.Renewal{Tokens: tokens, Lease: v.leaseFor(0)}, tokens)
	}
}

// beat is the act of a renewal that no agent has asked for. It puts no lease on the desk, because the agent may have
// ended the lease meanwhile.
const beat = ""

// leases makes a request about leases: beat, or renew, start, finish or release. It removes lost leases from the desk.
func (v *visit) leases(ctx context.Context, act string, body any, tokens []string) (lending.LeaseAnswers, error) {
	var got lending.LeaseAnswers
	err := v.api.ask(ctx, http.MethodPost, "/leases/"+cmp.Or(act, "renew"), nil, body, &got)
	// the API refuses a request that names only one lease if it refuses that lease
	if bad, ok := errors.AsType[*refusal](err); ok && len(tokens) == 1 && aboutLease(bad.Problem) {
		got.Answers = []lending.LeaseAnswer{{Token: tokens[0], Reason: bad.Code, Message: bad.Detail}}
		err = nil
	}
	if err != nil {
		return got, err
	}
	for i, a := range got.Answers {
		v.settle(ctx, act, &a)
		got.Answers[i] = a
	}
	v.tellDrain(got.Drain)
	return got, nil
}

// aboutLease reports whether a refusal is about a lease, and not about the request or its sender.
func aboutLease(p answer.Problem) bool {
	return p.Code == "lease_lost" || p.Code == "conflict" || p.Code == "scope" && p.Field == "token"
}

// settle records the answer about one lease.
func (v *visit) settle(ctx context.Context, act string, a *lending.LeaseAnswer) {
	v.mu.Lock()
	h, known := v.held[a.Token]
	h.Token, h.ID = a.Token, itemOf(a.Token)
	switch {
	case a.Recorded && (act == "finish" || act == "release"), a.Reason == "lease_lost":
		delete(v.held, a.Token)
	case a.Recorded && (known || act != beat && len(v.held) < maxHeld):
		h.Expires, h.Begun = a.Expires, h.Begun || !known || act == "start"
		v.held[a.Token] = h
	}
	v.mu.Unlock()
	switch {
	case a.Reason == "lease_lost":
		a.Message = "the lease was lost: nothing of this is recorded" // names of others appear only in the notice
		v.tell(v.lost(ctx, h))
	case a.Cancel:
		v.tell(notice{Event: "cancelled", Item: h.ID, Token: h.Token,
			Text: "the item was cancelled: stop working on it, then release it"})
	}
}

// lost returns the notice about a lost item, with its state and its holder now.
func (v *visit) lost(ctx context.Context, h holding) notice {
	n := notice{Event: "lost", Item: h.ID, Token: h.Token,
		Text: "you do not hold this item any more: stop working on it, its token ends nothing"}
	if len(v.notices) < maxNamed {
		var it answer.ItemDetail
		if v.api.ask(ctx, http.MethodGet, fmt.Sprintf("/items/%d", h.ID), nil, nil, &it) == nil {
			n.State, n.Holder = string(it.State), it.Agent
		}
	}
	return n
}

// tell adds a notice to the answer.
func (v *visit) tell(n notice) {
	if !slices.Contains(v.notices, n) {
		v.notices = append(v.notices, n)
	}
}

func (v *visit) tellDrain(drain bool) {
	if drain {
		v.tell(notice{Event: "drain", Text: "you are asked to end: finish or release what you hold, claim nothing more"})
	}
}

// itemOf returns the item id of a token, 0 if it is no token.
func itemOf(token string) int64 {
	id, _, _ := strings.Cut(token, ".")
	n, _ := strconv.ParseInt(id, 10, 64)
	return n
}

// giveBack releases items that the agent claimed ahead and has not begun.
func (v *visit) giveBack(ctx context.Context) {
	v.mu.Lock()
	var tokens []string
	for token, h := range v.held {
		if !h.Begun {
			tokens = append(tokens, token)
		}
	}
	v.mu.Unlock()
	if len(tokens) > 0 {
		_, _ = v.leases(ctx, "release", map[string]any{"tokens": tokens}, tokens)
	}
}

// maxClaimed is how many items one claim may lease. Their tokens and the beginnings of their payloads fit into an
// answer of usualSize.
const maxClaimed = 10

// Inputs of the tools for work.
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

// offerWork adds the tools that add and work items.
func offerWork(s *protocol.Server, me answer.Me, from visits) {
	offer(s, me, from, tool{name: "add", scope: access.Add, repeats: true,
		about:  "Add items. One whose kind, scope and key are known is not added twice.",
		fields: map[string]string{"items": "50 at most"}, edit: chooseItem}, addItems)
	offer(s, me, from, tool{name: "claim", scope: access.Work,
		about: "Lease items of a kind to you: first those that you hold, then new ones, limit in all. " +
			"Finish or release each by its token.",
		fields: map[string]string{"kind": "stats lists the kinds", "limit": "1 … 10; 1 if it is not given",
			"lease_s": "seconds until you must make a call; 600 if it is not given", "wait_s": "", "bytes": aboutBytes,
			"items": "only these ids, wherever they stand in the order; without wait_s",
			"ahead": "you call renew with begin before you begin each item; what you have not begun when you end goes back"}},
		claim)
	offer(s, me, from, tool{name: "renew", scope: access.Work, repeats: true,
		about: "Renew your leases, and list what you hold. Every other call renews, too.",
		fields: map[string]string{"tokens": "all if it is not given", "lease_s": "seconds from now",
			"begin": "you begin these items now, which you claimed ahead"},
		edit: func(s *jsonschema.Schema) { s.Required = nil }}, renew)
	offer(s, me, from, tool{name: "finish", scope: access.Work, destroys: true, repeats: true,
		about: "End your attempt of one item.",
		fields: map[string]string{"token": "", "output": "the result: any JSON", "code": "", "error": "", "final": "",
			"outcome": "done if it is not given. failed is tried again; snoozed: later, after delay_s; unknown: a person decides",
			"delay_s": "", "note": "text for others, kept with the attempt"},
		edit: func(s *jsonschema.Schema) {
			s.Properties["outcome"].Enum = []any{"done", "skipped", "failed", "snoozed", "unknown"}
			ofAnyType(s.Properties["output"])
		}}, finish)
	offer(s, me, from, tool{name: "release", scope: access.Work, repeats: true,
		about: "Hand items back undone. This counts as no failure.", fields: map[string]string{"tokens": ""}}, release)
}

// chooseItem keeps the fields of an item that agents give.
func chooseItem(s *jsonschema.Schema) {
	item := s.Properties["items"].Items
	chosen(item, map[string]string{"kind": "", "key": "short name that identifies it",
		"payload":  "what is to be done: description, acceptance, parent (id) and what else helps",
		"priority": "-2 (first) … 2 (last)", "due": "not before", "scope": "a set of items, in which keys count",
		"again": "work a known item once more that has ended"})
	item.Properties["priority"].Minimum, item.Properties["priority"].Maximum = nil, nil
	item.Properties["payload"].Type, item.Properties["payload"].Types = "object", nil
}

// ofAnyType allows any JSON but null in a field. Some client programs refuse a list of types, a schema without a type,
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

// maxAdded bounds the items of one call, so that the verdicts fit into an answer of the usual size.
const maxAdded = 50

func addItems(ctx context.Context, v *visit, in addArgs) (any, error) {
	if n := len(in.Items); n > maxAdded {
		return nil, wrong("items", "add the others by another call", "%d items, at most %d", n, maxAdded)
	}
	var got answer.Verdicts
	if err := v.api.ask(ctx, http.MethodPost, "/items", nil, in.Items, &got); err != nil {
		return nil, err
	}
	return got, nil
}

// claimed are the fields of a lease that agents see.
var claimed = []string{"token", "id", "kind", "scope", "key", "attempt", "failures", "payload", "expires_at", "resumed",
	"idempotency_key"}

func claim(ctx context.Context, v *visit, in claimArgs) (any, error) {
	c := in.Claim
	if v.agent == "" {
		return nil, wrong("agent", "ask your user to add it to the URL of this server: …/mcp?agent=NAME, another name for each "+
			"agent", "over HTTP an agent that claims needs a name")
	}
	if c.Limit > maxClaimed {
		return nil, wrong("limit", "claim again when you have finished some", "%d, must be 1 … %d", c.Limit, maxClaimed)
	}
	c.Agent, c.Resume, c.Lease = v.agent, true, v.leaseFor(c.Lease)
	var got lending.Claimed
	if err := v.api.ask(ctx, http.MethodPost, "/claims", nil, c, &got); err != nil {
		if bad, ok := errors.AsType[*refusal](err); ok && bad.Code == "conflict" && len(c.Items) == 1 {
			n := v.lost(ctx, holding{ID: c.Items[0]})
			n.Event, n.Text = "taken", "this item cannot be claimed in its state"
			v.tell(n) // the refusal of the API may hold words of others
			bad.Detail = "the item was not claimed"
		}
		return nil, err
	}
	v.setLease(c.Lease)
	for _, ls := range got.Leases {
		v.put(holding{ID: ls.ID, Kind: ls.Kind, Key: ls.Key, Token: ls.Token, Begun: !c.Ahead, Expires: ls.Expires})
	}
	v.tellDrain(got.Drain)
	data := map[string]any{"items": picked(got.Leases, claimed...)}
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
		if err == nil {
			v.setLease(r.Lease)
		}
		if len(in.Tokens) > 0 { // an agent must not begin an item that it has lost
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
	held := slices.AppendSeq([]holding{}, maps.Values(v.held))
	slices.SortFunc(held, func(a, b holding) int { return cmp.Compare(a.ID, b.ID) })
	return map[string]any{"items": held, "refused": refused}, nil
}

func finish(ctx context.Context, v *visit, in finishArgs) (any, error) {
	e := in.Ending
	e.Log, e.Worker = in.Note, clientOf(v.req.Session)
	got, err := v.leases(ctx, "finish", map[string]any{"endings": []lending.Ending{e}}, []string{e.Token})
	return ended(got, err)
}

func release(ctx context.Context, v *visit, in releaseArgs) (any, error) {
	got, err := v.leases(ctx, "release", in, in.Tokens)
	return ended(got, err)
}

// ended returns the answer of a call about leases. It is an error if nothing was recorded.
func ended(got lending.LeaseAnswers, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	for _, a := range got.Answers {
		if a.Recorded {
			return map[string]any{"items": got.Answers}, nil
		}
	}
	if len(got.Answers) == 0 {
		return nil, errors.New("the server answers about none of these tokens")
	}
	a := got.Answers[0]
	return nil, &refusal{answer.Problem{Code: a.Reason, Detail: a.Message, Hint: "claim again"}}
}
