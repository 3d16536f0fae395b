package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// endless is a store with no end of ready items that costs nothing, to see what the worker costs.
type endless struct {
	ledger.Store // what is not used here
	next, ended  atomic.Int64
	most         int64
	over         chan struct{}
}

func (s *endless) Claim(_ context.Context, g ledger.Grant) (ledger.Claimed, error) {
	n := min(int64(g.Limit), s.most-s.next.Load())
	if n <= 0 {
		return ledger.Claimed{}, nil
	}
	first := s.next.Add(n) - n
	now := time.Now()
	recs := make([]ledger.Record, n)
	works := make([]ledger.Work, n)
	for i := range recs {
		works[i] = ledger.Work{State: ledger.StateLeased, Due: now, Attempt: 1, Agent: g.Agent, LockID: g.LockID, LeasedAt: now, ExpiresAt: now.Add(g.TTL)}
		recs[i] = ledger.Record{ID: first + int64(i) + 1, Identity: ledger.Identity{Kind: g.Kind, Key: "k"}, Epoch: 1, Work: &works[i]}
	}
	return ledger.Claimed{Records: recs}, nil
}

func (s *endless) Complete(_ context.Context, _ ledger.Conn, c []ledger.Completion) ([]int64, error) {
	ids := make([]int64, len(c))
	for i := range c {
		ids[i] = c[i].ItemID
	}
	if s.ended.Add(int64(len(c))) == s.most {
		close(s.over)
	}
	return ids, nil
}

func (s *endless) Renew(_ context.Context, _ time.Duration, leases []ledger.LeaseRef) ([]ledger.Renewal, error) {
	all := make([]ledger.Renewal, len(leases))
	for i, l := range leases {
		all[i].LeaseRef = l
	}
	return all, nil
}

func (s *endless) Holders(context.Context, []int64) ([]ledger.Renewal, error) { return nil, nil }
func (s *endless) Promote(context.Context, int) ([]string, time.Time, error) {
	return nil, time.Time{}, nil
}
func (s *endless) Update(context.Context, ledger.Conn, func(ledger.Tx) error) error { return nil }
func (s *endless) Kinds(context.Context) ([]ledger.Kind, error)                     { return nil, nil }
func (s *endless) Beat(context.Context, ledger.Agent, time.Duration) error          { return nil }
func (s *endless) Agents(context.Context) ([]ledger.Agent, error)                   { return nil, nil }
func (s *endless) Heartbeats(context.Context) ([]ledger.Agent, error)               { return nil, nil }
func (s *endless) Watch(ctx context.Context, _ func(string))                        { <-ctx.Done() }

// BenchmarkOverhead is what an item costs in the worker alone: the handler and the store do
// nothing.
func BenchmarkOverhead(b *testing.B) {
	for name, timeout := range map[string]time.Duration{"plain": 0, "timeout": time.Minute} {
		b.Run(name, func(b *testing.B) {
			s := &endless{most: int64(b.N), over: make(chan struct{})}
			w, err := New(Config{
				Ledger:   ledger.New(s, ledger.Options{}),
				Handlers: map[string]Handler{"k": Func(func(context.Context, *ledger.Lease) ledger.Result { return ledger.Done(nil) })},
				Kinds:    map[string]KindConfig{"k": {Timeout: timeout}},
			})
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			go func() { <-s.over; cancel() }()
			b.ReportAllocs()
			b.ResetTimer()
			if err := w.Run(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "items/s")
		})
	}
}
