package remote

import (
	"bytes"
	"context"
	"encoding/json"
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

// claims knows what this program holds. When the answer of a claim was lost, the server may have leased items that the
// program does not know of. Its next claim for the same agent and kind asks to resume, so the server returns all that
// the agent holds; what is known already is left out of the answer. The lost claim may lease after that answer. So the
// claims go on to resume until one began when the server had given up the lost one, and had room for all that the agent
// holds. An item that the server leases later still, because it was halted, comes back when its lease ends.
type claims struct {
	now   func() time.Time
	mu    sync.Mutex
	held  map[holder]map[string]bool // full tokens
	lost  map[holder]time.Time       // the answer of a claim was lost, and the server may work on it until then
	asked map[holder]int             // claims under way that resume
	ended map[holder][]string        // tokens that have ended while such a claim was under way
}

type holder struct{ agent, kind string }

// begin is for a claim of up to n items. resume is the limit with which it resumes, 0 if it does not.
func (c *claims) begin(h holder, n int) (resume int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lost[h].IsZero() || len(c.held[h]) >= lending.MaxLeases {
		return 0 // too many to list: what was lost comes back when its leases end
	}
	c.asked[h]++
	return min(len(c.held[h])+n, lending.MaxLeases)
}

// over is for the end of a claim: leases are new ones unless they are known. It returns the new ones. full means that
// the agent may hold more than the claim returned.
func (c *claims) over(h holder, began time.Time, resumed, full bool, leases []*ledger.Lease, err error) (
	fresh []*ledger.Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held, c.lost, c.asked, c.ended = map[holder]map[string]bool{}, map[holder]time.Time{}, map[holder]int{},
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
		if c.asked[h]--; c.asked[h] == 0 {
			for _, token := range c.ended[h] {
				delete(c.held[h], token)
			}
			delete(c.ended, h)
		}
	}
	return fresh
}

// end is for leases that have ended or were lost, and for those whose worker reports no more. While a claim that
// resumes is under way, they stay known: its answer may have been made before.
func (c *claims) end(ls *ledger.Lease) {
	h := holder{ls.Agent, ls.Kind}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.asked[h] > 0 {
		c.ended[h] = append(c.ended[h], ls.FullToken())
		return
	}
	delete(c.held[h], ls.FullToken())
}

// Claim leases items; the server keeps the ledger in order, so what has expired or is due is there.
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

// ClaimWithin leases items for a worker. The worker knows all that the agent holds but what was lost with an answer.
func (l *Ledger) ClaimWithin(ctx context.Context, c ledger.Claim) ([]*ledger.Lease, scheduler.HeldBack, error) {
	h, began := holder{c.Agent, c.Kind}, l.claims.now()
	limit := l.claims.begin(h, c.Limit)
	resume := limit > 0
	if !resume {
		limit = c.Limit
	}
	out, leases, err := l.claim(ctx, c, limit, resume)
	full := limit > 0 && len(leases) == limit && out.Leases[limit-1].Resumed // what the agent holds comes first
	return l.claims.over(h, began, resume, full, leases, err),
		scheduler.HeldBack{Wait: time.Duration(out.WaitS * float64(time.Second)), Full: out.Full}, err
}

func (l *Ledger) claim(ctx context.Context, c ledger.Claim, limit int, resume bool) (out lending.Claimed,
	leases []*ledger.Lease, err error) {
	in := lending.Claim{Kind: c.Kind, Agent: c.Agent, Limit: limit, Lease: seconds(c.TTL), Resume: resume, Ahead: true,
		Exact: true}
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
		if ls.Fingerprint, ls.Payload = lent.Fingerprint, lent.Payload; lent.Resumed && !c.Resume {
			ls.StartedAt = ls.ExpiresAt.Add(-c.TTL) // when it was extended; the worker compares the clocks by it
		}
		if err := ls.Take(lent.Token, lent.Idempotency, called, c.TTL); err != nil {
			return lending.Claimed{}, nil, err
		}
		leases[i] = ls
	}
	return out, leases, nil
}

// seconds are what the server counts leases in. A lease that lasts longer there than the holder trusts it is safe.
func seconds(ttl time.Duration) int { return int(math.Ceil(ttl.Seconds())) }

// drained passes on that the server asks an agent to end.
func (l *Ledger) drained(agent string, drain bool) {
	if drain && l.config.Drain != nil {
		l.config.Drain(agent)
	}
}

// Start marks leases as started.
func (l *Ledger) Start(ctx context.Context, ttl time.Duration, leases ...*ledger.Lease) []error {
	errs := l.about(ctx, "/leases/start", ttl, leases)
	for i, err := range errs {
		if errors.Is(err, ledger.ErrCancelled) || errors.Is(err, ledger.ErrConflict) {
			errs[i] = ledger.ErrLeaseLost // it is not to be begun
		}
	}
	return errs
}

// Renew extends leases.
func (l *Ledger) Renew(ctx context.Context, ttl time.Duration, leases ...*ledger.Lease) []error {
	return l.noteLost(leases, l.about(ctx, "/leases/renew", ttl, leases))
}

// Held reports whether leases are in force.
func (l *Ledger) Held(ctx context.Context, leases ...*ledger.Lease) []error {
	return l.noteLost(leases, l.about(ctx, "/leases/held", 0, leases))
}

