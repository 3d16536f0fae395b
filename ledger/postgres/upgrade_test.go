package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/storetest"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger of an older schema, with work in it, is refused until it is brought up to date, and goes
// on as it is.
func TestUpgrade(t *testing.T) {
	storetest.Upgrade(t, func(t *testing.T, newest string) storetest.Older {
		target := older(t, newest)
		return storetest.Older{
			Exec:   func(statement string) { execute(t, target, statement) },
			Moment: func(m time.Time) string { return fmt.Sprintf("to_timestamp(%d)", m.Unix()) },
			LockID: "gen_random_uuid()",
			Open: func() *ledger.Ledger {
				if _, err := postgres.Connect(t.Context(), target, postgres.Options{}); !errors.Is(err, ledger.ErrSchema) {
					t.Fatalf("before it is migrated: %v", err)
				}
				s, err := postgres.Connect(t.Context(), target, postgres.Options{Migrate: true})
				if err != nil {
					t.Fatal(err)
				}
				l := ledger.New(s, ledger.Options{})
				t.Cleanup(func() { l.Close() })
				return l
			},
		}
	})
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
		err := db.QueryRowContext(t.Context(),
			`SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'ledger_attempts'::regclass)`).Scan(&waits)
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err = tx.ExecContext(t.Context(),
		`INSERT INTO ledger_attempts (item_id, kind, attempt, epoch, agent, finished_at, outcome, final) VALUES (1, 'k', 1, 1, 'x', now(), 0, true)`)
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

// TestStatementsOfSchema13: a program that began before leases had rows of their own can claim and end nothing from
// then on, even before it reads that it is too old. What it has under way stays its own for as long as it renews.
func TestStatementsOfSchema13(t *testing.T) {
	ctx, target := t.Context(), older(t, "00013_causes.sql")
	for _, statement := range []string{
		"INSERT INTO ledger_kinds (kind) VALUES ('k')",
		fmt.Sprintf("INSERT INTO ledger_items (kind, key, slot, created_at) "+
			"VALUES ('k', 'held', %d, now()), ('k', 'ready', %d, now())", scheduler.Slot("held"), scheduler.Slot("ready")),
		`INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at, attempt, locked_by, leased_at, expires_at, lock_id)
		 SELECT 1, kind, 2, slot, now(), 1, 'x', now(), now() - interval '1 s', gen_random_uuid()
		 FROM ledger_items WHERE id = 1`,
		`INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at)
		 SELECT 2, kind, 1, slot, now() FROM ledger_items WHERE id = 2`,
	} {
		execute(t, target, statement)
	}
	db, err := sql.Open("pgx", target)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	prepare := func(statement string) *sql.Stmt {
		t.Helper()
		st, err := db.PrepareContext(ctx, statement)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	const held = "(SELECT item_id FROM ledger_backlog WHERE item_id = 1 FOR UPDATE SKIP LOCKED)"
	renew := prepare("UPDATE ledger_backlog SET expires_at = now() + $1::interval WHERE item_id = ANY(ARRAY" + held +
		") RETURNING item_id, lock_id, expires_at, cancel")
	gone := map[string]*sql.Stmt{
		"add": prepare("INSERT INTO ledger_backlog (item_id, kind, state, slot, due_at) VALUES (3, 'k', 1, 0, now())"),
		"claim": prepare(`UPDATE ledger_backlog SET state = 2, attempt = attempt + 1, locked_by = 'x',
		 lock_id = gen_random_uuid(), leased_at = now(), expires_at = now() WHERE item_id = 2`),
		"end":  prepare("DELETE FROM ledger_backlog WHERE item_id = 1 RETURNING leased_at, attempt, lock_id, locked_by"),
		"load": prepare("SELECT state, locked_by FROM ledger_backlog WHERE item_id = 1 FOR UPDATE"),
	}
	now := time.Now()
	s, err := postgres.Connect(ctx, target, postgres.Options{Migrate: true, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	l := ledger.New(s, ledger.Options{})
	defer l.Close()
	for name, st := range gone {
		var refused *pgconn.PgError
		if _, err := st.ExecContext(ctx); !errors.As(err, &refused) || refused.Code != undefinedColumn {
			t.Errorf("%s: %v", name, err)
		}
	}
	if done, err := renew.ExecContext(ctx, "1 hour"); err != nil {
		t.Fatal(err)
	} else if n, err := done.RowsAffected(); n != 1 || err != nil {
		t.Errorf("%d rows renewed, %v", n, err)
	}
	expired := func(want int) {
		t.Helper()
		if n, err := l.Expire(ctx, 10); n != want || err != nil {
			t.Errorf("%d expired, want %d, %v", n, want, err)
		}
	}
	expired(0)
	claimed := func(attempt int64, want ...int64) {
		t.Helper()
		got, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 10})
		ids := make([]int64, 0, len(got))
		for _, ls := range got {
			ids = append(ids, ls.ID)
			if int64(ls.Attempt) != attempt {
				t.Errorf("item %d is claimed as attempt %d", ls.ID, ls.Attempt)
			}
		}
		if slices.Sort(ids); !slices.Equal(ids, want) || err != nil {
			t.Errorf("claimed %d, want %d, %v", ids, want, err)
		}
	}
	claimed(1, 2)
	now = now.Add(2 * time.Hour)
	expired(2)
	claimed(2, 1, 2)
	for v, err := range l.Verify(ctx) {
		t.Error(v, err)
	}
}

// undefinedColumn is the code of a column that does not exist.
const undefinedColumn = "42703"

// older makes a ledger with the migrations up to the newest.
func older(t *testing.T, newest string) (target string) {
	t.Helper()
	target = pgtest.Database(t)
	db, err := sql.Open("pgx", target)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	storetest.Migrate(t, db, goose.DialectPostgres, schema.Postgres, "postgres", newest)
	return target
}
