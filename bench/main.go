// Command bench drains the same number of no-op items with ledgerd and with River on one
// Postgres, in alternating rounds of one run, and prints medians and ratios: absolute figures
// change with the machine, ratios hold.
//
// Both sides work in process, on the same server and disk, with the server's durability
// settings, on items with a path of 40 bytes; ledgerd records an attempt for each. River runs
// with the settings of its own benchmark: 2,000 workers, 2 ms fetch cool-down, 20 ms poll.
//
//	go run . -postgres postgres://user@host/db
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// figures of one round, per second.
type figures struct{ add, drain float64 }

func main() {
	url := flag.String("postgres", "", "URL of a Postgres database in which schemas may be made")
	n := flag.Int("items", 200_000, "items per round")
	rounds := flag.Int("rounds", 3, "rounds of each side")
	flag.Parse()
	if *url == "" {
		log.Fatal("bench: -postgres URL is required")
	}
	ctx := context.Background()
	sides := []struct {
		name string
		run  func(context.Context, string, int) (figures, error)
		got  []figures
	}{{name: "ledgerd", run: runLedgerd}, {name: "River", run: runRiver}}
	for r := range *rounds {
		for i := range sides {
			s := &sides[(i+r)%2]
			f, err := s.run(ctx, *url, *n)
			if err != nil {
				log.Fatalf("bench: %s: %v", s.name, err)
			}
			fmt.Printf("round %d  %-8s add %8.0f/s   drain %8.0f/s\n", r+1, s.name, f.add, f.drain)
			s.got = append(s.got, f)
		}
	}
	add := func(f figures) float64 { return f.add }
	drain := func(f figures) float64 { return f.drain }
	for _, m := range []struct {
		name string
		of   func(figures) float64
	}{{"add", add}, {"drain", drain}} {
		ours, theirs := median(sides[0].got, m.of), median(sides[1].got, m.of)
		fmt.Printf("%-6s ledgerd %8.0f/s   River %8.0f/s   ratio %.2f\n", m.name, ours, theirs, ours/theirs)
	}
}

func median(all []figures, of func(figures) float64) float64 {
	v := make([]float64, len(all))
	for i, f := range all {
		v[i] = of(f)
	}
	slices.Sort(v)
	return v[len(v)/2]
}

func path(i int) string { return fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", i) }

// inSchema runs fn on a pool whose tables live in a schema of their own, which is dropped.
func inSchema(ctx context.Context, url, schema string, fn func(*pgxpool.Pool) error) (err error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	c.MaxConns = 10
	c.ConnConfig.RuntimeParams["search_path"] = schema
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return err
	}
	defer pool.Close()
	name := pgx.Identifier{schema}.Sanitize()
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+name); err != nil {
		return err
	}
	defer func() {
		_, dropErr := pool.Exec(ctx, "DROP SCHEMA "+name+" CASCADE")
		err = errors.Join(err, dropErr)
	}()
	return fn(pool)
}

func runLedgerd(ctx context.Context, url string, n int) (f figures, err error) {
	const schema = "bench_ledgerd"
	return f, inSchema(ctx, url, schema, func(pool *pgxpool.Pool) error {
		store, err := postgres.Open(ctx, pool, postgres.Options{Schema: schema})
		if err != nil {
			return err
		}
		l := ledger.New(store, ledger.Options{})
		defer l.Close()
		begin := time.Now()
		for i := 0; i < n; i += 5000 {
			items := make([]ledger.NewItem, min(5000, n-i))
			for k := range items {
				items[k] = ledger.NewItem{Kind: "noop", Key: path(i + k), Payload: []byte(`{"path":"` + path(i+k) + `"}`)}
			}
			if _, err := l.Add(ctx, items...); err != nil {
				return err
			}
		}
		f.add = float64(n) / time.Since(begin).Seconds()
		w, err := worker.New(worker.Config{Ledger: l, Concurrency: 2000, Handlers: map[string]worker.Handler{"noop": noop{}}})
		if err != nil {
			return err
		}
		begin = time.Now()
		report, err := w.Drain(ctx, 0)
		f.drain = float64(n) / time.Since(begin).Seconds()
		if done := report.Outcomes[ledger.OutcomeDone]; err == nil && done != int64(n) {
			err = fmt.Errorf("%d of %d items done", done, n)
		}
		return err
	})
}

// noop settles at once.
type noop struct{}

func (noop) Handle(_ context.Context, _ *ledger.Lease, settle func(ledger.Result)) {
	settle(ledger.Done(nil))
}

// job is River's side of the item.
type job struct {
	Path string `json:"path"`
}

func (job) Kind() string { return "noop" }

type jobWorker struct {
	river.WorkerDefaults[job]
}

func (jobWorker) Work(context.Context, *river.Job[job]) error { return nil }

func runRiver(ctx context.Context, url string, n int) (f figures, err error) {
	return f, inSchema(ctx, url, "bench_river", func(pool *pgxpool.Pool) error {
		driver := riverpgxv5.New(pool)
		migrator, err := rivermigrate.New(driver, nil)
		if err != nil {
			return err
		}
		if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
			return err
		}
		workers := river.NewWorkers()
		river.AddWorker(workers, jobWorker{})
		client, err := river.NewClient(driver, &river.Config{FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}, Workers: workers})
		if err != nil {
			return err
		}
		begin := time.Now()
		for i := 0; i < n; i += 5000 {
			jobs := make([]river.InsertManyParams, min(5000, n-i))
			for k := range jobs {
				jobs[k] = river.InsertManyParams{Args: job{path(i + k)}}
			}
			if _, err := client.InsertManyFast(ctx, jobs); err != nil {
				return err
			}
		}
		f.add = float64(n) / time.Since(begin).Seconds()
		// Completions are counted where they are recorded, not where the worker returns.
		events, stop := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted}})
		defer stop()
		begin = time.Now()
		if err := client.Start(ctx); err != nil {
			return err
		}
		for range n {
			<-events
		}
		f.drain = float64(n) / time.Since(begin).Seconds()
		return client.Stop(ctx)
	})
}
