package peers

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mikestefanello/backlite"
	"maragu.dev/goqite"
	_ "modernc.org/sqlite" // the driver of every side

	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

var made atomic.Int64

// database makes a new file and opens it with the settings of ledgerd: write-ahead log, every commit on the disk.
func database(dir string) (db *sql.DB, path string, err error) {
	path = filepath.Join(dir, fmt.Sprintf("peer-%d.db", made.Add(1)))
	db, err = sql.Open("sqlite", "file:"+path+
		"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)&_txlock=immediate")
	if err == nil {
		db.SetMaxOpenConns(1) // as these queues recommend; more connections would only wait for each other
	}
	return db, path, err
}

// Goqite sends n messages, a batch in one transaction, then receives and deletes them one by one, as its own benchmark
// does.
func Goqite(ctx context.Context, dir string, n int) (add, drain float64, err error) {
	db, path, err := database(dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close(), ours.RemoveSQLite(path)) }()
	q, err := newGoqite(ctx, db)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	for i := 0; i < n; i += ours.AddBatch {
		if err := sendGoqite(ctx, db, q, i, min(ours.AddBatch, n-i)); err != nil {
			return 0, 0, err
		}
	}
	add = float64(n) / time.Since(began).Seconds()
	began = time.Now()
	for range n {
		m, err := q.Receive(ctx)
		if err != nil {
			return 0, 0, err
		}
		if m == nil {
			return 0, 0, errors.New("a message is missing")
		}
		if err := q.Delete(ctx, m.ID); err != nil {
			return 0, 0, err
		}
	}
	return add, float64(n) / time.Since(began).Seconds(), nil
}

// newGoqite makes a queue and goqite's table. The module contains the schema, and users have to apply it.
func newGoqite(ctx context.Context, db *sql.DB) (*goqite.Queue, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "maragu.dev/goqite").Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	schema, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(out)), "schema_sqlite.sql"))
	if err != nil {
		return nil, err
	}
	if _, err := db.ExecContext(ctx, string(schema)); err != nil {
		return nil, err
	}
	return goqite.New(goqite.NewOpts{DB: db, Name: ours.Kind, Timeout: time.Minute}), nil
}

func sendGoqite(ctx context.Context, db *sql.DB, q *goqite.Queue, from, n int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for i := range n {
		if err := q.SendTx(ctx, tx, goqite.Message{Body: ours.Payload(from + i)}); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// task is an item of backlite.
type task struct {
	Path string `json:"path"`
}

// Config implements backlite.Task.
func (task) Config() backlite.QueueConfig {
	return backlite.QueueConfig{Name: ours.Kind, MaxAttempts: 3, Timeout: time.Minute}
}

// backliteWorkers is large, because backlite reads the whole backlog for each fetch, and fetches as many tasks as
// workers are free.
const backliteWorkers = 1000

// Backlite adds n tasks, then works them. Ended tasks are deleted.
func Backlite(ctx context.Context, dir string, n int) (add, drain float64, err error) {
	db, path, err := database(dir)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, db.Close(), ours.RemoveSQLite(path)) }()
	client, err := backlite.NewClient(backlite.ClientConfig{DB: db, NumWorkers: backliteWorkers, ReleaseAfter: time.Hour})
	if err != nil {
		return 0, 0, err
	}
	if err := client.Install(); err != nil {
		return 0, 0, err
	}
	var worked atomic.Int64
	client.Register(backlite.NewQueue(func(context.Context, task) error {
		worked.Add(1)
		return nil
	}))
	began := time.Now()
	for i := 0; i < n; i += ours.AddBatch {
		tasks := make([]backlite.Task, min(ours.AddBatch, n-i))
		for k := range tasks {
			tasks[k] = task{ours.Path(i + k)}
		}
		if _, err := client.Add(tasks...).Ctx(ctx).Save(); err != nil {
			return 0, 0, err
		}
	}
	add = float64(n) / time.Since(began).Seconds()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	began = time.Now()
	client.Start(ctx)
	for { // backlite does not report ends of tasks, and retains none
		var left int
		if worked.Load() == int64(n) {
			if err := db.QueryRowContext(ctx, "SELECT count(*) FROM backlite_tasks").Scan(&left); err != nil {
				return 0, 0, err
			}
			if left == 0 {
				break
			}
		}
		select {
		case <-ctx.Done():
			return 0, 0, ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	drain = float64(n) / time.Since(began).Seconds()
	if !client.Stop(ctx) {
		return 0, 0, errors.New("backlite did not stop")
	}
	return add, drain, nil
}

// RiverSQLite is the output of the program riversqlite.
type RiverSQLite struct {
	River  string  `json:"river"`
	Driver string  `json:"driver"` // version of modernc.org/sqlite
	Add    float64 `json:"add"`
	Drain  float64 `json:"drain"`
	P50    float64 `json:"p50"`
	P99    float64 `json:"p99"`
}

// RunRiverSQLite runs River on a file in dir. It is a program in a separate module, because the newest SQLite driver of
// River needs an older River than the newest one.
func RunRiverSQLite(ctx context.Context, programs, dir string, n, tries int) (r RiverSQLite, err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(programs, "riversqlite"), "-dir", dir, "-items", fmt.Sprint(n), "-tries",
		fmt.Sprint(tries))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("riversqlite: %w", err)
	}
	err = json.Unmarshal(out, &r)
	return r, err
}
