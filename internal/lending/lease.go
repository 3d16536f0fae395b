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
	Delay   float64        `json:"delay_s,omitempty" jsonschema:"of failed and snoozed: not before so many seconds"`
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
	return d.extend(ctx, by, r, func(ctx context.Context, ttl time.Duration, of []*named) {
		ends, errs := d.ledger.Extend(ctx, ttl, leases(of)...)
		for i, h := range of {
			h.err = errs[i]
			h.Expires = report.Time(ends[i])
			if h.Cancel = errors.Is(h.err, ledger.ErrCancelled); h.Cancel {
				h.err = nil
			}
		}
	})
}

// Held answers whether leases are still held, and extends none.
func (d *Lender) Held(ctx context.Context, by Caller, tokens []string) (LeaseAnswers, error) {
	return d.extend(ctx, by, Renewal{Tokens: tokens}, func(ctx context.Context, _ time.Duration, of []*named) {
		for i, err := range d.ledger.Held(ctx, leases(of)...) {
			if of[i].err = err; errors.Is(err, ledger.ErrCancelled) {
				of[i].Cancel, of[i].err = true, nil
			}
		}
	})
}

// Start marks leases as started and extends them. It refuses a cancelled item.
func (d *Lender) Start(ctx context.Context, by Caller, r Renewal) (LeaseAnswers, error) {
	return d.extend(ctx, by, r, func(ctx context.Context, ttl time.Duration, of []*named) {
		var refused []*named
		for i, err := range d.ledger.Start(ctx, ttl, leases(of)...) {
			if of[i].err = err; err != nil {
				refused = append(refused, of[i])
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

// extend calls do with the leases of a renewal.
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
	return answers(d.each(ctx, asked, false, func(ctx context.Context, of []*named) { do(ctx, ttl, of) }))
}

// Release hands leases back undone. This counts as no failure.
func (d *Lender) Release(ctx context.Context, by Caller, tokens []string) (LeaseAnswers, error) {
	e := make([]Ending, len(tokens))
	for i, token := range tokens {
		e[i] = Ending{Token: token, Outcome: ledger.OutcomeReleased}
	}
	return d.Finish(ctx, by, e)
}

func (e *Ending) result() ledger.Result {
	delay := min(max(e.Delay, -1), bounds.MaxDelay.Seconds()+1) // a value out of bounds stays out of bounds
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

// named is a lease that a caller has named by its token and may end.
type named struct {
	*LeaseAnswer
	index int // of the token
	lease *ledger.Lease
}

func leases(of []*named) []*ledger.Lease {
	all := make([]*ledger.Lease, len(of))
	for i, h := range of {
		all[i] = h.lease
	}
	return all
}

// ask is a token with the caller that names it.
type ask struct {
	by    Caller
	token string
	emit  []answer.Addition // items that are added with the end
}

// each looks up the leases of tokens, calls do with them, and answers for each token. ended includes leases that are
// not in force any more.
func (d *Lender) each(ctx context.Context, asked []ask, ended bool, do func(context.Context,
	[]*named)) []LeaseAnswer {
	ctx, cancel := call(ctx)
	defer cancel()
	all, tokens := make([]LeaseAnswer, len(asked)), make([]string, len(asked))
	for i, k := range asked {
		tokens[i] = k.token
	}
	var of []*named
	found, errs := d.find(ctx, tokens, ended)
	for i, k := range asked {
		a := &all[i]
		switch a.Token, a.err = k.token, errs[i]; {
		case errors.Is(a.err, errOneOfMany):
		case errors.Is(a.err, ledger.ErrLeaseLost):
			a.err = &ledger.Error{Kind: ledger.ErrLeaseLost, Message: "no claim in this ledger has had this token",
				Hint: "claim again"}
		case a.err != nil:
		case !k.by.May(found[i].Kind, found[i].Agent):
			a.err = failure.New(failure.ExitDenied, "scope", "the lease is of a kind or an agent that this caller may not work",
				"use the access token with which it was claimed")
		case slices.ContainsFunc(k.emit, func(n answer.Addition) bool { return !k.by.May(n.Kind, found[i].Agent) }):
			a.err = failure.New(failure.ExitDenied, "scope", "it emits items of a kind that this caller may not work",
				"use an access token that has the kinds which are emitted, too")
		default:
			a.drain = d.drains(found[i].Agent)
			of = append(of, &named{a, i, found[i]})
		}
	}
	if len(of) > 0 {
		do(ctx, of)
	}
	d.nameHolders(ctx, of)
	return all
}

// find looks up the leases of tokens; with ended also those that have ended. Without it, a lease that is not in force
// is lost, and only the first few of these are looked up: a long list of lost leases must not take too much time.
func (d *Lender) find(ctx context.Context, tokens []string, ended bool) ([]*ledger.Lease, []error) {
	if ended {
		return d.ledger.LeasesOf(ctx, tokens...)
	}
	found, errs := d.ledger.LeasesHeld(ctx, tokens...)
	looked := 0
	for i, err := range errs {
		switch {
		case !errors.Is(err, ledger.ErrLeaseLost):
		case looked == mostNamed:
			errs[i] = errOneOfMany
		default:
			looked++
			one, err := d.ledger.LeasesOf(ctx, tokens[i])
			found[i], errs[i] = one[0], err[0]
		}
	}
	return found, errs
}

// mostNamed is for how many lost leases of one call the present holders are looked up.
const mostNamed = 10

// errOneOfMany is the error for a lost lease beyond mostNamed, without the present holder.
var errOneOfMany error = &ledger.Error{Kind: ledger.ErrLeaseLost, Message: "the lease was lost", Hint: "claim again"}

// answers completes the answers of one call. It returns an error if nothing was recorded because the ledger is
// unavailable.
func answers(each []LeaseAnswer) (LeaseAnswers, error) {
	all := LeaseAnswers{Answers: each}
	away := 0
	for i := range each {
		a := &each[i]
		all.Drain = all.Drain || a.drain
		if a.Recorded = a.err == nil; a.Recorded {
			continue
		}
		f := failure.Explain(a.err)
		if a.Reason, a.Message = f.Code, f.Message; errors.Is(a.err, ledger.ErrUnavailable) {
			away++
		}
	}
	if away == len(each) {
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

// nameHolders adds to lost leases which agent has the item now.
func (d *Lender) nameHolders(ctx context.Context, of []*named) {
	var gone []*named
	var tokens []string
	for _, h := range of {
		if errors.Is(h.err, ledger.ErrLeaseLost) && len(gone) < mostNamed {
			gone, tokens = append(gone, h), append(tokens, h.Token)
		}
	}
	if len(gone) == 0 {
		return
	}
	now, errs := d.ledger.LeasesOf(ctx, tokens...)
	for i, h := range gone {
		if errs[i] != nil { // pruned meanwhile, or the ledger is unavailable: the lease is lost anyway
			continue
		}
		it := now[i].Item
		text := fmt.Sprintf("item %d is %s", it.ID, it.State)
		if h.State = it.State; it.State == ledger.StateLeased {
			h.Holder = it.Agent
			text = fmt.Sprintf("agent %s holds item %d until %s", it.Agent, it.ID, it.ExpiresAt.UTC().Format(time.RFC3339))
		}
		h.err = &ledger.Error{Kind: ledger.ErrLeaseLost, Message: "the lease was lost: " + text,
			Hint: "the work is not in the ledger; claim again"}
	}
}

// leaseTime returns how long leases last.
func leaseTime(lease int) (time.Duration, error) {
	const least, most = int(bounds.MinTTL / time.Second), int(bounds.MaxTTL / time.Second)
	lease = cmp.Or(lease, int(bounds.DefaultTTL/time.Second))
	if lease < least || lease > most {
		return 0, &ledger.InvalidError{Field: "lease_s", Reason: fmt.Sprintf("%d, must be %d … %d", lease, least, most)}
	}
	return time.Duration(lease) * time.Second, nil
}
