package nightlyfiles

import (
	"bufio"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// A way is how a worker gets at its files. Its steps are the places at which all workers meet before any
// goes on, once each: what a busy machine does to them sooner or later happens at every run.
type way struct {
	name  string
	fate  fate
	steps []string
	work  func(*worker) error
}

// fate is what becomes of files in a way.
type fate int

const (
	once         fate = iota // each is worked once
	doubled                  // at least the first batch, by each worker
	leftEarly                // each is worked once, but workers stop while there is work
	byChance                 // it depends on the moment, and no meeting can be put inside a statement
	onceByChance             // the same moments, and each is worked once
)

// The steps: before the first look at the table, as cron starts all at the same second; with the first
// files in hand, not marked yet; and having looked what one got.
const started, selected, looked = "started", "selected", "looked"

var ways = []way{
	{"select all, mark after", doubled, []string{started, selected}, func(w *worker) error { return w.markAfter(1 << 30) }},
	{"in batches", doubled, []string{started, selected}, func(w *worker) error { return w.markAfter(w.batch) }},
	{"mark at once", doubled, []string{started, selected}, (*worker).markAtOnce},
	{"lock_id, merged", doubled, []string{started, selected}, (*worker).lockIDMerged},
	{"lock_id, double select", leftEarly, []string{started, selected, looked}, (*worker).doubleSelect},
	{"UPDATE … IN (SELECT … LIMIT)", byChance, []string{started}, func(w *worker) error { return w.updateWithLimit("") }},
	{"the same with SKIP LOCKED", onceByChance, []string{started}, func(w *worker) error { return w.updateWithLimit(" FOR UPDATE SKIP LOCKED") }},
	{"ledgerd", once, []string{started, looked}, (*worker).ours},
}

// worker is one process. Every statement commits by itself: in one transaction the others would
// see the marks even later.
type worker struct {
	ctx     context.Context
	address string
	db      *sql.DB
	batch   int
	in      *bufio.Reader
	steps   []string // still to come
}

// work is the program of a worker: way, address, batch.
func work(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	w := &worker{ctx: context.Background(), address: args[1], in: bufio.NewReader(os.Stdin), steps: ways[n].steps}
	if w.batch, err = strconv.Atoi(args[2]); err != nil {
		return err
	}
	if w.db, err = connect(w.address); err != nil {
		return err
	}
	defer w.db.Close()
	if err := w.db.PingContext(w.ctx); err != nil {
		return err
	}
	return ways[n].work(w)
}

// connect opens the database of an address. What is to be seen here does not depend on the disk.
func connect(address string) (*sql.DB, error) {
	driver, source := "pgx", address+"&synchronous_commit=off"
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		driver, source = "sqlite", path+"?_pragma=busy_timeout(30000)&_pragma=journal_mode(wal)&_pragma=synchronous(off)"
	}
	db, err := sql.Open(driver, source)
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

// meet waits for the other workers, when it comes to a step for the first time.
func (w *worker) meet(step string) error {
	if len(w.steps) == 0 || w.steps[0] != step {
		return nil
	}
	w.steps = w.steps[1:]
	fmt.Println("at", step)
	_, err := w.in.ReadString('\n')
	return err
}

// ids selects files.
func (w *worker) ids(where string, limit int) (ids []string, err error) {
	rows, err := w.db.QueryContext(w.ctx, fmt.Sprintf("SELECT id FROM file_info WHERE %s LIMIT %d", where, limit))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

// exec executes a statement. Two that stamp several of the same files may come to a deadlock, which
// Postgres ends for one of them: that one says so and is executed again.
func (w *worker) exec(statement string, args ...any) error {
	for {
		_, err := w.db.ExecContext(w.ctx, statement, args...)
		if pg, ok := errors.AsType[*pgconn.PgError](err); !ok || pg.Code != "40P01" {
			return err
		}
		fmt.Println("deadlock")
	}
}

// update changes files, those with these ids.
func (w *worker) update(set string, ids ...string) error {
	return w.exec(fmt.Sprintf("UPDATE file_info SET %s WHERE id IN (%s)", set, strings.Join(ids, ", ")))
}

// process works files. That is the effect, and it is counted where no table is in the way.
func (w *worker) process(ids ...string) {
	for _, id := range ids {
		fmt.Println("file", id)
	}
}

func (w *worker) markAfter(batch int) error {
	if err := w.meet(started); err != nil {
		return err
	}
	for {
		files, err := w.ids("processed = FALSE", batch)
		if err != nil || len(files) == 0 {
			return err
		}
		if err := w.meet(selected); err != nil {
			return err
		}
		for _, id := range files {
			w.process(id)
			if err := w.update("processed = TRUE", id); err != nil {
				return err
			}
		}
	}
}

func (w *worker) markAtOnce() error {
	if err := w.meet(started); err != nil {
		return err
	}
	for {
		files, err := w.ids("processed = FALSE", w.batch)
		if err != nil || len(files) == 0 {
			return err
		}
		if err := w.meet(selected); err != nil {
			return err
		}
		if err := w.update("processed = TRUE", files...); err != nil {
			return err
		}
		w.process(files...)
	}
}

func (w *worker) lockIDMerged() error {
	if err := w.meet(started); err != nil {
		return err
	}
	for {
		files, err := w.ids("processed = FALSE AND lock_id IS NULL", w.batch)
		if err != nil || len(files) == 0 {
			return err
		}
		if err := w.meet(selected); err != nil {
			return err
		}
		lock := rand.Text()
		for _, id := range files {
			if err := w.update("lock_id = '"+lock+"'", id); err != nil {
				return err
			}
		}
		w.process(files...)
		if err := w.update("processed = TRUE", files...); err != nil {
			return err
		}
	}
}

// doubleSelect takes what it has stamped only. It says when it got less than it had seen, and when
// it stops though files are left that nobody has.
func (w *worker) doubleSelect() error {
	const free = "processed = FALSE AND lock_id IS NULL"
	if err := w.meet(started); err != nil {
		return err
	}
	for {
		seen, err := w.ids(free, w.batch)
		if err != nil || len(seen) == 0 {
			return err
		}
		if err := w.meet(selected); err != nil {
			return err
		}
		lock := rand.Text()
		stamp := fmt.Sprintf("UPDATE file_info SET lock_id = '%s' WHERE lock_id IS NULL AND id IN (%s)", lock, strings.Join(seen, ", "))
		if err := w.exec(stamp); err != nil {
			return err
		}
		files, err := w.ids("processed = FALSE AND lock_id = '"+lock+"'", w.batch)
		if err != nil {
			return err
		}
		left, err := w.ids(free, 1<<30)
		if err != nil {
			return err
		}
		if err := w.meet(looked); err != nil {
			return err
		}
		if len(files) < len(seen) {
			fmt.Println("less", len(files))
		}
		if len(files) == 0 {
			if len(left) > 0 {
				fmt.Println("left", len(left))
			}
			return nil
		}
		w.process(files...)
		if err := w.update("processed = TRUE", files...); err != nil {
			return err
		}
	}
}

// updateWithLimit is the statement that is often given as the cure, and nothing else in it when lock is
// "". A worker that gets nothing, as others have stamped its rows over, would take that for the end; it
// says so, and goes on as long as there are files.
func (w *worker) updateWithLimit(lock string) error {
	if err := w.meet(started); err != nil {
		return err
	}
	for {
		id := rand.Text()
		err := w.exec(`UPDATE file_info set lock_id = $1 WHERE id in (
     SELECT id FROM file_info WHERE lock_id IS NULL AND processed = FALSE LIMIT $2`+lock+`
)`, id, w.batch)
		if err != nil {
			return err
		}
		files, err := w.ids("processed = FALSE AND lock_id = '"+id+"'", w.batch)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			left, err := w.ids("processed = FALSE AND lock_id IS NULL", 1)
			if err != nil || len(left) == 0 {
				return err
			}
			fmt.Println("left", len(left))
			continue
		}
		w.process(files...)
		if err := w.update("processed = TRUE", files...); err != nil {
			return err
		}
	}
}

// ours claims the same files as items.
func (w *worker) ours() error {
	l, closeLedger, err := openLedger(w.ctx, w.address, nil)
	if err != nil {
		return err
	}
	defer closeLedger()
	if err := w.meet(started); err != nil {
		return err
	}
	agent := rand.Text()
	for {
		leases, err := l.Claim(w.ctx, ledger.Claim{Kind: kind, Agent: agent, Limit: w.batch})
		if err != nil || len(leases) == 0 {
			return err
		}
		if err := w.meet(looked); err != nil {
			return err
		}
		ends := make([]ledger.Ending, len(leases))
		for i, lease := range leases {
			w.process(lease.Key)
			ends[i] = ledger.Ending{Lease: lease, Result: ledger.Done(nil)}
		}
		for _, err := range l.Finish(w.ctx, ends...) {
			if err != nil {
				return err
			}
		}
	}
}

// kind of the items that are files.
const kind = "file"

// openLedger opens the ledger at an address, by this clock; nil is the right one. The second result
// closes it.
func openLedger(ctx context.Context, address string, now func() time.Time) (*ledger.Ledger, func(), error) {
	if path, ok := strings.CutPrefix(address, "sqlite:"); ok {
		s, err := sqlite.Open(ctx, path, sqlite.Options{Now: now})
		if err != nil {
			return nil, nil, err
		}
		l := ledger.New(s, ledger.Options{})
		return l, func() { _ = l.Close() }, nil
	}
	config, err := pgxpool.ParseConfig(address)
	if err != nil {
		return nil, nil, err
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	s, err := postgres.Open(ctx, pool, postgres.Options{Schema: config.ConnConfig.RuntimeParams["search_path"], Now: now})
	if err != nil {
		pool.Close()
		return nil, nil, err
	}
	l := ledger.New(s, ledger.Options{})
	return l, func() { _ = l.Close(); pool.Close() }, nil
}
