package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/calls"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/tracing"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// claims knows the leases of this program, to find leases of claims whose answer was lost. The program does not know
// of these. So the next claim for the same agent and kind asks to resume: the server returns all leases of the agent,
// and those that are known already are left out. The server may carry out the lost claim after this answer. So claims
// resume until one of them began after the server had given up the lost claim, and returned all leases of the agent.
// If the server was halted and leases an item even later, the item comes back when its lease ends.
type claims struct {
	now      func() time.Time
	mu       sync.Mutex
	held     map[holder]map[string]bool // full tokens
	lost     map[holder]time.Time       // until when the server may carry out a claim whose answer was lost
	resuming map[holder]int             // claims under way that resume
	ended    map[holder][]string        // tokens of leases that ended while such a claim was under way
}

type holder struct{ agent, kind string }

// begin is called before a claim of up to n items. If the claim is to resume, begin returns its limit, else 0.
func (c *claims) begin(h holder, n int) (limit int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost[h].IsZero() || len(c.held[h]) >= lending.MaxLeases {
		return 0 // one claim cannot list all; lost leases end by themselves
	}
	c.resuming[h]++
	return min(len(c.held[h])+n, lending.MaxLeases)
}

// over is called with the result of a claim. It returns the leases that were not known. full means that the agent may
// hold more leases than the claim returned.
func (c *claims) over(h holder, began time.Time, resumed, full bool, leases []*ledger.Lease, err error) (
	fresh []*ledger.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held, c.lost, c.resuming, c.ended = map[holder]map[string]bool{}, map[holder]time.Time{}, map[holder]int{},
			map[holder][]string{}
	}
	if c.held[h] == nil {
		c.held[h] = map[string]bool{}
	}
	if temporary(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		c.lost[h] = c.now().Add(lending.ClaimTime)
	} else if resumed && err == nil && !full && began.After(c.lost[h]) {
		delete(c.lost, h)
	}
	for _, ls := range leases {
		if token := ls.FullToken(); !c.held[h][token] {
			c.held[h][token] = true
			fresh = append(fresh, ls)
		}
	}
	if resumed {
		if c.resuming[h]--; c.resuming[h] == 0 {
			for _, token := range c.ended[h] {
				delete(c.held[h], token)
			}
			delete(c.ended, h)
		}
	}
	return fresh
}

// end is called when a lease has ended or was lost, or the worker gives up reporting its end. While a claim that
// resumes is under way, the lease stays known: the answer of the claim may be older and contain it.
func (c *claims) end(ls *ledger.Lease) {
	h := holder{ls.Agent, ls.Kind}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.resuming[h] > 0 {
		c.ended[h] = append(c.ended[h], ls.FullToken())
		return
	}
	delete(c.held[h], ls.FullToken())
}

// Claim leases items. The server itself expires leases and makes due items ready.
func (l *Ledger) Claim(ctx context.Context, c ledger.Claim) ([]*ledger.Lease, error) {
	if c.Limit < 1 || c.Limit > lending.MaxLeases { // the server takes 0 for 1
		return nil, &ledger.InvalidError{Field: "limit", Reason: fmt.Sprintf("%d, must be 1 … %d", c.Limit,
			lending.MaxLeases)}
	}
	if c.TTL != 0 && (c.TTL < bounds.MinTTL || c.TTL > bounds.MaxTTL) {
		return nil, &ledger.InvalidError{Field: "ttl", Reason: fmt.Sprintf("%s, must be %s … %s", c.TTL, bounds.MinTTL,
			bounds.MaxTTL)}
	}
	_, leases, err := l.claim(ctx, c, c.Limit, c.Resume)
	return leases, hinted(err, hintClaim)
}

