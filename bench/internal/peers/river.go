// Package peers does the work of the benchmark with other queues: River on Postgres, goqite and backlite on SQLite,
// and, in separate programs, graphile-worker on Postgres and River on SQLite.
package peers

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

// Job is an item of River.
type Job struct {
	Path string `json:"path"`
}

// Kind implements river.JobArgs.
func (Job) Kind() string { return ours.Kind }

type noop struct{ river.WorkerDefaults[Job] }

func (noop) Work(context.Context, *river.Job[Job]) error { return nil }

// River is one installation in a schema of its own.
type River struct {
	url, schema string
	pool        *pgxpool.Pool
}

// NewRiver makes a schema and River's tables in it.
func NewRiver(ctx context.Context, url string) (r *River, err error) {
	r = &River{url: url, schema: ours.SchemaName("river")}
	if r.pool, err = r.connect(ctx); err != nil {
		return nil, err
	}
	if _, err := r.pool.Exec(ctx, "CREATE SCHEMA "+r.schema); err != nil {
		r.pool.Close()
		return nil, err
	}
	migrator, err := rivermigrate.New(riverpgxv5.New(r.pool), &rivermigrate.Config{Logger: ours.Quiet})
	if err == nil {
		_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, errors.Join(err, r.Remove())
	}
	return r, nil
}

func (r *River) connect(ctx context.Context) (*pgxpool.Pool, error) {
	c, err := pgxpool.ParseConfig(r.url)
	if err != nil {
		return nil, err
	}
	c.MaxConns = 10
	c.ConnConfig.RuntimeParams["search_path"] = r.schema
	return pgxpool.NewWithConfig(ctx, c)
}

// Remove drops the schema.
func (r *River) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	_, err := r.pool.Exec(ctx, "DROP SCHEMA "+pgx.Identifier{r.schema}.Sanitize()+" CASCADE")
	r.pool.Close()
	return err
}

// config returns the configuration of River's own benchmark.
func config(w river.Worker[Job]) *river.Config {
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	return &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
}

// Add inserts n jobs with InsertManyFast by so many concurrent clients, and returns the rate.
func (r *River) Add(ctx context.Context, n, clients int) (perSecond float64, err error) {
	client, err := river.NewClient(riverpgxv5.New(r.pool), &river.Config{})
	if err != nil {
		return 0, err
	}
	began := time.Now()
	g, group := errgroup.WithContext(ctx)
	for c := range clients {
		g.Go(func() error {
			for i := c * ours.AddBatch; i < n; i += clients * ours.AddBatch {
				jobs := make([]river.InsertManyParams, min(ours.AddBatch, n-i))
				for k := range jobs {
					jobs[k] = river.InsertManyParams{Args: Job{ours.Path(i + k)}}
				}
				if _, err := client.InsertManyFast(group, jobs); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = g.Wait()
	return float64(n) / time.Since(began).Seconds(), err
}

// AddAndDrain measures the adding and the drain of n jobs, and what the drain costs the server.
func (r *River) AddAndDrain(ctx context.Context, n int) (s measure.Sample, err error) {
	add, err := r.Add(ctx, n, 1)
	if err != nil {
		return nil, err
	}
	if err := ours.SettlePostgres(ctx, r.url, r.schema); err != nil {
		return nil, err
	}
	drain := 0.0
	s, err = ours.ServerCost(ctx, r.url, n, func() (err error) {
		drain, err = r.drain(ctx, n)
		return err
	})
	s["add"], s["drain"] = add, drain
	return s, err
}

func (r *River) drain(ctx context.Context, n int) (perSecond float64, err error) {
	client, err := river.NewClient(riverpgxv5.New(r.pool), config(noop{}))
	if err != nil {
		return 0, err
	}
	// Completions are counted where they are recorded, not where the worker returns.
	events, stop := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: n,
		Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer stop()
	began := time.Now()
	if err := client.Start(ctx); err != nil {
		return 0, err
	}
	for range n {
		select {
		case <-events:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	perSecond = float64(n) / time.Since(began).Seconds()
	return perSecond, client.Stop(ctx)
}

type tell struct {
	river.WorkerDefaults[Job]
	at chan time.Time
}

func (t tell) Work(context.Context, *river.Job[Job]) error {
	t.at <- time.Now()
	return nil
}

// StartLatency inserts tries jobs, one by one, on an idle system, with a separate client and pool, as another process
// would. It returns how long each took from the call to the start of Work.
func (r *River) StartLatency(ctx context.Context, tries int) (took []time.Duration, err error) {
	at := make(chan time.Time, 1)
	client, err := river.NewClient(riverpgxv5.New(r.pool), config(tell{at: at}))
	if err != nil {
		return nil, err
	}
	pool, err := r.connect(ctx)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	// The cool-down of the adder also limits how often it notifies.
	adder, err := river.NewClient(riverpgxv5.New(pool), &river.Config{FetchCooldown: 2 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	if err := client.Start(ctx); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, client.Stop(context.WithoutCancel(ctx))) }()
	const warmUp = 20
	for i := range warmUp + tries {
		time.Sleep(ours.Pause)
		called := time.Now()
		if _, err := adder.Insert(ctx, Job{ours.Path(i)}, nil); err != nil {
			return nil, err
		}
		select {
		case t := <-at:
			if i >= warmUp {
				took = append(took, t.Sub(called))
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return took, nil
}
