package ledger_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// The answers of Finish about each ending: how it was recorded, and the state of the item.
func TestEndingTellsWhatBecameOfIt(t *testing.T) {
	type told struct {
		Recorded ledger.Outcome
		State    ledger.State
	}
	failure := ledger.Fail(errors.New("no"))
	tests := []struct {
		name   string
		item   ledger.NewItem
		kind   ledger.Kind
		cancel bool
		result ledger.Result
		want   told
	}{
		{"done", ledger.NewItem{}, ledger.Kind{}, false, ledger.Done(nil), told{ledger.OutcomeDone, ledger.StateDone}},
		{"skipped", ledger.NewItem{}, ledger.Kind{}, false, ledger.Skip("no"), told{ledger.OutcomeSkipped, ledger.StateDone}},
		{"done and due again", ledger.NewItem{Every: "day"}, ledger.Kind{}, false, ledger.Done(nil),
			told{ledger.OutcomeDone, ledger.StateWaiting}},
		{"emitting", ledger.NewItem{}, ledger.Kind{}, false, ledger.Done(nil, ledger.NewItem{Kind: "k", Key: "child"}),
			told{ledger.OutcomeDone, ledger.StateDone}},
		{"failed", ledger.NewItem{}, ledger.Kind{}, false, failure, told{ledger.OutcomeFailed, ledger.StateWaiting}},
		{"failed for good", ledger.NewItem{}, ledger.Kind{MaxFailures: 1}, false, failure, told{ledger.OutcomeFailed,
			ledger.StateDead}},
		{"failed while to be cancelled", ledger.NewItem{}, ledger.Kind{}, true, failure, told{ledger.OutcomeCancelled,
			ledger.StateCancelled}},
		{"done while to be cancelled", ledger.NewItem{}, ledger.Kind{}, true, ledger.Done(nil),
			told{ledger.OutcomeDone, ledger.StateDone}},
		{"in doubt", ledger.NewItem{}, ledger.Kind{}, false, ledger.Doubt(errors.New("?")), told{ledger.OutcomeUnknown,
			ledger.StateDoubt}},
		{"panicked", ledger.NewItem{}, ledger.Kind{OnLost: ledger.OnLostDoubt}, false,
			ledger.Result{Outcome: ledger.OutcomeFailed, NoReport: true}, told{ledger.OutcomeUnknown, ledger.StateDoubt}},
		{"released", ledger.NewItem{}, ledger.Kind{}, false, ledger.Release(), told{ledger.OutcomeReleased,
			ledger.StateReady}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx := context.Background()
			l := ledger.New(memory.New(memory.Options{}), ledger.Options{Jitter: func() float64 { return 1 }})
			tt.kind.Name = "k"
			tt.item.Kind, tt.item.Key = "k", "a"
			must.OK(t, l.SetKind(ctx, "test", tt.kind))
			must.Do(t)(l.Add(ctx, tt.item, ledger.NewItem{Kind: "k", Key: "b"}))
			leases, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "x", Limit: 2, TTL: time.Minute})
			if err != nil || len(leases) != 2 {
				t.Fatalf("claimed %d, %v", len(leases), err)
			}
			if tt.cancel {
				must.Do(t)(l.Cancel(ctx, "test", ledger.IDs(leases[0].ID)))
			}
			for _, again := range []string{"at first", "asked again"} {
				e := []ledger.Ending{{Lease: leases[0], Result: tt.result}, {Lease: leases[1], Result: ledger.Done(nil)}}
				for i, err := range l.Finish(ctx, e...) {
					if err != nil {
						t.Fatalf("%s: ending %d: %v", again, i, err)
					}
				}
				if diff := cmp.Diff(tt.want, told{e[0].Recorded, e[0].State}); diff != "" {
					t.Errorf("%s (-want +got):\n%s", again, diff)
				}
				if diff := cmp.Diff(told{ledger.OutcomeDone, ledger.StateDone}, told{e[1].Recorded, e[1].State}); diff != "" {
					t.Errorf("%s, beside it (-want +got):\n%s", again, diff)
				}
			}
		})
	}
}

func TestHeldTellsAsRenewDoes(t *testing.T) {
	ctx := context.Background()
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	for _, key := range []string{"kept", "cancelled", "lost"} {
		must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: key}))
	}
	leases, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "x", Limit: 3})
	if err != nil || len(leases) != 3 {
		t.Fatalf("claimed %d, %v", len(leases), err)
	}
	must.Do(t)(l.Cancel(ctx, "test", ledger.IDs(leases[1].ID)))
	must.Do(t)(l.ForceRelease(ctx, "test", ledger.IDs(leases[2].ID)))
	want := []error{nil, ledger.ErrCancelled, ledger.ErrLeaseLost}
	for name, got := range map[string][]error{"held": l.Held(ctx, leases...), "renew": l.Renew(ctx, time.Minute,
		leases...)} {
		for i := range want {
			if !errors.Is(got[i], want[i]) {
				t.Errorf("%s: lease of %q: %v, want %v", name, leases[i].Key, got[i], want[i])
			}
		}
	}
}