// ClaimWithin leases items for a worker. It also returns leases of earlier claims whose answers were lost.
func (l *Ledger) ClaimWithin(ctx context.Context, c ledger.Claim) ([]*ledger.Lease, scheduler.HeldBack, error) {
	h, began := holder{c.Agent, c.Kind}, l.claims.now()
	limit := 0
	if len(c.Items) == 0 { // a claim that names items cannot find other leases
		limit = l.claims.begin(h, c.Limit)
	}
	resume := limit > 0
	if !resume {
		limit = c.Limit
	}
	out, leases, err := l.claim(ctx, c, limit, resume)
	full := limit > 0 && len(leases) == limit && out.Leases[limit-1].Resumed // what the agent holds comes first
	return l.claims.over(h, began, resume, full, leases, err),
		scheduler.HeldBack{Wait: time.Duration(out.WaitS * float64(time.Second)), Full: out.Full}, err
}

// claim sends a claim, and makes leases of the answer.
func (l *Ledger) claim(ctx context.Context, c ledger.Claim, limit int, resume bool) (out lending.Claimed,
	leases []*ledger.Lease, err error) {
	in := lending.Claim{Kind: c.Kind, Agent: c.Agent, Limit: limit, Lease: seconds(c.TTL), Resume: resume, Ahead: true,
		Exact: true, Items: c.Items}
	if c.Shard.Count > 0 {
		in.Shard = c.Shard.String()
	}
	called := time.Now()
	if err := l.ask(ctx, leaseTime, "/claims", in, &out); err != nil {
		return lending.Claimed{}, nil, err
	}
	l.drained(c.Agent, out.Drain)
	leases = make([]*ledger.Lease, len(out.Leases))
	for i, lent := range out.Leases {
		ls := &ledger.Lease{Item: ledger.Item{Kind: lent.Kind, Scope: lent.Scope, Key: lent.Key, Round: lent.Round,
			Due: time.Time(lent.Due), Failures: lent.Failures, Crashes: lent.Crashes, Losses: lent.Losses,
			State: ledger.StateLeased, LeasedAt: time.Time(lent.Leased), ExpiresAt: time.Time(lent.Expires), Agent: c.Agent},
			Agent: c.Agent, StartedAt: time.Time(lent.Leased), ExpiresAt: time.Time(lent.Expires), Alone: lent.Alone,
			Resumed: lent.Resumed && c.Resume}
		ls.Trace = tracing.Join(lent.Traceparent, lent.Tracestate)
		ls.Fingerprint, ls.Payload = lent.Fingerprint, lent.Payload
		if lent.Resumed && !c.Resume { // StartedAt is the time of this call, by which the worker compares the clocks
			ls.StartedAt = ls.ExpiresAt.Add(-c.TTL)
		}
		if err := ls.Take(lent.Token, lent.Idempotency, called, c.TTL, lent.First); err != nil {
			return lending.Claimed{}, nil, err
		}
		leases[i] = ls
	}
	return out, leases, nil
}

// seconds rounds the duration of a lease up to whole seconds, as the server counts. A lease that lasts longer on the
// server than its holder believes is safe.
func seconds(ttl time.Duration) int { return int(math.Ceil(ttl.Seconds())) }

// drained calls Drain of the config if the server asks an agent to end.
func (l *Ledger) drained(agent string, drain bool) {
	if drain && l.config.Drain != nil {
		l.config.Drain(agent)
	}
}

// Start marks leases as started.
func (l *Ledger) Start(ctx context.Context, ttl time.Duration, leases ...*ledger.Lease) []error {
	_, errs := l.about(ctx, "/leases/start", ttl, leases)
	for i, err := range errs {
		if errors.Is(err, ledger.ErrCancelled) || errors.Is(err, ledger.ErrConflict) {
			errs[i] = ledger.ErrLeaseLost // the work must not begin
		}
	}
	return errs
}

// Extend extends leases.
func (l *Ledger) Extend(ctx context.Context, ttl time.Duration, leases ...*ledger.Lease) ([]time.Time, []error) {
	ends, errs := l.about(ctx, "/leases/renew", ttl, leases)
	return ends, l.noteLost(leases, errs)
}

// Held reports whether leases are in force.
func (l *Ledger) Held(ctx context.Context, leases ...*ledger.Lease) []error {
	_, errs := l.about(ctx, "/leases/held", 0, leases)
	return l.noteLost(leases, errs)
}

