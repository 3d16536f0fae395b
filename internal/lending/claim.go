package lending

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// Claim asks for items of one kind.
type Claim struct {
	Kind  string `json:"kind"`
	Agent string `json:"agent" jsonschema:"who claims: a name that no other process has"`
	Limit int    `json:"limit,omitempty" jsonschema:"most items, 1 … 1000, with resume those that the agent holds included; 1 if it is not given"`
	Lease int    `json:"lease_s,omitempty" jsonschema:"seconds until the leases end unless renewed; 60 if it is not given"`
	// Items restricts the claim to these, see ledger.Claim. If it names one item and this is not leased, that is an error
	// for all but programs that claim ahead: for them some claims find nothing.
	Items []int64 `json:"items,omitempty" jsonschema:"only the items with these ids; without wait_s"`
	Wait  int     `json:"wait_s,omitempty" jsonschema:"seconds to wait for an item, 0 … 30"`
	// Resume also returns what the agent holds, extended: for a program that has restarted or got no answer.
	Resume bool `json:"resume,omitempty" jsonschema:"also return what the agent holds already, extended"`
	// Ahead is for programs that claim before they begin, and report each start themselves.
	Ahead bool `json:"ahead,omitempty" jsonschema:"the start of each item is reported by itself, before it begins"`
	// Shard limits new items to one part.
	Shard string `json:"shard,omitempty" jsonschema:"only part i of n of the items, as i/n with i from 0"`
	// Exact is for programs that need the exact bytes of a payload, and not only its JSON.
	Exact bool `json:"exact,omitempty" jsonschema:"payloads byte for byte: as {\"base64\": …} where JSON would change them"`
}

// Lent is an item with its lease.
type Lent struct {
	Token       string       `json:"token"`
	ID          int64        `json:"id"`
	Kind        string       `json:"kind"`
	Scope       string       `json:"scope"`
	Key         string       `json:"key"`
	Fingerprint string       `json:"fingerprint"`
	Round       string       `json:"round"`
	Attempt     int64        `json:"attempt"`
	Failures    int          `json:"failures"`
	Payload     report.Bytes `json:"payload"`
	Traceparent string       `json:"traceparent,omitempty"` // W3C trace context of the caller that added the item
	Tracestate  string       `json:"tracestate,omitempty"`
	Due         report.Time  `json:"due"`
	Leased      report.Time  `json:"leased_at"`
	Expires     report.Time  `json:"expires_at"`
	Crashes     int          `json:"crashes"`
	Losses      int          `json:"losses"`
	// Idempotency is the same for every attempt of one round, and of no other round or item.
	Idempotency string `json:"idempotency_key"`
	Alone       bool   `json:"alone"`
	Resumed     bool   `json:"resumed"`
	// First: it is the first attempt since the item was added, or opened again.
	First bool `json:"first,omitempty"`
}

// Claimed is the answer of a claim.
type Claimed struct {
	Leases []Lent `json:"leases"`
	// Drain asks the agent to end its leases and to claim nothing more.
	Drain bool `json:"drain"`
	// WaitS is the number of seconds until a rate of the kind allows the next claim; 0 means that no rate delays it.
	WaitS float64 `json:"wait_s,omitempty"`
	// Full means that items are ready, but as many run as the limits of the kind allow.
	Full bool `json:"full,omitempty"`

	fresh []*ledger.Lease // leases of this claim, without resumed ones
	none  bool            // no item was ready
}

// Claim leases items. If there are none, it waits for up to c.Wait. If ctx ends meanwhile, the items are handed back.
func (d *Lender) Claim(ctx context.Context, by Caller, c Claim) (Claimed, error) {
	if err := c.check(by); err != nil {
		return Claimed{}, err
	}
	ttl, err := leaseTime(c.Lease)
	if err != nil {
		return Claimed{}, err
	}
	policy, err := d.kind(ctx, c.Kind)
	if err != nil {
		return Claimed{}, err
	}
	part, err := parseShard(c.Shard)
	if err != nil {
		return Claimed{}, err
	}
	ask := asking{
		Claim: ledger.Claim{Kind: c.Kind, Agent: c.Agent, Limit: c.Limit, TTL: ttl, Resume: c.Resume, Shard: part,
			Items: c.Items},
		mark:  policy.OnLost == ledger.OnLostDoubt && !c.Ahead,
		exact: c.Exact, named: len(c.Items) == 1 && !c.Ahead, reads: by.Reads,
	}
	if c.Wait == 0 {
		return d.look(ctx, ask)
	}
	p, look, err := d.enter(by.Name, c.Agent, queue{c.Kind, part})
	if err != nil {
		return Claimed{}, err
	}
	return d.await(ctx, p, look || c.Resume, time.After(time.Duration(c.Wait)*time.Second), &ask)
}

