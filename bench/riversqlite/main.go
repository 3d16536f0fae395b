// Command riversqlite does the work of the benchmark with River on SQLite and prints what it measured as JSON. It is a
// module of its own, because the newest SQLite driver of River belongs to an older River than the one that the
// benchmark runs on Postgres.
//
// River runs with the settings of its own benchmark, on one connection as its documentation asks, with write-ahead log
// and synchronous=FULL.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	_ "modernc.org/sqlite"
)

// measured is what this program prints.
type measured struct {
	River  string  `json:"river"`  // its version
	Driver string  `json:"driver"` // the version of modernc.org/sqlite
	Add    float64 `json:"add"`    // jobs added a second
	Drain  float64 `json:"drain"`  // jobs worked a second
	P50    float64 `json:"p50"`    // from the insertion of a job to its start, in milliseconds
	P99    float64 `json:"p99"`    // as p50
}

func main() {
	dir := flag.String("dir", os.TempDir(), "folder for the file")
	n := flag.Int("items", 0, "how many jobs are inserted and worked")
	tries := flag.Int("tries", 0, "how many jobs are inserted one by one, to measure how soon each starts")
	flag.Parse()
	m, err := run(context.Background(), *dir, *n, *tries)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(m)
	}
	if err != nil {
		log.Fatalf("riversqlite: %v", err)
	}
}

func run(ctx context.Context, dir string, n, tries int) (m measured, err error) {
	build, _ := debug.ReadBuildInfo()
	for _, dep := range build.Deps {
		switch dep.Path {
		case "github.com/riverqueue/river":
			m.River = dep.Version
		case "modernc.org/sqlite":
			m.Driver = dep.Version
		}
	}
	dir, err = os.MkdirTemp(dir, "river-")
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "river.db")+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)")
	if err != nil {
		return m, err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	migrator, err := rivermigrate.New(riversqlite.New(db), nil)
	if err != nil {
		return m, err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return m, err
	}
	if n > 0 {
		if err := addAndDrain(ctx, db, n, &m); err != nil {
			return m, err
		}
	}
	if tries > 0 {
		err = startLatency(ctx, db, tries, &m)
	}
	return m, err
}

// job is the work: the path of a file, as the items of the benchmark have it.
type job struct {
	Path string `json:"path"`
}

func (job) Kind() string { return "noop" }

func newJob(i int) job { return job{fmt.Sprintf("/data/in/2026/11/20/users-%08d.csv", i)} }

type worker struct {
	river.WorkerDefaults[job]
	at chan time.Time // gets the time at which a job starts; may be nil
}

func (w worker) Work(context.Context, *river.Job[job]) error {
	if w.at != nil {
		w.at <- time.Now()
	}
	return nil
}

// newClient makes a client that works jobs, with the settings of River's own benchmark.
func newClient(db *sql.DB, w worker) (*river.Client[*sql.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, w)
	return river.NewClient(riversqlite.New(db), &river.Config{
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond, Workers: workers,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// addAndDrain measures how fast jobs are inserted in batches, then how fast they are worked.
func addAndDrain(ctx context.Context, db *sql.DB, n int, m *measured) error {
	client, err := newClient(db, worker{})
	if err != nil {
		return err
	}
	adder, err := river.NewClient(riversqlite.New(db), &river.Config{})
	if err != nil {
		return err
	}
	const batch = 5000
	began := time.Now()
	for i := 0; i < n; i += batch {
		jobs := make([]river.InsertManyParams, min(batch, n-i))
		for k := range jobs {
			jobs[k] = river.InsertManyParams{Args: newJob(i + k)}
		}
		if _, err := adder.InsertManyFast(ctx, jobs); err != nil {
			return err
		}
	}
	m.Add = float64(n) / time.Since(began).Seconds()
	// Completions are counted where they are recorded, not where the worker returns.
	events, stop := client.SubscribeConfig(&river.SubscribeConfig{ChanSize: n,
		Kinds: []river.EventKind{river.EventKindJobCompleted}})
	defer stop()
	began = time.Now()
	if err := client.Start(ctx); err != nil {
		return err
	}
	for range n {
		<-events
	}
	m.Drain = float64(n) / time.Since(began).Seconds()
	return client.Stop(ctx)
}

// startLatency measures the time from the insertion of a job to its start, while nothing else is to be done.
func startLatency(ctx context.Context, db *sql.DB, tries int, m *measured) error {
	at := make(chan time.Time, 1)
	client, err := newClient(db, worker{at: at})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	var took []time.Duration
	const warmUp = 20
	for i := range warmUp + tries {
		time.Sleep(25 * time.Millisecond)
		called := time.Now()
		if _, err := client.Insert(ctx, newJob(i), nil); err != nil {
			return err
		}
		if t := <-at; i >= warmUp {
			took = append(took, t.Sub(called))
		}
	}
	slices.Sort(took)
	m.P50 = float64(took[len(took)/2].Microseconds()) / 1000
	m.P99 = float64(took[len(took)*99/100].Microseconds()) / 1000
	return client.Stop(ctx)
}