// noteLost forgets leases that were lost. The end of such a lease may never be reported, because its handler may never
// return.
func (l *Ledger) noteLost(leases []*ledger.Lease, errs []error) []error {
	for i, err := range errs {
		if errors.Is(err, ledger.ErrLeaseLost) {
			l.claims.end(leases[i])
		}
	}
	return errs
}

// about makes a call about leases, at most lending.MaxLeases at a time. It returns when they end if the call extends
// them.
func (l *Ledger) about(ctx context.Context, path string, ttl time.Duration, leases []*ledger.Lease) (ends []time.Time,
	errs []error) {
	for part := range parts(leases, lending.MaxLeases, func(*ledger.Lease) int { return 0 }) {
		in := lending.Renewal{Tokens: tokens(part)}
		if ttl > 0 {
			in.Lease = seconds(ttl)
		}
		answers, err := l.answers(ctx, leaseTime, path, in, part)
		for i := range part {
			switch {
			case err != nil:
				ends, errs = append(ends, time.Time{}), append(errs, err)
			case answers[i].Cancel:
				ends, errs = append(ends, time.Time(answers[i].Expires)), append(errs, ledger.ErrCancelled)
			default:
				ends, errs = append(ends, time.Time(answers[i].Expires)), append(errs, reason(answers[i]))
			}
		}
	}
	return ends, errs
}

func tokens(leases []*ledger.Lease) []string {
	all := make([]string, len(leases))
	for i, ls := range leases {
		all[i] = ls.FullToken()
	}
	return all
}

// answers makes a call with an answer for each lease. If the server refuses the only lease of a call, it refuses the
// call, so this is an error.
func (l *Ledger) answers(ctx context.Context, within time.Duration, path string, in any, leases []*ledger.Lease) (
	[]lending.LeaseAnswer, error) {
	var out lending.LeaseAnswers
	err := l.ask(ctx, within, path, in, &out)
	if len(leases) > 0 && out.Drain {
		l.drained(leases[0].Agent, true)
	}
	switch {
	case err == nil && len(out.Answers) == len(leases):
		return out.Answers, nil
	case err == nil:
		return nil, &ledger.Error{Kind: ledger.ErrUnavailable, Message: l.Remote.String() + ": not as many answers as leases"}
	}
	return nil, err
}

// reason is the error in an answer; nil if the request was recorded.
func reason(a lending.LeaseAnswer) error {
	switch {
	case a.Recorded:
		return nil
	case a.Reason == "lease_lost":
		return ledger.ErrLeaseLost
	}
	return errorOf(answer.Problem{Code: a.Reason, Detail: a.Message})
}

// Finish ends leases. If an answer was lost, the worker reports the end again, and the server recognises it.
func (l *Ledger) Finish(ctx context.Context, e ...ledger.Ending) (errs []error) {
	for part := range parts(e, lending.MaxLeases, endSize) {
		errs = append(errs, l.finish(ctx, part)...)
	}
	for i, err := range errs {
		if err == nil || errors.Is(err, ledger.ErrLeaseLost) || smallest(&e[i].Result) && !temporary(err) {
			l.claims.end(e[i].Lease)
		}
	}
	return errs
}

// smallest reports whether the worker reports no smaller result if this one is refused.
func smallest(r *ledger.Result) bool {
	return r.Outcome == ledger.OutcomeFailed && r.Final && r.Code == worker.CodeInvalid && len(r.Output)+len(r.Log) == 0
}

// endSize estimates the bytes of an end in a request.
func endSize(e ledger.Ending) int {
	n := 2*(len(e.Result.Output)+len(e.Result.Error)+len(e.Result.Log)) + 300
	for _, it := range e.Result.Emit {
		n += 2*(len(it.Payload)+len(it.Key)) + 300
	}
	return n
}

// ends are endings as they are sent.
type ends struct {
	Endings []lending.Ending `json:"endings"`
}

