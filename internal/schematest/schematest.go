// Package schematest makes ledgers of older schemas for tests.
package schematest

import (
	"database/sql"
	"io/fs"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/schema"
)

// Migrate makes a ledger by the migrations in a folder of files, up to and with the file that newest names.
func Migrate(t testing.TB, db *sql.DB, dialect goose.Dialect, files fs.FS, folder, newest string) {
	t.Helper()
	old := fstest.MapFS{}
	all, err := fs.ReadDir(files, folder)
	must.OK(t, err)
	for _, f := range all {
		if f.Name() <= newest {
			text, err := fs.ReadFile(files, folder+"/"+f.Name())
			must.OK(t, err)
			old[f.Name()] = &fstest.MapFile{Data: text}
		}
	}
	p, err := goose.NewProvider(dialect, db, old, goose.WithTableName(schema.Table), goose.WithDisableGlobalRegistry(true))
	must.OK(t, err)
	must.Do(t)(p.Up(t.Context()))
}