// noteLost notes which leases the server does not have any more. Not each of them is reported again: a handler may
// never return.
func (l *Ledger) noteLost(leases []*ledger.Lease, errs []error) []error {
	for i, err := range errs {
		if errors.Is(err, ledger.ErrLeaseLost) {
			l.claims.end(leases[i])
		}
	}
	return errs
}

// about makes a call about leases, in lists that the server takes.
func (l *Ledger) about(ctx context.Context, path string, ttl time.Duration, leases []*ledger.Lease) (errs []error) {
	for part := range parts(leases, lending.MaxLeases, func(*ledger.Lease) int { return 0 }) {
		in := lending.Renewal{Tokens: tokens(part)}
		if ttl > 0 {
			in.Lease = seconds(ttl)
		}
		answers, err := l.answers(ctx, leaseTime, path, in, part)
		for i := range part {
			switch {
			case err != nil:
				errs = append(errs, err)
			case answers[i].Cancel:
				errs = append(errs, ledger.ErrCancelled)
			default:
				errs = append(errs, reason(answers[i]))
			}
		}
	}
	return errs
}

func tokens(leases []*ledger.Lease) []string {
	all := make([]string, len(leases))
	for i, ls := range leases {
		all[i] = ls.FullToken()
	}
	return all
}

// answers makes a call that has an answer for each lease. A server that refuses the only lease of a list refuses the
// call.
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

// reason is the error of an answer.
func reason(a lending.LeaseAnswer) error {
	switch {
	case a.Recorded:
		return nil
	case a.Reason == "lease_lost":
		return ledger.ErrLeaseLost
	}
	return errorOf(answer.Problem{Code: a.Reason, Detail: a.Message})
}

// Finish ends leases. An end whose answer was lost is reported again by the worker: it is recognised.
func (l *Ledger) Finish(ctx context.Context, e ...ledger.Ending) (errs []error) {
	at := 0
	for part := range parts(e, lending.MaxLeases, endSize) {
		errs = append(errs, l.finish(ctx, e[at:at+len(part)])...)
		at += len(part)
	}
	for i, err := range errs {
		last := e[i].Result.Code == worker.CodeInvalid // after other refusals the worker reports once more
		if err == nil || errors.Is(err, ledger.ErrLeaseLost) || last && !temporary(err) {
			l.claims.end(e[i].Lease)
		}
	}
	return errs
}

// endSize is how many bytes an end takes, by and large.
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

// finish ends leases by one request, or by several if the server, or a proxy before it, takes less at a time. An end
// that is too large by itself is invalid: the worker then reports that the item has failed.
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
		within = callTime // to send it takes a while
	}
	answers, err := l.answers(ctx, within, "/leases/finish", in, leases)
	if errors.Is(err, errTooLarge) {
		if half := len(e) / 2; half > 0 {
			return append(l.finish(ctx, e[:half]), l.finish(ctx, e[half:])...)
		}
		err = endTooLarge(e[0].Result, err)
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

func endTooLarge(r ledger.Result, err error) error {
	if n := len(r.Emit); n > 0 {
		return &ledger.InvalidError{Field: "emit", Reason: fmt.Sprintf("%d items are more than can be sent at once: %v", n,
			err), Hint: "emit fewer items, or items that emit the rest"}
	}
	return &ledger.InvalidError{Field: "output", Reason: fmt.Sprintf("%d bytes are more than can be sent at once: %v",
		len(r.Output), err)}
}

func ending(e *ledger.Ending) lending.Ending {
	r := e.Result
	out := lending.Ending{Token: e.Lease.FullToken(), Outcome: r.Outcome, Output: exact(r.Output), Code: r.Code,
		Error: r.Error, Final: r.Final, Delay: r.Delay.Seconds(), AtMost: r.AtMost, Log: r.Log, Worker: r.Worker,
		NoReport: r.NoReport, Tallied: true}
	for _, it := range r.Emit {
		parent, state := tracing.Split(it.Trace)
		out.Emit = append(out.Emit, answer.Addition{Kind: it.Kind, Scope: it.Scope, Key: it.Key, Fingerprint: it.Fingerprint,
			Payload: exact(it.Payload), ShardKey: it.ShardKey, Priority: it.Priority, Due: it.Due, Every: it.Every,
			Zone: it.Zone, Source: it.Source, Given: it.Given,
			Traceparent: parent, Tracestate: state})
	}
	return out
}

// exact are bytes that arrive as they are: JSON that is written so anyway stays JSON.
func exact(b []byte) report.Bytes {
	if len(b) == 0 || bytes.ContainsAny(b, "<>&") {
		return base64Bytes(b)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, b) != nil || !bytes.Equal(compact.Bytes(), b) || bytes.HasPrefix(b, []byte(`{"base64"`)) {
		return base64Bytes(b)
	}
	return b
}

func base64Bytes(b []byte) report.Bytes {
	if len(b) == 0 {
		return nil
	}
	return ledger.JSON(map[string][]byte{"base64": b})
}

// Lease is the lease that a short token names.
func (l *Ledger) Lease(ctx context.Context, id, attempt int64) (*ledger.Lease, error) {
	called := time.Now()
	out, err := look(ctx, l, calls.Lease, calls.LeaseIn{ID: id, Attempt: attempt})
	if err != nil {
		return nil, err
	}
	ls := &ledger.Lease{Item: out.Item, Agent: out.Agent, StartedAt: out.StartedAt, ExpiresAt: out.Expires,
		Alone: out.Alone}
	return ls, ls.Take(out.Token, "", called, 0)
}
