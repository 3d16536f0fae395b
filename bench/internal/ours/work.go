package ours

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Quiet is a logger without output: a failure is an error of the measurement.
var Quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

// Path returns the path of item i, for all sides.
func Path(i int) string { return fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", i) }

// Payload returns the payload of item i, for all sides.
func Payload(i int) []byte { return []byte(`{"path":"` + Path(i) + `"}`) }

// Items returns n items, from number from on.
func Items(from, n int) []ledger.NewItem {
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: Kind, Key: Path(from + i), Payload: Payload(from + i)}
	}
	return items
}

// AddBatch is how many items one call adds, on every side with such a call.
const AddBatch = 5000

// Add adds n items, from number from on, by so many concurrent clients. It returns the rate.
func Add(ctx context.Context, l *ledger.Ledger, from, n, clients int) (perSecond float64, err error) {
	began := time.Now()
	g, group := errgroup.WithContext(ctx)
	for c := range clients {
		g.Go(func() error {
			for i := c * AddBatch; i < n; i += clients * AddBatch {
				if _, err := l.Add(group, Items(from+i, min(AddBatch, n-i))...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(n) / time.Since(began).Seconds(), err
}

// Function is a handler in this process that does nothing.
type Function struct{}

// Handle implements worker.Handler.
func (Function) Handle(_ context.Context, _ *ledger.Lease, settle func(ledger.Result)) {
	settle(ledger.Done(nil))
}

// Plugin starts the process of the plugin that does nothing.
func (b *Bench) Plugin(ctx context.Context) (*pluginhost.Host, error) {
	finder := pluginhost.Finder{Folders: []pluginhost.Folder{{Path: b.Programs, Origin: "bench"}},
		Self: filepath.Join(b.Programs, "ledgerd")}
	place, err := finder.Find(Kind)
	if err != nil {
		return nil, err
	}
	return pluginhost.Start(ctx, pluginhost.Config{Spec: pluginhost.Spec{Place: place, Logger: Quiet}})
}

// concurrency of a worker, as in River's own benchmark
const concurrency = 2000

// newWorker returns a worker with the settings of all measurements.
func newWorker(l *ledger.Ledger, h worker.Handler) (*worker.Worker, error) {
	return worker.New(worker.Config{Ledger: l, Handlers: map[string]worker.Handler{Kind: h}, Concurrency: concurrency,
		Logger: Quiet})
}

// Drain works until nothing is left, and returns the rate of n items.
func Drain(ctx context.Context, l *ledger.Ledger, h worker.Handler, n int) (perSecond float64, err error) {
	w, err := newWorker(l, h)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	report, err := w.Drain(ctx, 0)
	perSecond = float64(n) / time.Since(began).Seconds()
	if done := report.Outcomes[ledger.OutcomeDone]; err == nil && done != int64(n) {
		err = fmt.Errorf("%d of %d items done", done, n)
	}
	return perSecond, errors.Join(err, ctx.Err())
}

// AddAndDrain measures the adding and the drain of n items on a new ledger, through a plugin's process or a function,
// and on Postgres what the drain costs the server.
func (b *Bench) AddAndDrain(ctx context.Context, on On, n int, plugin bool) (s measure.Sample, err error) {
	err = with(ctx, on, func(p *Place, l *ledger.Ledger) error {
		var h worker.Handler = Function{}
		if plugin {
			host, err := b.Plugin(ctx)
			if err != nil {
				return err
			}
			defer host.Close(time.Second)
			h = host
		}
		add, err := Add(ctx, l, 0, n, 1)
		if err != nil {
			return err
		}
		if err := p.Settle(ctx); err != nil {
			return err
		}
		drain := 0.0
		s, err = ServerCost(ctx, p.url, n, func() (err error) {
			drain, err = Drain(ctx, l, h, n)
			return err
		})
		s["add"], s["drain"] = add, drain
		return err
	})
	return s, err
}

// Single describes how one client claims and ends one item after the other.
type Single struct {
	OneCall    bool // the end of an item and the claim of the next are one call
	Unprepared bool // on Postgres: no statement is prepared
}

// OneByOne measures how n items are claimed and ended by one client, one at a time.
func OneByOne(ctx context.Context, on On, n int, how Single) (s measure.Sample, err error) {
	prepare := on
	if how.Unprepared {
		prepare = func(ctx context.Context) (*Place, error) {
			p, err := on(ctx)
			if err == nil {
				p.connections = 1 // for one connection nothing is prepared
			}
			return p, err
		}
	}
	err = with(ctx, prepare, func(p *Place, l *ledger.Ledger) error {
		if _, err := Add(ctx, l, 0, n, 1); err != nil {
			return err
		}
		if err := p.Settle(ctx); err != nil {
			return err
		}
		var took time.Duration
		s, err = ServerCost(ctx, p.url, n, func() (err error) {
			took, err = oneByOne(ctx, l, n, how.OneCall)
			return err
		})
		if err == nil {
			s["drain"] = float64(n) / took.Seconds()
		}
		return err
	})
	return s, err
}

func oneByOne(ctx context.Context, l *ledger.Ledger, n int, oneCall bool) (took time.Duration, err error) {
	began := time.Now()
	next := ledger.Claim{Kind: Kind, Agent: "bench", Limit: 1}
	held, err := l.Claim(ctx, next)
	done := 0
	for err == nil && len(held) > 0 {
		done += len(held)
		end := ledger.Ending{Lease: held[0], Result: ledger.Done(nil)}
		var ended []error
		if oneCall {
			ended, held, _, err = l.FinishAndClaim(ctx, next, end)
			err = errors.Join(append(ended, err)...)
		} else if err = errors.Join(l.Finish(ctx, end)...); err == nil {
			held, err = l.Claim(ctx, next)
		}
	}
	if err == nil && done != n {
		err = fmt.Errorf("%d of %d items done", done, n)
	}
	return time.Since(began), err
}

// Renewals measures what it costs the server to renew a lease of n items. It renews the lease so many times.
func Renewals(ctx context.Context, on On, n, times int) (s measure.Sample, err error) {
	err = with(ctx, on, func(p *Place, l *ledger.Ledger) error {
		if _, err := Add(ctx, l, 0, n, 1); err != nil {
			return err
		}
		if err := p.Settle(ctx); err != nil {
			return err
		}
		held, err := l.Claim(ctx, ledger.Claim{Kind: Kind, Agent: "bench", Limit: n})
		if err == nil && len(held) != n {
			err = fmt.Errorf("%d of %d items claimed", len(held), n)
		}
		if err != nil {
			return err
		}
		s, err = ServerCost(ctx, p.url, times, func() error {
			for range times {
				_, errs := l.Extend(ctx, time.Minute, held...)
				if err := errors.Join(errs...); err != nil {
					return err
				}
			}
			return nil
		})
		return err
	})
	return s, err
}

// with makes a place, opens it, and removes it at the end.
func with(ctx context.Context, on On, fn func(*Place, *ledger.Ledger) error) (err error) {
	p, err := on(ctx)
	if err != nil {
		return err
	}
	l, err := p.Open(ctx)
	if err != nil {
		return errors.Join(err, p.Remove())
	}
	defer func() { err = errors.Join(err, l.Close(), p.Remove()) }()
	return fn(p, l)
}

// AddOnly measures how fast so many clients add n items to a new ledger.
func AddOnly(ctx context.Context, on On, n, clients int) (perSecond float64, err error) {
	err = with(ctx, on, func(_ *Place, l *ledger.Ledger) (err error) {
		perSecond, err = Add(ctx, l, 0, n, clients)
		return err
	})
	return perSecond, err
}
