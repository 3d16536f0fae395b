package lending

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// Renewal requests that leases are extended, or marked as started.
type Renewal struct {
	Tokens []string `json:"tokens"`
	Lease  int      `json:"lease_s,omitempty" jsonschema:"seconds until the leases end, from now; 60 if it is not given"`
}

// Ending is the result of the attempt of one lease.
type Ending struct {
	Token string `json:"token"`
	// Outcome is an outcome that a holder may report.
	Outcome ledger.Outcome `json:"outcome,omitempty" jsonschema:"done if it is not given" oneof:"done|skipped|failed|snoozed|released|cancelled|unknown|crashed"`
	Output  report.Bytes   `json:"output,omitempty" jsonschema:"the result: any JSON, or {\"base64\": …} of what is none"`
	Code    string         `json:"code,omitempty" jsonschema:"class of the failure, such as http_404"`
	Error   string         `json:"error,omitempty" jsonschema:"text of the failure, or the reason"`
	Final   bool           `json:"final,omitempty" jsonschema:"of a failure: it is not tried again"`
	Delay   float64        `json:"delay_s,omitempty" jsonschema:"of failed and snoozed: not before so many seconds; snoozed without it waits one"`
	AtMost  int            `json:"at_most,omitempty" jsonschema:"of snoozed, with a code: so many in a row are no failure, further ones are"`
	Log     string         `json:"log,omitempty"`
	Worker  string         `json:"worker,omitempty" jsonschema:"what worked on it: NAME@VERSION"`
	// Emit are items that the same transaction adds.
	Emit []answer.Addition `json:"emit,omitempty" jsonschema:"of done and skipped: items that are added with the end"`
	// NoReport means that the handler died or was killed before it could report a result.
	NoReport bool `json:"no_report,omitempty" jsonschema:"of a failure that the handler did not report itself"`
	Tallied  bool `json:"tallied,omitempty" jsonschema:"the caller tallies this end itself, as workers of ledgerd do"`
}

// LeaseAnswer is the answer about one lease.
type LeaseAnswer struct {
	Token string `json:"token"`
	// Recorded means that the ledger has recorded the request.
	Recorded bool `json:"recorded"`
	// Reason is the code of the refusal: lease_lost, conflict, scope, invalid, unavailable.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Holder is the agent that has the item now, if another one has it.
	Holder string `json:"holder,omitempty"`
	// Expires is when the lease ends, after a renewal.
	Expires report.Time `json:"expires_at,omitzero"`
	// Cancel asks the holder to stop: the item was cancelled. The lease continues until it is ended.
	Cancel bool `json:"cancel,omitempty"`
	// Outcome is the recorded outcome. State and RoundState are those of the item after it.
	Outcome    ledger.Outcome    `json:"outcome,omitempty"`
	State      ledger.State      `json:"state,omitempty"`
	RoundState ledger.RoundState `json:"round_state,omitempty"`

	drain bool // its agent is draining
	err   error
}

// Err returns the reason of a refusal; nil if the request was recorded.
func (a LeaseAnswer) Err() error { return a.err }

// LeaseAnswers are in the order of the tokens.
type LeaseAnswers struct {
	Answers []LeaseAnswer `json:"answers"`
	// Drain asks the agent to end these leases and to claim nothing more.
	Drain bool `json:"drain"`
}

// Renew extends leases.
func (d *Lender) Renew(ctx context.Context, by Caller, r Renewal) (LeaseAnswers, error) {
	return d.extend(ctx, by, r, func(ctx context.Context, ttl time.Duration, found []*named) {
		ends, errs := d.ledger.Extend(ctx, ttl, leases(found)...)
		for i, n := range found {
			n.err = errs[i]
			n.Expires = report.Time(ends[i])
			if n.Cancel = errors.Is(n.err, ledger.ErrCancelled); n.Cancel {
				n.err = nil
			}
		}
	})
}

// Held answers whether leases are still held, and extends none.
func (d *Lender) Held(ctx context.Context, by Caller, tokens []string) (LeaseAnswers, error) {
	return d.extend(ctx, by, Renewal{Tokens: tokens}, func(ctx context.Context, _ time.Duration, found []*named) {
		for i, err := range d.ledger.Held(ctx, leases(found)...) {
			if found[i].err = err; errors.Is(err, ledger.ErrCancelled) {
				found[i].Cancel, found[i].err = true, nil
			}
		}
	})
}

// Start marks leases as started and extends them. It refuses a cancelled item.
func (d *Lender) Start(ctx context.Context, by Caller, r Renewal) (LeaseAnswers, error) {
	return d.extend(ctx, by, r, func(ctx context.Context, ttl time.Duration, found []*named) {
		var refused []*named
		for i, err := range d.ledger.Start(ctx, ttl, leases(found)...) {
			if found[i].err = err; err != nil {
				refused = append(refused, found[i])
			}
		}
		if len(refused) == 0 {
			return
		}
		for i, err := range d.ledger.Held(ctx, leases(refused)...) {
			if refused[i].Cancel = errors.Is(err, ledger.ErrCancelled); refused[i].Cancel {
				refused[i].err = failure.New(failure.ExitTaken, "conflict", "the item was cancelled",
					"release the lease instead of beginning")
			}
		}
	})
}

