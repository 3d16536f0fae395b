package lending

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

const (
	recorders = 2       // calls of the ledger that record ends at the same time
	maxBytes  = 1 << 20 // of outputs and logs that one call records
)

// finishing is a call of Finish that waits until its ends are recorded.
type finishing struct {
	by       Caller
	endings  []Ending
	bytes    int // of outputs, logs and emitted items
	answers  []LeaseAnswer
	recorded chan struct{} // closed when answers is set
}

// Finish ends leases. Ends that arrive during a recording are recorded together, in one commit.
func (d *Lender) Finish(ctx context.Context, by Caller, e []Ending) (LeaseAnswers, error) {
	if err := countLeases(len(e)); err != nil {
		return LeaseAnswers{}, err
	}
	f := &finishing{by: by, endings: e, recorded: make(chan struct{})}
	parent, state := tracing.Split(tracing.Of(ctx))
	for i := range e {
		f.bytes += len(e[i].Output) + len(e[i].Log)
		for k := range e[i].Emit {
			it := &e[i].Emit[k]
			if f.bytes += len(it.Payload) + len(it.Key); it.Traceparent == "" {
				it.Traceparent, it.Tracestate = parent, state
			}
		}
	}
	d.mu.Lock()
	d.finishing = append(d.finishing, f)
	if d.recording < recorders {
		d.recording++
		go d.record()
	}
	d.mu.Unlock()
	<-f.recorded
	return answers(f.answers)
}

// record records ends until no more wait. It records those of several requests, so it has the context of none.
func (d *Lender) record() {
	for {
		d.mu.Lock()
		together := d.together()
		if len(together) == 0 {
			d.recording--
			d.mu.Unlock()
			return
		}
		d.mu.Unlock()
		d.recordAll(context.Background(), together)
		for _, f := range together {
			close(f.recorded)
		}
	}
}

// recordAll records ends by one call of the ledger. An end may be refused because of another one in the same
// transaction. So the refused ends of each request are recorded once more, apart from those of other requests.
func (d *Lender) recordAll(ctx context.Context, together []*finishing) {
	var asked []ask
	var endings []Ending
	for _, f := range together {
		for _, e := range f.endings {
			asked, endings = append(asked, ask{f.by, e.Token, e.Emit}), append(endings, e)
		}
	}
	all := d.each(ctx, asked, true, func(ctx context.Context, found []*named) { d.end(ctx, endings, found) })
	for _, f := range together {
		n := len(f.endings)
		f.answers, all = all[:n:n], all[n:]
		if len(together) == 1 {
			continue
		}
		again, places := &finishing{by: f.by}, []int(nil)
		for i, a := range f.answers {
			if refused(a) {
				again.endings, places = append(again.endings, f.endings[i]), append(places, i)
			}
		}
		if len(places) > 0 {
			d.recordAll(ctx, []*finishing{again})
		}
		for i, place := range places {
			f.answers[place] = again.answers[i]
		}
	}
}

// refused reports whether the ledger refused an end, perhaps because of another one in the same call.
func refused(a LeaseAnswer) bool {
	return a.err != nil && !errors.Is(a.err, ledger.ErrUnavailable) && !errors.Is(a.err, ledger.ErrLeaseLost)
}

// together takes the first waiting requests, as many as one call of the ledger can record. No two of them have a token
// in common, because the second may be a repetition of the first. The caller holds mu.
func (d *Lender) together() []*finishing {
	tokens := map[string]bool{}
	bytes, n := 0, 0
	for _, f := range d.finishing {
		bytes += f.bytes
		twice := slices.ContainsFunc(f.endings, func(e Ending) bool { return tokens[e.Token] })
		if n > 0 && (twice || bytes > maxBytes || len(tokens)+len(f.endings) > MaxLeases) {
			break
		}
		for _, e := range f.endings {
			tokens[e.Token] = true
		}
		n++
	}
	taken := d.finishing[:n:n]
	d.finishing = d.finishing[n:]
	return taken
}

// end ends the leases that were found. e are all ends of the requests.
func (d *Lender) end(ctx context.Context, e []Ending, found []*named) {
	endings := make([]ledger.Ending, len(found))
	for i, n := range found {
		endings[i] = ledger.Ending{Lease: n.lease, Result: e[n.index].result()}
	}
	for i, err := range d.ledger.Finish(ctx, endings...) {
		n := found[i]
		n.err = err
		n.Outcome, n.State, n.RoundState = endings[i].Recorded, endings[i].State, endings[i].Round
		if err == nil {
			d.granted.drop(n.Token)
		}
		if err == nil && !e[n.index].Tallied {
			d.sums.Add(endings[i].Tally(time.Now().Add(time.Duration(d.behind.Load()))))
		}
	}
}
