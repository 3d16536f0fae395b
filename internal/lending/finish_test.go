package lending_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/lending"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// together ends items one by one while other ends are being recorded, the last one twice. It returns the answers and
// the number of calls of the store.
func together(t *testing.T, store func(*spy) ledger.Store, by func(i int) lending.Caller) (
	answers []lending.LeaseAnswer, calls int) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(*testing.T, func() time.Time) ledger.Store { return memory.New(memory.Options{}) })
		if store != nil {
			r.store.Store = store(r.store)
		}
		const n = 12
		for i := range n {
			r.add("k", string(rune('a'+i)))
		}
		var held []string
		for range n {
			held = append(held, r.claim("w", 1)[0].Token)
		}
		held = append(held, held[n-1])
		free := make(chan struct{})
		r.store.during = func(call string) {
			if call == "complete" {
				<-free
			}
		}
		answers = make([]lending.LeaseAnswer, len(held))
		var all sync.WaitGroup
		for i, token := range held {
			all.Go(func() {
				got, err := r.Finish(t.Context(), by(i), []lending.Ending{{Token: token, Output: []byte("{}")}})
				r.ok(err)
				answers[i] = got.Answers[0]
			})
			synctest.Wait()
		}
		close(free)
		all.Wait()
		calls = r.store.count("complete")
	})
	return answers, calls
}

// TestEndsTogether: ends that arrive during a recording are recorded by few calls, also repeated ones, and each caller
// ends only its own leases.
func TestEndsTogether(t *testing.T) {
	other := lending.Caller{Name: "other", May: func(string, string) bool { return false }}
	answers, calls := together(t, nil, func(i int) lending.Caller {
		if i == 5 {
			return other
		}
		return anyone
	})
	for i, a := range answers {
		if a.Recorded == (i == 5) {
			t.Errorf("end %d: %+v", i, a)
		}
	}
	if answers[5].Reason != "scope" {
		t.Errorf("the end of another: %+v", answers[5])
	}
	if calls > 5 { // two that hang, the waiting ends, the repeated end, and its lookup
		t.Errorf("%d calls", calls)
	}
}

// picky refuses to complete item 7, and all items in the same call.
type picky struct{ ledger.Store }

func (p picky) Complete(ctx context.Context, conn ledger.Conn, c []ledger.Completion) ([]int64, error) {
	for _, one := range c {
		if one.ItemID == 7 {
			return nil, errors.New("item 7 is not to be stored")
		}
	}
	return p.Store.Complete(ctx, conn, c)
}

// TestEndsApart: a refused end does not affect other callers.
func TestEndsApart(t *testing.T) {
	answers, _ := together(t, func(s *spy) ledger.Store { return picky{s.Store} },
		func(int) lending.Caller { return anyone })
	for i, a := range answers {
		if a.Recorded == (i == 6) {
			t.Errorf("end %d: %+v", i, a)
		}
	}
}

// grouped refuses a transaction that adds item "odd", after it has stored completions.
type grouped struct{ ledger.Store }

func (s grouped) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	return s.Store.Update(ctx, conn, func(tx ledger.Tx) error { return fn(oddTx{tx}) })
}

type oddTx struct{ ledger.Tx }

func (t oddTx) EnsureKinds(names []string) error {
	if slices.Contains(names, "odd") {
		return fmt.Errorf("%w: kind odd", ledger.ErrDenied)
	}
	return t.Tx.EnsureKinds(names)
}

// TestEndsOfOneTransaction: of ends that are recorded in one transaction only the one that cannot be is refused. An
// emitted item has the trace of its own request.
func TestEndsOfOneTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inMemory)
		r.store.Store = grouped{r.store.Store}
		r.add("k", "a", "b", "c", "d", "e", "f")
		held := tokens(r.claim("w", 6))
		free := make(chan struct{})
		r.store.during = func(call string) {
			if call == "complete" {
				<-free
			}
		}
		const trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		answers := make([]lending.LeaseAnswer, len(held))
		var all sync.WaitGroup
		for i, token := range held {
			e := lending.Ending{Token: token}
			ctx := tracing.Into(t.Context(), trace)
			switch i {
			case 3:
				e.Outcome = ledger.OutcomeFailed
			case 4:
				e.Emit = []answer.Addition{{Kind: "odd", Key: "x"}}
			case 5:
				e.Emit, ctx = []answer.Addition{{Kind: "k", Key: "g"}}, t.Context()
			}
			all.Go(func() {
				got, err := r.Finish(ctx, anyone, []lending.Ending{e})
				if err == nil {
					answers[i] = got.Answers[0]
				}
			})
			synctest.Wait()
		}
		close(free)
		all.Wait()
		for i, a := range answers {
			if a.Recorded == (i == 4) {
				t.Errorf("end %d: %+v", i, a)
			}
		}
		if g := r.claim("w", 1)[0]; g.Key != "g" || g.Traceparent != "" {
			t.Errorf("%+v", g)
		}
	})
}

// mute is a store that does not answer.
type mute struct{ ledger.Store }

func (mute) Complete(ctx context.Context, _ ledger.Conn, _ []ledger.Completion) ([]int64, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (mute) Renew(ctx context.Context, _ time.Duration, _ []ledger.LeaseRef) ([]ledger.Renewal, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestNoAnswer: if the ledger does not answer in time, it is unavailable, also for several leases: nothing was refused.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inMemory)
		r.add("k", "a", "b")
		held := tokens(r.claim("w", 2))
		r.store.Store = mute{r.store.Store}
		_, ended := r.Finish(t.Context(), anyone, []lending.Ending{{Token: held[0]}, {Token: held[1]}})
		_, renewed := r.Renew(t.Context(), anyone, lending.Renewal{Tokens: held})
		for _, err := range []error{ended, renewed} {
			if !errors.Is(err, ledger.ErrUnavailable) {
				t.Errorf("got %v", err)
			}
		}
	})
}
