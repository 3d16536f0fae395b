package ours

import (
	"context"
	"errors"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// Pause is how long everything is idle before an item is added whose start is measured.
const Pause = 25 * time.Millisecond

// StartLatency adds tries items, one by one, to an idle ledger, and returns how long each took from the call to the
// start of its handler. Unless together is set, the adder opens the ledger separately, as another process would.
func StartLatency(ctx context.Context, on On, tries int, together bool) (took []time.Duration, err error) {
	err = with(ctx, on, func(p *Place, l *ledger.Ledger) (err error) {
		adder := l
		if !together {
			if adder, err = p.Open(ctx); err != nil {
				return err
			}
			defer adder.Close()
		}
		took, err = startLatency(ctx, l, adder, tries)
		return err
	})
	return took, err
}

func startLatency(ctx context.Context, l, adder *ledger.Ledger, tries int) (took []time.Duration, err error) {
	h := make(starts, 1)
	w, err := newWorker(l, h)
	if err != nil {
		return nil, err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	const warmUp = 20
	for i := range warmUp + tries {
		time.Sleep(Pause)
		called := time.Now()
		if _, err := adder.Add(ctx, Items(i, 1)...); err != nil {
			return nil, err
		}
		select {
		case at := <-h:
			if i >= warmUp {
				took = append(took, at.Sub(called))
			}
		case err := <-ended:
			ended <- nil
			return nil, errors.Join(err, errors.New("the worker has ended"))
		}
	}
	return took, nil
}

// starts receives the time at which each item began.
type starts chan time.Time

// Handle implements worker.Handler.
func (s starts) Handle(_ context.Context, _ *ledger.Lease, settle func(ledger.Result)) {
	s <- time.Now()
	settle(ledger.Done(nil))
}