// finish ends leases by one request, or by several if the request is too large for the server or a proxy, or a firewall
// refuses its content. An end that is refused alone is invalid: the worker then reports that the item has failed.
func (l *Ledger) finish(ctx context.Context, e []ledger.Ending) []error {
	var in ends
	leases := make([]*ledger.Lease, len(e))
	for i := range e {
		leases[i] = e[i].Lease
		in.Endings = append(in.Endings, ending(&e[i]))
	}
	errs := make([]error, len(e))
	within := leaseTime
	if endSize(e[0]) > sendMost {
		within = callTime // it takes long to send
	}
	answers, err := l.answers(ctx, within, finishPath, in, leases)
	barred := l.barred(ctx, err)
	if barred && len(e) == 1 {
		answers, err = l.answers(ctx, within, finishPath, in, leases)
		barred = errors.Is(err, errBarred)
	}
	if half := len(e) / 2; half > 0 && (barred || errors.Is(err, errTooLarge)) {
		return append(l.finish(ctx, e[:half]), l.finish(ctx, e[half:])...)
	}
	switch {
	case errors.Is(err, errTooLarge):
		err = endTooLarge(e[0].Result, err)
	case barred && !smallest(&e[0].Result):
		err = &ledger.InvalidError{Field: "endings", Reason: fmt.Sprintf("a proxy or a firewall does not let this one "+
			"through: %v", err), Hint: "have it let every request to " + base + finishPath + " through"}
	}
	for i := range e {
		if errs[i] = err; err != nil {
			continue
		}
		a := answers[i]
		if errs[i] = reason(a); errs[i] == nil {
			e[i].Recorded, e[i].State, e[i].Round = a.Outcome, a.State, a.RoundState
		}
	}
	return errs
}

const finishPath = "/leases/finish"

// barred reports whether ends are refused before the server because of their content: an empty list gets there.
func (l *Ledger) barred(ctx context.Context, err error) bool {
	return errors.Is(err, errBarred) && errors.Is(l.ask(ctx, leaseTime, finishPath, ends{Endings: []lending.Ending{}},
		new(lending.LeaseAnswers)), ledger.ErrInvalid)
}

// endTooLarge is the error for an end that cannot be sent.
func endTooLarge(r ledger.Result, err error) error {
	if n := len(r.Emit); n > 0 {
		return &ledger.InvalidError{Field: "emit", Reason: fmt.Sprintf("%d items are more than can be sent at once: %v", n,
			err), Hint: "emit fewer items, or items that emit the rest"}
	}
	return &ledger.InvalidError{Field: "output", Reason: fmt.Sprintf("%d bytes are more than can be sent at once: %v",
		len(r.Output), err)}
}

// ending returns an end as it is sent.
func ending(e *ledger.Ending) lending.Ending {
	r := e.Result
	out := lending.Ending{Token: e.Lease.FullToken(), Outcome: r.Outcome, Output: report.Exact(r.Output), Code: r.Code,
		Error: r.Error, Final: r.Final, Delay: r.Delay.Seconds(), AtMost: r.AtMost, Log: r.Log, Worker: r.Worker,
		NoReport: r.NoReport, Tallied: true}
	for _, it := range r.Emit {
		parent, state := tracing.Split(it.Trace)
		out.Emit = append(out.Emit, answer.Addition{Kind: it.Kind, Scope: it.Scope, Key: it.Key, Fingerprint: it.Fingerprint,
			Payload: report.Exact(it.Payload), ShardKey: it.ShardKey, Priority: it.Priority, Due: answer.Moment{Time: it.Due},
			Every: it.Every, Zone: it.Zone, Source: it.Source, Given: it.Given, Traceparent: parent, Tracestate: state})
	}
	return out
}

// Lease returns the lease that a short token names.
func (l *Ledger) Lease(ctx context.Context, id, attempt int64) (*ledger.Lease, error) {
	called := time.Now()
	out, err := look(ctx, l, calls.Lease, calls.LeaseIn{ID: id, Attempt: attempt})
	if err != nil {
		return nil, err
	}
	ls := &ledger.Lease{Item: out.Item, Agent: out.Agent, StartedAt: out.StartedAt, ExpiresAt: out.Expires,
		Alone: out.Alone}
	return ls, ls.Take(out.Token, "", called, 0, false)
}
