// Command sqlite drains the same number of no-op items with ledgerd and with River, each on an
// SQLite file of its own in one folder, in alternating rounds of one run, and prints medians
// and ratios. It is a module of its own, because the newest SQLite driver of River that
// resolves belongs to an older River than the one of the Postgres comparison.
//
// Both sides use the same SQLite library (modernc.org/sqlite) and the same durability, WAL with
// synchronous=FULL unless -normal; River runs as its documentation says, on one connection.
package main

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// figures of one round, per second.
type figures struct{ add, drain float64 }

func main() {
	n := flag.Int("items", 100_000, "items per round of ledgerd; River gets a tenth")
	rounds := flag.Int("rounds", 3, "rounds of each side")
	normal := flag.Bool("normal", false, "synchronous=NORMAL on both sides")
	flag.Parse()
	dir, err := os.MkdirTemp("", "ledgerd-bench")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	var ours, theirs []figures
	for r := range *rounds {
		f, err := runLedgerd(ctx, filepath.Join(dir, fmt.Sprintf("ledgerd-%d.db", r)), *n, *normal)
		if err != nil {
			log.Fatalf("bench: ledgerd: %v", err)
		}
		g, err := runRiver(ctx, filepath.Join(dir, fmt.Sprintf("river-%d.db", r)), *n/10, *normal)
		if err != nil {
			log.Fatalf("bench: River: %v", err)
		}
		fmt.Printf("round %d  ledgerd add %8.0f/s drain %8.0f/s   River add %8.0f/s drain %8.0f/s\n", r+1, f.add, f.drain, g.add, g.drain)
		ours, theirs = append(ours, f), append(theirs, g)
	}
	for _, m := range []struct {
		name string
		of   func(figures) float64
	}{{"add", func(f figures) float64 { return f.add }}, {"drain", func(f figures) float64 { return f.drain }}} {
		a, b := median(ours, m.of), median(theirs, m.of)
		fmt.Printf("%-6s ledgerd %8.0f/s   River %8.0f/s   ratio %.2f\n", m.name, a, b, a/b)
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

func key(i int) string { return fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", i) }

func runLedgerd(ctx context.Context, path string, n int, normal bool) (f figures, err error) {
	store, err := sqlite.Open(ctx, path, sqlite.Options{Unsafe: normal})
	if err != nil {
		return f, err
	}
	l := ledger.New(store, ledger.Options{})
	defer l.Close()
	begin := time.Now()
	for i := 0; i < n; i += 5000 {
		items := make([]ledger.NewItem, min(5000, n-i))
		for k := range items {
			items[k] = ledger.NewItem{Kind: "noop", Key: key(i + k), Payload: []byte(`{"path":"` + key(i+k) + `"}`)}
		}
		if _, err := l.Add(ctx, items...); err != nil {
			return f, err
		}
	}
	f.add = float64(n) / time.Since(begin).Seconds()
	w, err := worker.New(worker.Config{Ledger: l, Concurrency: 2000, Handlers: map[string]worker.Handler{"noop": noop{}}})
	if err != nil {
		return f, err
	}
	begin = time.Now()
	report, err := w.Drain(ctx, 0)
	f.drain = float64(n) / time.Since(begin).Seconds()
	if done := report.Outcomes[ledger.OutcomeDone]; err == nil && done != int64(n) {
		err = fmt.Errorf("%d of %d items done", done, n)
	}
	return f, err
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

type jobWorker struct{ river.WorkerDefaults[job] }

func (jobWorker) Work(context.Context, *river.Job[job]) error { return nil }

func runRiver(ctx context.Context, path string, n int, normal bool) (f figures, err error) {
	sync := "FULL"
	if normal {
		sync = "NORMAL"
	}
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(WAL)&_pragma=synchronous("+sync+")&_pragma=busy_timeout(10000)")
	if err != nil {
		return f, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	driver := riversqlite.New(db)
	migrator, err := rivermigrate.New(driver, nil)
	if err != nil {
		return f, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return f, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, jobWorker{})
	client, err := river.NewClient(driver, &river.Config{FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}}, Workers: workers})
	if err != nil {
		return f, err
	}
	inserter, err := river.NewClient(driver, &river.Config{})
	if err != nil {
		return f, err
	}
	begin := time.Now()
	for i := 0; i < n; i += 1000 {
		jobs := make([]river.InsertManyParams, min(1000, n-i))
		for k := range jobs {
			jobs[k] = river.InsertManyParams{Args: job{key(i + k)}}
		}
		if _, err := inserter.InsertManyFast(ctx, jobs); err != nil {
			return f, err
		}
	}
	f.add = float64(n) / time.Since(begin).Seconds()
	events, stop := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: n, Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer stop()
	begin = time.Now()
	if err := client.Start(ctx); err != nil {
		return f, err
	}
	for range n {
		<-events
	}
	f.drain = float64(n) / time.Since(begin).Seconds()
	return f, client.Stop(ctx)
}