// await looks for items at once if look is set, and whenever the poll is woken. It ends when it finds some, or when the
// time is over.
func (d *Lender) await(ctx context.Context, p *poll, look bool, over <-chan time.Time, ask *asking) (Claimed, error) {
	served := false
	defer func() { d.leave(p, served) }()
	last := Claimed{Leases: []Lent{}}
	var looking chan struct{} // nil while the poll waits to be woken
	if look {
		looking = d.looking
	}
	for {
		select {
		case looking <- struct{}{}:
			hints := d.hints(p)
			got, err := d.lookApart(ctx, ask)
			if err != nil || len(got.Leases) > 0 || got.Drain {
				served = len(got.Leases) > 0
				return got, err
			}
			last, looking = got, nil
			d.again(p, hints, got.none)
		case <-p.woken:
			looking = d.looking
		case <-over:
			return last, nil
		case <-d.ended:
			return last, nil
		case <-ctx.Done():
			return last, ctx.Err()
		}
	}
}

// lookApart looks for items in a separate goroutine, then frees its place in d.looking. A call of the ledger makes the
// stack of its goroutine large for ever: so many waiting claims would take much memory.
func (d *Lender) lookApart(ctx context.Context, ask *asking) (got Claimed, err error) {
	var look sync.WaitGroup
	var panicked any // raised again in this goroutine, so that a panic ends one request and not the server
	look.Go(func() {
		defer func() {
			panicked = recover()
			<-d.looking
		}()
		got, err = d.look(ctx, *ask)
	})
	look.Wait()
	if panicked != nil {
		panic(panicked)
	}
	return got, err
}

// check refuses a claim that is out of bounds or not allowed to its caller.
func (c *Claim) check(by Caller) error {
	const most = int(MaxWait / time.Second)
	c.Limit = cmp.Or(c.Limit, 1)
	switch {
	case c.Limit < 1 || c.Limit > MaxLeases:
		return &ledger.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d, must be 1 … %d", c.Limit, MaxLeases)}
	case c.Wait < 0 || c.Wait > most:
		return &ledger.InvalidError{Field: "wait_s", Reason: fmt.Sprintf("%d, must be 0 … %d", c.Wait, most)}
	case c.Wait > 0 && len(c.Items) > 0:
		return &ledger.InvalidError{Field: "wait_s", Reason: "goes without items"}
	}
	if !by.May(c.Kind, c.Agent) {
		return failure.New(failure.ExitDenied, "scope", fmt.Sprintf("this token may not claim kind %q as agent %q", c.Kind,
			c.Agent), "claim a kind of the token, under a name that begins as it asks")
	}
	return nil
}

// asking is a claim in the form of the ledger.
type asking struct {
	ledger.Claim
	mark  bool // the claim counts as the start of the attempts
	exact bool // payloads byte for byte
	named bool // it is an error if nothing can be leased
	reads bool // that error tells why
}

// parseShard parses i/n; "" means all items.
func parseShard(text string) (part scheduler.Shard, err error) {
	if text == "" {
		return part, nil
	}
	if _, err = fmt.Sscanf(text, "%d/%d", &part.Index, &part.Count); err != nil || part.String() != text {
		return part, &ledger.InvalidError{Field: "shard", Reason: fmt.Sprintf("%q, must be i/n with i from 0", text)}
	}
	return part, nil
}

// look claims the items that are ready now.
func (d *Lender) look(ctx context.Context, c asking) (Claimed, error) {
	if d.drains(c.Agent) {
		return Claimed{Leases: []Lent{}, Drain: true}, nil
	}
	within, cancel := call(ctx)
	defer cancel()
	leases, held, err := d.ledger.ClaimWithin(within, c.Claim)
	if err != nil {
		return Claimed{}, err
	}
	none := len(leases) == 0
	if none && c.named {
		return Claimed{}, d.whyNot(within, c)
	}
	if c.mark {
		claimed := leases
		if leases, err = d.markStarted(within, c.TTL, claimed); err != nil {
			if !c.Resume {
				d.release(ctx, claimed)
			}
			return Claimed{}, err
		}
	}
	got := Claimed{Leases: make([]Lent, len(leases)), WaitS: held.Wait.Seconds(), Full: held.Full,
		none: none && held == (scheduler.HeldBack{})}
	for i, ls := range leases {
		got.Leases[i] = lent(ls, c.exact)
		d.granted.add(got.Leases[i].Token, ls)
		if !ls.Resumed {
			got.fresh = append(got.fresh, ls)
		}
	}
	if err := ctx.Err(); err != nil {
		d.TakeBack(ctx, got)
		return Claimed{}, err
	}
	return got, nil
}

