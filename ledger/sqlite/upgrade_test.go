package sqlite_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
	"github.com/ledgerd/ledgerd/schema"
)

// A ledger of an older schema, with work in it, goes on as it is.
func TestUpgrade(t *testing.T) {
	storetest.Upgrade(t, func(t *testing.T, newest string) storetest.Older {
		path := newPath(t)
		db := database(t, path)
		storetest.Migrate(t, db, goose.DialectSQLite3, schema.SQLite, "sqlite", newest)
		return storetest.Older{
			Exec:   func(statement string) { run(t, db, statement) },
			Moment: func(m time.Time) string { return fmt.Sprint(m.UnixMicro()) },
			LockID: "randomblob(16)",
			Open: func() *ledger.Ledger {
				return ledger.New(mustOpen(t, path, sqlite.Options{MustExist: true}), ledger.Options{})
			},
		}
	})
}
