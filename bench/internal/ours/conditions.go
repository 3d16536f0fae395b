package ours

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/ledger"
)

// Standing is a ledger that lives as long as a scenario, filled before its first round.
type Standing struct {
	*Place
	Ledger *ledger.Ledger
	added  int
}

// NewStanding makes and fills a ledger; fill may be nil.
func NewStanding(ctx context.Context, on On, fill func(*Place) error) (*Standing, error) {
	p, err := on(ctx)
	if err != nil {
		return nil, err
	}
	s := &Standing{Place: p}
	if s.Ledger, err = p.Open(ctx); err != nil {
		return nil, errors.Join(err, p.Remove())
	}
	if fill != nil {
		if err := fill(p); err != nil {
			return nil, errors.Join(err, s.Close())
		}
	}
	return s, nil
}

// Lease claims up to so many items of each kind, for ten hours.
func (s *Standing) Lease(ctx context.Context, items int) error {
	kinds, err := s.Ledger.Kinds(ctx)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		ask := ledger.Claim{Kind: k.Name, Agent: "host/1/a", Limit: items, TTL: 10 * time.Hour}
		if _, err := s.Ledger.Claim(ctx, ask); err != nil {
			return err
		}
	}
	return nil
}

// Close closes and removes the ledger.
func (s *Standing) Close() error { return errors.Join(s.Ledger.Close(), s.Remove()) }

// Drain adds n more items and measures how fast they are drained.
func (s *Standing) Drain(ctx context.Context, n int) (perSecond float64, err error) {
	if _, err := Add(ctx, s.Ledger, s.added, n, 1); err != nil {
		return 0, err
	}
	s.added += n
	if err := s.Settle(ctx); err != nil {
		return 0, err
	}
	return Drain(ctx, s.Ledger, Function{}, n)
}

// lateEvery is how often an item of higher priority is added while a backlog is drained.
const lateEvery = 100 * time.Millisecond

// DrainWithLate drains n items while items of higher priority are added. With pinned, another transaction is open since
// before the drain, so that the server cannot vacuum the rows of finished items. It returns the rate, and how long each
// late item took from the call that added it to the start of its handler.
func DrainWithLate(ctx context.Context, on On, n int, pinned bool) (perSecond float64, late []time.Duration,
	err error) {
	err = with(ctx, on, func(p *Place, l *ledger.Ledger) error {
		if _, err := Add(ctx, l, 0, n, 2); err != nil {
			return err
		}
		if err := p.Settle(ctx); err != nil {
			return err
		}
		if pinned {
			unpin, err := p.pin(ctx)
			if err != nil {
				return err
			}
			defer unpin()
		}
		perSecond, late, err = drainWithLate(ctx, l, n)
		return err
	})
	return perSecond, late, err
}

// pin opens a transaction with a snapshot and an id, and leaves it idle.
func (p *Place) pin(ctx context.Context) (unpin func(), err error) {
	conn, err := pgx.Connect(ctx, p.url)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{"BEGIN ISOLATION LEVEL REPEATABLE READ", "SELECT pg_current_xact_id()"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			conn.Close(ctx)
			return nil, err
		}
	}
	return func() { conn.Close(context.WithoutCancel(ctx)) }, nil
}

func drainWithLate(ctx context.Context, l *ledger.Ledger, n int) (perSecond float64, late []time.Duration, err error) {
	h := &lateHandler{called: map[string]time.Time{}}
	adding, stop := context.WithCancel(ctx)
	defer stop()
	g, group := errgroup.WithContext(ctx)
	g.Go(func() error {
		tick := time.NewTicker(lateEvery)
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-adding.Done():
				return nil
			case <-tick.C:
			}
			item := ledger.NewItem{Kind: Kind, Key: fmt.Sprintf("/late/%d", i), Payload: Payload(i), Priority: -2}
			h.call(item.Key)
			if _, err := l.Add(group, item); err != nil {
				return err
			}
		}
	})
	w, err := newWorker(l, h)
	if err != nil {
		return 0, nil, err
	}
	h.left, h.stop = n, stop
	began := time.Now()
	_, err = w.Drain(ctx, 0)
	stop()
	if err := errors.Join(err, g.Wait()); err != nil {
		return 0, nil, err
	}
	if h.left > 0 {
		return 0, nil, fmt.Errorf("%d of %d items not done", h.left, n)
	}
	if len(h.late) == 0 {
		return 0, nil, fmt.Errorf("the drain of %d items ended before an item of higher priority began: measure with more", n)
	}
	return float64(n) / h.ended.Sub(began).Seconds(), h.late, nil
}

