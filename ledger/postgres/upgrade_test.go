package postgres_test

import (
	"database/sql"
	"fmt"
	"io/fs"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger of an older schema, with work in it, is refused until it is brought up to date, and goes
// on as it is.
func TestUpgrade(t *testing.T) {
	for _, newest := range []string{"00001_ledger.sql", "00005_tallies.sql"} {
		t.Run(newest, func(t *testing.T) { upgrade(t, newest) })
	}
}

func upgrade(t *testing.T, newest string) {
	target := older(t, newest)
	for _, statement := range []string{"INSERT INTO ledger_kinds (kind) VALUES ('k')",
		"INSERT INTO ledger_items (kind, key, slot, created_at) VALUES ('k', 'a', 663, now()), ('k', 'b', 547, now())",
		"INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at) VALUES (1, 'k', 1, 663, now())",
		"INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, attempt, locked_by, lock_id, leased_at, expires_at) VALUES (2, 'k', 2, 547, now(), 1, 'x', gen_random_uuid(), now(), now())"} {
		execute(t, target, statement)
	}
	if _, err := postgres.Connect(t.Context(), target, postgres.Options{}); err == nil {
		t.Fatal("a ledger that lacks a migration was opened")
	}
	s, err := postgres.Connect(t.Context(), target, postgres.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	if n, err := l.Expire(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("%d expired, %v", n, err)
	}
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "c", Resources: []string{"r"}}); err != nil {
		t.Fatal(err)
	}
	if ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 10}); len(ls) != 3 || err != nil {
		t.Fatalf("%d leases, %v", len(ls), err)
	}
	if err := l.SetKind(t.Context(), "a", ledger.Kind{Name: "limited", Limits: ledger.Limits{MaxRunning: 1}}); err != nil {
		t.Fatal(err)
	}
	for v, err := range l.Verify(t.Context()) {
		t.Error(v, err)
	}
}

// TestUpgradeRecurring: items whose round was done, failed for good or begun under schema 7 stand as they did, and
// what was done may be opened again in the same period.
func TestUpgradeRecurring(t *testing.T) {
	target := older(t, "00007_stalled.sql")
	insert := func(statement string) { execute(t, target, statement) }
	at := func(moment time.Time) string { return fmt.Sprintf("to_timestamp(%d)", moment.Unix()) }
	every, err := ledger.ParseEvery("30d", "")
	if err != nil {
		t.Fatal(err)
	}
	period := every.Start(time.Now())
	next := period.Add(30 * 24 * time.Hour)
	insert(`INSERT INTO ledger_kinds (kind) VALUES ('r')`)
	for i, item := range []struct {
		key                             string
		state, failures, outcome, final int
		due                             time.Time
	}{{"done", 0, 0, 0, 1, next}, {"failed", 0, 0, 2, 1, next}, {"begun", 1, 1, 2, 0, period}} {
		insert(fmt.Sprintf(`INSERT INTO ledger_items (kind, key, slot, every, created_at) VALUES ('r', '%s', %d, '30d', %s)`,
			item.key, ledger.Slot(item.key), at(period)))
		insert(fmt.Sprintf(`INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, attempt, failures) VALUES (%d, 'r', %d, %d, %s, 1, %d)`,
			i+1, item.state, ledger.Slot(item.key), at(item.due), item.failures))
		insert(fmt.Sprintf(`INSERT INTO ledger_attempts (item_id, kind, attempt, epoch, agent, leased_at, finished_at, period, outcome, final)
			VALUES (%d, 'r', 1, 1, 'x', %[2]s, %[2]s, %[2]s, %[3]d, %[4]d = 1)`, i+1, at(period), item.outcome, item.final))
	}
	s, err := postgres.Connect(t.Context(), target, postgres.Options{Migrate: true})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	rounds := func(want map[ledger.RoundState]int64) {
		t.Helper()
		for state, n := range want {
			if got, err := l.Count(t.Context(), ledger.Filter{Rounds: []ledger.RoundState{state}}); got != n || err != nil {
				t.Errorf("%d %s, want %d, %v", got, state, n, err)
			}
		}
		for v, err := range l.Verify(t.Context()) {
			t.Error(v, err)
		}
	}
	rounds(map[ledger.RoundState]int64{ledger.RoundDone: 1, ledger.RoundFailed: 1, ledger.RoundOpen: 1})
	if n, err := l.Retry(t.Context(), "ann", ledger.Filter{Rounds: []ledger.RoundState{ledger.RoundFailed}}); n != 1 || err != nil {
		t.Errorf("%d retried, %v", n, err)
	}
	if n, err := l.Reopen(t.Context(), "ann", ledger.IDs(1)); n != 1 || err != nil {
		t.Errorf("%d reopened, %v", n, err)
	}
	leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "r", Agent: "a", Limit: 10})
	if len(leases) != 3 || err != nil {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	for _, lease := range leases {
		if err := l.Finish(t.Context(), ledger.Ending{Lease: lease, Result: ledger.Done(nil)})[0]; err != nil {
			t.Error(lease.Key, err)
		}
	}
	rounds(map[ledger.RoundState]int64{ledger.RoundDone: 3, ledger.RoundFailed: 0, ledger.RoundOpen: 0})
}

// TestUpgradeBesideWork: a transaction that has read attempts goes on to write some while a migration waits for it.
func TestUpgradeBesideWork(t *testing.T) {
	target := older(t, "00008_settings.sql")
	db, err := sql.Open("pgx", target)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "SELECT * FROM ledger_attempts"); err != nil {
		t.Fatal(err)
	}
	migrated := make(chan error, 1)
	go func() {
		s, err := postgres.Connect(t.Context(), target, postgres.Options{Migrate: true})
		if err == nil {
			err = s.Close()
		}
		migrated <- err
	}()
	for late, waits := time.Now().Add(time.Minute), false; !waits; {
		if time.Now().After(late) {
			t.Fatal("no migration waits for the transaction")
		}
		err := db.QueryRowContext(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'ledger_attempts'::regclass)`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = tx.ExecContext(t.Context(), `INSERT INTO ledger_attempts (item_id, kind, attempt, epoch, agent, finished_at, outcome, final) VALUES (1, 'k', 1, 1, 'x', now(), 0, true)`)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Error("work:", err)
		_ = tx.Rollback() // the migration goes on
	}
	if err := <-migrated; err != nil {
		t.Error("migration:", err)
	}
}

// older makes a ledger with the migrations up to the newest.
func older(t *testing.T, newest string) (target string) {
	t.Helper()
	target = pgtest.Database(t)
	old := fstest.MapFS{}
	files, err := fs.ReadDir(schema.Postgres, "postgres")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() <= newest {
			text, err := fs.ReadFile(schema.Postgres, "postgres/"+f.Name())
			if err != nil {
				t.Fatal(err)
			}
			old[f.Name()] = &fstest.MapFile{Data: text}
		}
	}
	db, err := sql.Open("pgx", target)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	p, err := goose.NewProvider(goose.DialectPostgres, db, old, goose.WithTableName(schema.Table), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	return target
}