// extend looks up the leases of a renewal and calls do with those that were found.
func (d *Lender) extend(ctx context.Context, by Caller, r Renewal, do func(context.Context, time.Duration, []*named)) (
	LeaseAnswers, error) {
	if err := countLeases(len(r.Tokens)); err != nil {
		return LeaseAnswers{}, err
	}
	ttl, err := leaseTime(r.Lease)
	if err != nil {
		return LeaseAnswers{}, err
	}
	asked := make([]ask, len(r.Tokens))
	for i, token := range r.Tokens {
		asked[i] = ask{by: by, token: token}
	}
	return answers(d.each(ctx, asked, false, func(ctx context.Context, found []*named) { do(ctx, ttl, found) }))
}

// Release hands leases back undone. This counts as no failure.
func (d *Lender) Release(ctx context.Context, by Caller, tokens []string) (LeaseAnswers, error) {
	e := make([]Ending, len(tokens))
	for i, token := range tokens {
		e[i] = Ending{Token: token, Outcome: ledger.OutcomeReleased}
	}
	return d.Finish(ctx, by, e)
}

// result returns an ending in the form of the ledger.
func (e *Ending) result() ledger.Result {
	delay := min(max(e.Delay, -1), bounds.MaxDelay.Seconds()+1) // fits a Duration; out of bounds stays out of bounds
	if delay == 0 && e.Outcome == ledger.OutcomeSnoozed {
		delay = 1 // otherwise the item would come back at once, without end
	}
	return ledger.Result{Outcome: cmp.Or(e.Outcome, ledger.OutcomeDone), Output: e.Output, Code: e.Code, Error: e.Error,
		Final: e.Final, Delay: time.Duration(delay * float64(time.Second)), AtMost: e.AtMost, Log: e.Log, Worker: e.Worker,
		NoReport: e.NoReport, Emit: e.emitted()}
}

// emitted returns the items that are added with the end.
func (e *Ending) emitted() (all []ledger.NewItem) {
	for _, n := range e.Emit {
		all = append(all, n.Item(time.Now()))
	}
	return all
}

// named is a lease that a caller has named by its token and may end, with the answer about it.
type named struct {
	*LeaseAnswer
	index int // of the token in the request
	lease *ledger.Lease
}

func leases(found []*named) []*ledger.Lease {
	all := make([]*ledger.Lease, len(found))
	for i, n := range found {
		all[i] = n.lease
	}
	return all
}

// ask is a request about one lease: its token, and the caller that sent it.
type ask struct {
	by    Caller
	token string
	emit  []answer.Addition // items that are added with the end
}

// each looks up the leases of tokens and calls do with those that the caller may end. It returns an answer for each
// token. With ended, leases that are not in force any more are found, too.
func (d *Lender) each(ctx context.Context, asked []ask, ended bool, do func(context.Context,
	[]*named)) []LeaseAnswer {
	ctx, cancel := call(ctx)
	defer cancel()
	all, tokens := make([]LeaseAnswer, len(asked)), make([]string, len(asked))
	for i, k := range asked {
		tokens[i] = k.token
	}
	var may []*named
	found, errs := d.find(ctx, tokens, ended)
	for i, k := range asked {
		a := &all[i]
		switch a.Token, a.err = k.token, errs[i]; {
		case errors.Is(a.err, errOneOfMany):
		case errors.Is(a.err, ledger.ErrLeaseLost):
			a.err = errUnknown
		case a.err != nil:
		case !k.by.May(found[i].Kind, found[i].Agent):
			a.err = failure.New(failure.ExitDenied, "scope", "the lease is of a kind or an agent that this caller may not work",
				"use the access token with which it was claimed").In("token")
		case slices.ContainsFunc(k.emit, func(n answer.Addition) bool { return !k.by.May(n.Kind, found[i].Agent) }):
			a.err = failure.New(failure.ExitDenied, "scope", "it emits items of a kind that this caller may not work",
				"use an access token that has the kinds which are emitted, too").In("emit")
		default:
			a.drain = d.drains(found[i].Agent)
			may = append(may, &named{a, i, found[i]})
		}
	}
	if len(may) > 0 {
		do(ctx, may)
	}
	d.nameHolders(ctx, may)
	for i := range all {
		if errors.Is(all[i].err, context.DeadlineExceeded) {
			all[i].err = errNoAnswer
		}
	}
	return all
}

// errNoAnswer is the error for a lease if the ledger did not answer in time: the same request may succeed later.
var errNoAnswer error = &ledger.Error{Kind: ledger.ErrUnavailable, Message: "the ledger did not answer in time",
	Hint: "try again"}

