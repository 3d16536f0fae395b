package sdk

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func TestBatchShape(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		p := NewBatch("p", "0.1.0", func(_ context.Context, _ *struct{}, b *Batch[task1, int]) error {
			sizes = append(sizes, len(b.Items))
			time.Sleep(time.Second)
			for i := range b.Items {
				b.Settle(i, i, nil)
			}
			return nil
		})
		p.Concurrency, p.MaxBatch, p.MaxWait = 1, 10, 20*time.Millisecond
		l := serve(t, p, &wire.ConfigureRequest{})
		began := time.Now()
		l.send(item(1, `{}`), item(2, `{}`))
		l.until(2)
		// Alone, two wait for others; the result waits for none.
		if took := time.Since(began); took != time.Second+20*time.Millisecond {
			t.Error("two items took", took)
		}
		for i := range int64(15) {
			l.send(item(10+i, `{}`))
		}
		began = time.Now()
		l.until(17)
		if took := time.Since(began); took < 2*time.Second || took > 2*time.Second+40*time.Millisecond {
			t.Error("fifteen items took", took)
		}
		if diff := cmp.Diff([]int{2, 10, 5}, sizes); diff != "" {
			t.Error(diff)
		}
		must.OK(t, l.close())
	})
}

func TestBatchSettle(t *testing.T) {
	p := NewBatch("p", "0.1.0", func(_ context.Context, _ *struct{}, b *Batch[task1, string]) error {
		var wg sync.WaitGroup
		for i, it := range b.Items {
			switch it.Payload.Do {
			case "settle":
				wg.Go(func() { b.Settle(i, "mine", nil) })
			case "twice":
				b.Settle(i, "", Permanent(errBoom))
				b.Settle(i, "second", nil)
			}
		}
		wg.Wait()
		return Code("rest", RetryAfter(time.Second, errors.New("the rest")))
	})
	p.MaxBatch, p.MaxWait = 5, time.Hour
	l := serve(t, p, &wire.ConfigureRequest{Concurrency: 1})
	l.send(item(1, do("settle")), item(2, do("twice")), item(3, do("")), item(4, `{"wrong":1}`), item(5, do("settle")))
	l.until(5)
	type short struct {
		Outcome wire.Result_Outcome
		Final   bool
		Delay   int64
		Code    string
		Output  string
	}
	want := map[int64]short{
		1: {wire.Result_OUTCOME_DONE, false, 0, "", `"mine"`},
		2: {wire.Result_OUTCOME_FAILED, true, 0, "", ""},
		3: {wire.Result_OUTCOME_FAILED, false, 1000, "rest", ""},
		4: {wire.Result_OUTCOME_FAILED, true, 0, "payload", ""},
		5: {wire.Result_OUTCOME_DONE, false, 0, "", `"mine"`},
	}
	got := map[int64]short{}
	for id, r := range l.results {
		got[id] = short{r.Outcome, r.Final, r.DelayMs, r.Code, string(r.Output)}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	must.OK(t, l.close())
}

// An item that the function has not settled has failed.
func TestBatchForgets(t *testing.T) {
	p := NewBatch("p", "0.1.0", func(_ context.Context, _ *struct{}, b *Batch[task1, string]) error { return nil })
	l := serve(t, p, &wire.ConfigureRequest{})
	l.send(item(1, do("")))
	l.until(1)
	if r := l.results[1]; r.Outcome != wire.Result_OUTCOME_FAILED || r.Code != "unsettled" {
		t.Error(r)
	}
	must.OK(t, l.close())
}

// A session that ends while a batch is filled begins none of its items: the host gives them to others.
func TestBatchAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewBatch("p", "0.1.0", func(_ context.Context, _ *struct{}, b *Batch[task1, string]) error {
			t.Errorf("%d items were begun", len(b.Items))
			return nil
		})
		p.MaxWait = time.Hour
		l := serve(t, p, &wire.ConfigureRequest{Concurrency: 1})
		l.send(item(1, `{}`))
		synctest.Wait()
		l.cancel()
		<-l.served
		synctest.Wait()
	})
}

// The context of a batch ends when all items that are not settled were told to end, or with the timeout.
func TestBatchContext(t *testing.T) {
	tests := []struct {
		name    string
		first   int64 // cancelled before the others are settled
		settle  []int
		cancel  []int64
		timeout int64
		want    error
	}{
		{"all cancelled", 0, nil, []int64{1, 2, 3}, 0, ErrCancelled},
		{"the rest cancelled", 0, []int{0}, []int64{2, 3}, 0, ErrCancelled},
		{"one cancelled, then the rest settled", 1, []int{1, 2}, nil, 0, ErrCancelled},
		{"one cancelled, then all settled", 1, []int{0, 1, 2}, nil, 100, context.DeadlineExceeded},
		{"some cancelled", 0, nil, []int64{1, 2}, 100, context.DeadlineExceeded},
		{"all settled", 0, []int{0, 1, 2}, nil, 100, context.DeadlineExceeded},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cause error
				p := NewBatch("p", "0.1.0", func(ctx context.Context, _ *struct{}, b *Batch[task1, string]) error {
					if test.first > 0 {
						<-b.Context(int(test.first) - 1).Done()
						time.Sleep(time.Millisecond) // of the bubble: until all that follows from the cancel has happened
					}
					for _, i := range test.settle {
						b.Settle(i, "", nil)
					}
					<-ctx.Done()
					cause = context.Cause(ctx)
					for _, id := range test.cancel {
						if c := context.Cause(b.Context(int(id) - 1)); c != ErrCancelled {
							t.Errorf("item %d: %v", id, c)
						}
					}
					return errBoom
				})
				p.MaxBatch = 3
				l := serve(t, p, &wire.ConfigureRequest{Concurrency: 1})
				items := []*wire.Item{item(1, `{}`), item(2, `{}`), item(3, `{}`)}
				for _, it := range items {
					it.TimeoutMs = test.timeout
				}
				l.send(items...)
				synctest.Wait()
				if test.first > 0 {
					l.cancelItem(test.first, wire.Cancel_REASON_CANCELLED)
				}
				for _, id := range test.cancel {
					l.cancelItem(id, wire.Cancel_REASON_CANCELLED)
				}
				l.until(3)
				if err := l.close(); err != nil {
					t.Error(err)
				}
				if !errors.Is(cause, test.want) {
					t.Errorf("%v, want %v", cause, test.want)
				}
			})
		})
	}
}
