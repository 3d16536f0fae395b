package lending_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/ledger"
)

// TestTraceOfEmitted: an item that is added with an end has the trace of its parent, also after a restart.
func TestTraceOfEmitted(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		_, err := r.l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "a", Trace: trace})
		r.ok(err)
		ended, err := r.Finish(t.Context(), anyone, []lending.Ending{{Token: r.claim("w", 1)[0].Token,
			Emit: []answer.Addition{{Kind: "k", Key: "b"}}}})
		r.ok(err)
		if !ended.Answers[0].Recorded {
			t.Fatalf("%+v", ended)
		}
		if b := r.claim("w", 1)[0]; b.Traceparent != trace {
			t.Errorf("the trace is %q", b.Traceparent)
		}
	})
}

// TestGranted: a lease that this server has granted is not read for a renewal, a start or an end. One that it has
// forgotten is.
func TestGranted(t *testing.T) {
	r := newRig(t, inMemory)
	keys := make([]string, 2*lending.MaxGranted+2)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	for i := 0; i < len(keys); i += 1000 {
		r.add("k", keys[i:min(i+1000, len(keys))]...)
	}
	first := tokens(r.claim("w", 2))
	work := func(token string) {
		t.Helper()
		one := lending.Renewal{Tokens: []string{token}}
		for _, do := range []func(context.Context, lending.Caller, lending.Renewal) (lending.LeaseAnswers, error){
			r.Renew, r.Start,
			func(ctx context.Context, by lending.Caller, _ lending.Renewal) (lending.LeaseAnswers, error) {
				return r.Finish(ctx, by, []lending.Ending{{Token: token}})
			}} {
			if got, err := do(t.Context(), anyone, one); err != nil || !got.Answers[0].Recorded {
				t.Fatalf("%+v, %v", got, err)
			}
		}
	}
	work(first[0])
	if n := r.store.reads.Load(); n != 0 {
		t.Errorf("%d reads of a lease that was just granted", n)
	}
	if a := r.finish(first[0])[0]; !a.Recorded || r.store.reads.Load() != 1 {
		t.Errorf("%+v after %d reads: an end that is reported twice", a, r.store.reads.Load())
	}
	for left := len(keys) - len(first); left > 0; left -= 1000 {
		r.claim("w", min(left, 1000))
	}
	if work(first[1]); r.store.reads.Load() != 4 {
		t.Errorf("%d reads, want 4: a lease from before two generations was kept", r.store.reads.Load())
	}
}
