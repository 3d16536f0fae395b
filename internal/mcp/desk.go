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
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/report"
)

// desk is what one agent holds.
type desk struct {
	agent string

	mu    sync.Mutex
	seen  time.Time          // when it was used last, where agents come and go
	lease int                // seconds, as the agent asked for last
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
	mostHeld     = 1000 // leases of an agent
	mostNamed    = 10   // lost leases of one answer of which the holder is looked up
)

func newDesk(agent string) *desk {
	return &desk{agent: agent, lease: defaultLease, held: map[string]holding{}}
}

// visit is one call of an agent.
type visit struct {
	*desk
	api     *Caller
	client  string // name of the agent's program
	notices []notice
	// progress reports how far a call is, to an agent that wants to know; nil: it does not.
	progress func(ctx context.Context, done, of float64, text string)
}

// notice is what the server tells beside an answer. Holder was chosen by another program.
type notice struct {
	Event  string `json:"event"` // lost, cancelled, drain
	Item   int64  `json:"item,omitempty"`
	Token  string `json:"token,omitempty"`
	State  string `json:"state,omitempty"`  // of the item now
	Holder string `json:"holder,omitempty"` // agent that has the item now
	Text   string `json:"text"`
}

// tokens are those that the agent holds, but some.
func (d *desk) tokens(but []string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(d.held)), func(t string) bool { return slices.Contains(but, t) })
}

// put lays leases on the desk.
func (d *desk) put(all ...holding) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range all {
		h.Begun = h.Begun || d.held[h.Token].Begun
		d.held[h.Token] = h
	}
}

// leaseFor takes over how long leases are to last; 0 leaves it as it is.
func (d *desk) leaseFor(seconds int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lease = cmp.Or(seconds, d.lease)
	return d.lease
}

// beat renews what the agent holds, but some leases. An answer that does not come is no notice: what the agent asked
// for has no answer either.
func (v *visit) beat(ctx context.Context, but []string) {
	if tokens := v.tokens(but); len(tokens) > 0 {
		_, _ = v.leases(ctx, "renew", lending.Renewal{Tokens: tokens, Lease: v.leaseFor(0)}, tokens)
	}
}

// leases makes a request about leases. It clears the desk of those that the agent does not hold any more.
func (v *visit) leases(ctx context.Context, act string, body any, tokens []string) (lending.LeaseAnswers, error) {
	var got lending.LeaseAnswers
	err := v.api.ask(ctx, http.MethodPost, "/leases/"+act, nil, body, &got)
	if bad, ok := errors.AsType[*refusal](err); ok && len(tokens) == 1 && aboutLease(bad.Problem) { // see package lending
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
	return p.Code == "lease_lost" || p.Code == "conflict" || p.Code == "scope" && strings.HasPrefix(p.Detail, "the lease")
}

// settle takes over what became of one lease.
func (v *visit) settle(ctx context.Context, act string, a *lending.LeaseAnswer) {
	v.mu.Lock()
	h, known := v.held[a.Token]
	h.Token, h.ID = a.Token, itemOf(a.Token)
	switch {
	case a.Recorded && (act == "finish" || act == "release"), a.Reason == "lease_lost":
		delete(v.held, a.Token)
	case a.Recorded && (known || len(v.held) < mostHeld):
		h.Expires, h.Begun = a.Expires, h.Begun || !known || act == "start"
		v.held[a.Token] = h
	}
	v.mu.Unlock()
	switch {
	case a.Reason == "lease_lost":
		a.Message = "the lease was lost: nothing of this is recorded" // the names of others stay in the notice
		v.tell(v.lost(ctx, h))
	case a.Cancel:
		v.tell(notice{Event: "cancelled", Item: h.ID, Token: h.Token,
			Text: "the item was cancelled: stop working on it, then release it"})
	}
}

// lost tells where an item is now that the agent has lost.
func (v *visit) lost(ctx context.Context, h holding) notice {
	n := notice{Event: "lost", Item: h.ID, Token: h.Token,
		Text: "you do not hold this item any more: stop working on it, its token ends nothing"}
	if len(v.notices) < mostNamed {
		var it answer.ItemDetail
		if v.api.ask(ctx, http.MethodGet, fmt.Sprintf("/items/%d", h.ID), nil, nil, &it) == nil {
			n.State, n.Holder = string(it.State), it.Agent
		}
	}
	return n
}

func (v *visit) tell(n notice) {
	if !slices.Contains(v.notices, n) {
		v.notices = append(v.notices, n)
	}
}

func (v *visit) tellDrain(asked bool) {
	if asked {
		v.tell(notice{Event: "drain", Text: "you are asked to end: finish or release what you hold, claim nothing more"})
	}
}

// itemOf is the id of the item of a token; 0 if it is no token.
func itemOf(token string) int64 {
	id, _, _ := strings.Cut(token, ".")
	n, _ := strconv.ParseInt(id, 10, 64)
	return n
}

// giveBack releases what the agent has claimed ahead and not begun.
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