// whyNot returns the error about the only item that a claim named and did not lease.
func (d *Lender) whyNot(ctx context.Context, c asking) error {
	id := c.Items[0]
	it, err := d.ledger.Get(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) || err == nil && it.Kind != c.Kind {
		return &ledger.Error{Kind: ledger.ErrNotFound, Message: fmt.Sprintf("there is no item %d of kind %s", id, c.Kind)}
	}
	if err != nil {
		return err
	}
	why, err := d.ledger.Why(ctx, id)
	switch {
	case err != nil:
		return err
	case !c.Shard.Covers(it.Slot):
		why.Code, why.Text = "shard", fmt.Sprintf("It is not in shard %s.", c.Shard)
	case !c.reads && why.State != ledger.StateLeased: // the text may have words of others: errors, reasons of acts
		why.Text = "The reason takes the scope read."
	}
	return NotClaimed(id, why, "claim another item, or claim it again once it is ready")
}

// NotClaimed is the error about an item that a claim named and did not lease.
func NotClaimed(id int64, why ledger.Reason, hint string) error {
	exit := failure.ExitError
	switch {
	case why.State == ledger.StateLeased:
		exit = failure.ExitTaken
	case why.State == ledger.StateReady && !slices.Contains([]string{"paused", "max_running", "rate", "shard"}, why.Code):
		why.Text = "It is ready now, so the same claim may get it." // the reason is why no worker has it
	}
	f := failure.New(exit, "conflict", fmt.Sprintf("item %d is %s and was not claimed. %s", id, why.State, why.Text), hint)
	f.Cause = ledger.ErrConflict
	return f
}

// markStarted marks leases as started. The claim counts as the start, because no later call reports it.
func (d *Lender) markStarted(ctx context.Context, ttl time.Duration, leases []*ledger.Lease) ([]*ledger.Lease, error) {
	var started []*ledger.Lease
	var tokens []string
	for i, err := range d.ledger.Start(ctx, ttl, leases...) {
		if err == nil {
			started, tokens = append(started, leases[i]), append(tokens, leases[i].FullToken())
		} else if !errors.Is(err, ledger.ErrLeaseLost) { // an item that was cancelled just now is left out
			return nil, err
		}
	}
	now, errs := d.ledger.LeasesOf(ctx, tokens...)
	for i, ls := range started { // a start extends a lease
		if errs[i] != nil {
			return nil, errs[i]
		}
		ls.ExpiresAt = now[i].ExpiresAt
	}
	return started, nil
}

// release hands back items whose start may have been recorded, though their agent knows nothing of them. An agent that
// claims with Resume gets them by its next claim.
func (d *Lender) release(ctx context.Context, leases []*ledger.Lease) {
	if len(leases) == 0 {
		return
	}
	ends := make([]ledger.Ending, len(leases))
	for i, ls := range leases {
		ends[i] = ledger.Ending{Lease: ls, Result: ledger.Release()}
	}
	within, cancel := call(ctx)
	defer cancel()
	for i, err := range d.ledger.Finish(within, ends...) {
		if err != nil && !errors.Is(err, ledger.ErrLeaseLost) {
			d.log.Warn("an item of a claim that failed was not handed back; its lease ends by itself", "item", leases[i].ID,
				"until", leases[i].ExpiresAt, "error", err)
		}
	}
}

// TakeBack hands back the items of a claim whose answer could not be written. This counts as no failure. The agent
// keeps its earlier items, and those that another claim with Resume has returned meanwhile.
func (d *Lender) TakeBack(ctx context.Context, c Claimed) {
	if len(c.fresh) == 0 {
		return
	}
	within, cancel := call(ctx)
	defer cancel()
	if err := d.ledger.Unclaim(within, c.fresh...); err != nil {
		d.log.Warn("the items of a claim whose client has gone were not handed back; they are free when their leases end",
			"items", len(c.fresh), "until", c.fresh[0].ExpiresAt, "error", err)
	}
}

// lent returns a lease in the form of the answer.
func lent(ls *ledger.Lease, exact bool) Lent {
	parent, state := tracing.Split(ls.Trace)
	l := Lent{Token: ls.FullToken(), ID: ls.ID, Kind: ls.Kind, Scope: ls.Scope, Key: ls.Key,
		Fingerprint: ls.Fingerprint, Round: ls.Round, Attempt: ls.Attempt, Failures: ls.Failures, Crashes: ls.Crashes,
		Losses: ls.Losses, Idempotency: ls.IdempotencyKey(), Payload: ls.Payload, Due: report.Time(ls.Due),
		Leased: report.Time(ls.StartedAt), Expires: report.Time(ls.ExpiresAt), Alone: ls.Alone, Resumed: ls.Resumed,
		First: ls.First(), Traceparent: parent, Tracestate: state}
	if exact {
		l.Payload = report.Exact(ls.Payload)
	}
	return l
}