// lateHandler does nothing but note the times of late items. The last of the other items ends the adding of late items.
type lateHandler struct {
	mu     sync.Mutex
	called map[string]time.Time
	late   []time.Duration
	left   int
	stop   func()
	ended  time.Time
}

func (h *lateHandler) call(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.called[key] = time.Now()
}

// Handle implements worker.Handler.
func (h *lateHandler) Handle(_ context.Context, lease *ledger.Lease, settle func(ledger.Result)) {
	h.mu.Lock()
	if at, ok := h.called[lease.Key]; ok {
		h.late = append(h.late, time.Since(at))
	} else if h.left--; h.left == 0 {
		h.ended = time.Now()
		h.stop()
	}
	h.mu.Unlock()
	settle(ledger.Done(nil))
}

// FirstClaim polls an empty ledger polls times and adds n items. It returns how long the first claim and the first
// finish of batch items take, on the connections that polled. On Postgres nothing is analysed in between.
func FirstClaim(ctx context.Context, on On, polls, n, batch int) (claim, finish time.Duration, err error) {
	err = with(ctx, on, func(p *Place, l *ledger.Ledger) error {
		if p.file == "" {
			for _, table := range []string{"ledger_items", "ledger_backlog", "ledger_attempts"} {
				if err := p.Exec(ctx, "ALTER TABLE "+table+" SET (autovacuum_enabled = off)"); err != nil {
					return err
				}
			}
			if err := p.Settle(ctx); err != nil {
				return err
			}
		}
		ask := ledger.Claim{Kind: Kind, Agent: "bench", Limit: batch}
		for range polls {
			if _, err := l.Claim(ctx, ask); err != nil {
				return err
			}
		}
		if _, err := Add(ctx, l, 0, n, 2); err != nil {
			return err
		}
		claim, finish, err = claimAndFinish(ctx, l, batch)
		return err
	})
	return claim, finish, err
}

// claimAndFinish claims a batch and ends it as done.
func claimAndFinish(ctx context.Context, l *ledger.Ledger, batch int) (claim, finish time.Duration, err error) {
	began := time.Now()
	leases, err := l.Claim(ctx, ledger.Claim{Kind: Kind, Agent: "bench", Limit: batch})
	claim = time.Since(began)
	if err == nil && len(leases) != batch {
		err = fmt.Errorf("%d of %d items claimed", len(leases), batch)
	}
	if err != nil {
		return 0, 0, err
	}
	endings := make([]ledger.Ending, len(leases))
	for i, lease := range leases {
		endings[i] = ledger.Ending{Lease: lease, Result: ledger.Done(nil)}
	}
	began = time.Now()
	err = errors.Join(l.Finish(ctx, endings...)...)
	return claim, time.Since(began), err
}

// Batches claims and finishes one batch after the other, with one client, in a new ledger with so many other ready items.
// It returns the rate and the median duration of the two calls.
func Batches(ctx context.Context, on On, batch, times, beside int) (perSecond float64, claim, finish time.Duration,
	err error) {
	var claims, finishes []time.Duration
	err = with(ctx, on, func(p *Place, l *ledger.Ledger) error {
		if _, err := Add(ctx, l, 0, beside+batch*times, 2); err != nil {
			return err
		}
		if err := p.Settle(ctx); err != nil {
			return err
		}
		began := time.Now()
		for range times {
			c, f, err := claimAndFinish(ctx, l, batch)
			if err != nil {
				return err
			}
			claims, finishes = append(claims, c), append(finishes, f)
		}
		perSecond, claim, finish = float64(batch*times)/time.Since(began).Seconds(), median(claims), median(finishes)
		return nil
	})
	return perSecond, claim, finish, err
}