// find returns the leases of tokens, and one error per token. It reads those that this server has not granted lately.
func (d *Lender) find(ctx context.Context, tokens []string, ended bool) ([]*ledger.Lease, []error) {
	found, errs := make([]*ledger.Lease, len(tokens)), make([]error, len(tokens))
	var unknown []string
	for i, token := range tokens {
		if found[i] = d.granted.get(token); found[i] == nil {
			unknown = append(unknown, token)
		}
	}
	if len(unknown) == 0 {
		return found, errs
	}
	read, failed := d.read(ctx, unknown, ended)
	for i := range found {
		if found[i] == nil {
			found[i], errs[i], read, failed = read[0], failed[0], read[1:], failed[1:]
		}
	}
	return found, errs
}

// read reads the leases of tokens; with ended also those that have ended. Without ended, a lease that is not in force
// is lost. Only the first maxNamed lost leases are looked up: a long list would take too much time.
func (d *Lender) read(ctx context.Context, tokens []string, ended bool) ([]*ledger.Lease, []error) {
	if ended {
		return d.ledger.LeasesOf(ctx, tokens...)
	}
	found, errs := d.ledger.LeasesHeld(ctx, tokens...)
	looked := 0
	for i, err := range errs {
		switch {
		case !errors.Is(err, ledger.ErrLeaseLost):
		case looked == maxNamed:
			errs[i] = errOneOfMany
		default:
			looked++
			lost, err := d.ledger.LeasesOf(ctx, tokens[i])
			found[i], errs[i] = lost[0], err[0]
		}
	}
	return found, errs
}

// maxNamed bounds the lost leases of one call for which the present holder is looked up.
const maxNamed = 10

// errOneOfMany is the error for a lost lease beyond maxNamed, without the present holder.
var errOneOfMany error = &ledger.Error{Kind: ledger.ErrLeaseLost, Message: "the lease was lost", Hint: "claim again"}

var errUnknown error = &ledger.Error{Kind: ledger.ErrLeaseLost, Message: "this ledger knows no claim with this token",
	Hint: "it has had none, or its history was pruned; claim again"}

// answers completes the answers of one call. It returns an error if nothing was recorded because the ledger is
// unavailable.
func answers(each []LeaseAnswer) (LeaseAnswers, error) {
	all := LeaseAnswers{Answers: each}
	unavailable := 0
	for i := range each {
		a := &each[i]
		all.Drain = all.Drain || a.drain
		if a.Recorded = a.err == nil; a.Recorded {
			continue
		}
		f := failure.Explain(a.err)
		if a.Reason, a.Message = f.Code, f.Message; errors.Is(a.err, ledger.ErrUnavailable) {
			unavailable++
		}
	}
	if unavailable == len(each) {
		return LeaseAnswers{}, each[0].err
	}
	return all, nil
}

func countLeases(n int) error {
	if n < 1 || n > MaxLeases {
		return &ledger.InvalidError{Field: "leases", Reason: fmt.Sprintf("%d, must be 1 … %d", n, MaxLeases)}
	}
	return nil
}

// nameHolders adds the present agent of the item to the answers about lost leases.
func (d *Lender) nameHolders(ctx context.Context, found []*named) {
	var lost []*named
	var tokens []string
	for _, n := range found {
		if errors.Is(n.err, ledger.ErrLeaseLost) && len(lost) < maxNamed {
			lost, tokens = append(lost, n), append(tokens, n.Token)
		}
	}
	if len(lost) == 0 {
		return
	}
	now, errs := d.ledger.LeasesOf(ctx, tokens...)
	for i, n := range lost {
		d.granted.drop(n.Token)
		if errors.Is(errs[i], ledger.ErrLeaseLost) {
			n.err = errUnknown
		}
		if errs[i] != nil { // pruned meanwhile, or the ledger is unavailable: the lease is lost anyway
			continue
		}
		it := now[i].Item
		text := fmt.Sprintf("item %d is %s", it.ID, it.State)
		if n.State = it.State; it.State == ledger.StateLeased {
			n.Holder = it.Agent
			text = fmt.Sprintf("agent %s holds item %d until %s", it.Agent, it.ID, it.ExpiresAt.UTC().Format(time.RFC3339))
		}
		n.err = &ledger.Error{Kind: ledger.ErrLeaseLost, Message: "the lease was lost: " + text,
			Hint: "what was reported before stands, this does not; claim again"}
	}
}

// leaseTime checks a number of seconds and returns it as the duration of a lease.
func leaseTime(lease int) (time.Duration, error) {
	const least, most = int(bounds.MinTTL / time.Second), int(bounds.MaxTTL / time.Second)
	lease = cmp.Or(lease, int(bounds.DefaultTTL/time.Second))
	if lease < least || lease > most {
		return 0, &ledger.InvalidError{Field: "lease_s", Reason: fmt.Sprintf("%d, must be %d … %d", lease, least, most)}
	}
	return time.Duration(lease) * time.Second, nil
}
