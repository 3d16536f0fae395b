package ours

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// History puts n finished items, with one attempt each, into an empty ledger by SQL, because adding and draining
// millions of items would take most of the time of a run.
func (p *Place) History(ctx context.Context, n int) error {
	if p.file != "" {
		return p.inFile(ctx,
			fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, payload, created_at)
				WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d), keys(key) AS (SELECT printf('/data/old/%%09d.csv', i) FROM n)
				SELECT '%s', key, bench_slot(key), CAST('{"path":"'||key||'"}' AS BLOB), %d FROM keys`, n, Kind, time.Now().UnixMicro()),
			fmt.Sprintf(
				`INSERT INTO ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent)
				SELECT id, created_at, created_at, 1, 1, 0, 1, randomblob(16), '%s', 'before' FROM ledger_items`, Kind))
	}
	return p.Exec(ctx, p.newKind(),
		fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, payload, created_at)
			SELECT '%s', key, %s, convert_to('{"path":"'||key||'"}', 'UTF8'), now()
			FROM (SELECT '/data/old/'||lpad(i::text, 9, '0')||'.csv' AS key FROM generate_series(1, %d) i) keys`, Kind, slotSQL, n),
		fmt.Sprintf(
			`INSERT INTO ledger_attempts (item_id, leased_at, finished_at, attempt, epoch, outcome, final, lock_id, kind, agent)
			SELECT id, now(), now(), 1, 1, 0, true, gen_random_uuid(), '%s', 'before' FROM ledger_items`, Kind))
}

// Future puts n items into an empty ledger that are due in a year.
func (p *Place) Future(ctx context.Context, n int) error {
	if p.file != "" {
		return p.inFile(ctx,
			fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, payload, created_at)
				WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < %d), keys(key) AS (SELECT printf('/data/later/%%09d.csv', i) FROM n)
				SELECT '%s', key, bench_slot(key), CAST('{"path":"'||key||'"}' AS BLOB), %d FROM keys`, n, Kind, time.Now().UnixMicro()),
			fmt.Sprintf(
				`INSERT INTO ledger_backlog (item_id, due_at, state, slot, kind) SELECT id, created_at + %d + id, 0, slot, kind FROM ledger_items`, year.Microseconds()))
	}
	return p.Exec(ctx, p.newKind(),
		fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, payload, created_at)
			SELECT '%s', key, %s, convert_to('{"path":"'||key||'"}', 'UTF8'), now()
			FROM (SELECT '/data/later/'||lpad(i::text, 9, '0')||'.csv' AS key FROM generate_series(1, %d) i) keys`, Kind, slotSQL, n),
		`INSERT INTO ledger_backlog (item_id, due_at, stage, slot, kind)
			SELECT id, now() + interval '1 year' + id * interval '1 microsecond', 0, slot, kind FROM ledger_items`)
}

const year = 365 * 24 * time.Hour

// slotSQL is an expression for scheduler.Slot of a key.
const slotSQL = "(get_byte(sha256(convert_to(key, 'UTF8')), 0) * 256 + get_byte(sha256(convert_to(key, 'UTF8')), " +
	"1)) % 1024"

func (p *Place) newKind() string {
	return "INSERT INTO ledger_kinds (kind) VALUES ('" + Kind + "') ON CONFLICT DO NOTHING"
}

func init() {
	sqlite.MustRegisterDeterministicScalarFunction("bench_slot", 1, func(_ *sqlite.FunctionContext,
		args []driver.Value) (driver.Value, error) {
		return int64(scheduler.Slot(args[0].(string))), nil
	})
}

// inFile runs statements on the file of a place on SQLite, in one transaction.
func (p *Place) inFile(ctx context.Context, statements ...string) error {
	db, err := sql.Open("sqlite", "file:"+p.file+
		"?_pragma=busy_timeout(10000)&_pragma=cache_size(-200000)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, statement := range append([]string{"INSERT INTO ledger_kinds (kind) VALUES ('" + Kind +
		"') ON CONFLICT DO NOTHING"}, statements...) {
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	return err
}
