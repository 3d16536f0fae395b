package postgres_test

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/schematest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/storetest"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger of an older schema, with work in it, is refused until it is brought up to date, and goes
// on as it is.
func TestUpgrade(t *testing.T) {
	target := older(t)
	storetest.Upgrade(t, storetest.Older{
		Exec:   func(statement string) { execute(t, target, statement) },
		Moment: func(m time.Time) string { return fmt.Sprintf("to_timestamp(%d)", m.Unix()) },
		State:  "stage",
		Open: func() *ledger.Ledger {
			if _, err := postgres.Connect(t.Context(), target, postgres.Options{}); !errors.Is(err, ledger.ErrSchema) {
				t.Fatalf("before it is migrated: %v", err)
			}
			s, err := postgres.Connect(t.Context(), target, postgres.Options{Migrate: true})
			must.OK(t, err)
			l := ledger.New(s, ledger.Options{})
			t.Cleanup(func() { l.Close() })
			return l
		},
	})
}

// A ledger of a build before the first release is refused, also where it is to be migrated.
func TestUnreleased(t *testing.T) {
	target := older(t)
	execute(t, target, fmt.Sprintf("UPDATE ledger_migrations SET version_id = %d WHERE version_id = %d", schema.Oldest-1,
		schema.Oldest))
	_, err := postgres.Connect(t.Context(), target, postgres.Options{Migrate: true})
	if e, ok := errors.AsType[*ledger.Error](err); !ok || !errors.Is(err, ledger.ErrSchema) ||
		!strings.Contains(e.Message, fmt.Sprintf("has schema %d, of a build before the first release", schema.Oldest-1)) {
		t.Errorf("%v", err)
	}
}

// older makes a ledger of the oldest schema.
func older(t *testing.T) (target string) {
	t.Helper()
	target = pgtest.Database(t)
	db, err := sql.Open("pgx", target)
	must.OK(t, err)
	defer db.Close()
	schematest.Migrate(t, db, goose.DialectPostgres, schema.Postgres, "postgres",
		fmt.Sprintf("%05d_ledger.sql", schema.Oldest))
	return target
}
