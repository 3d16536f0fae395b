package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"

	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/schema"
)

// state is the state of a file, as inspect finds it.
type state struct {
	have           int    // number of its newest migration, 0: no ledger
	compatibleFrom int    // the lowest number that a program must know
	restored       string // its floors, as sqlstore.Floors parses them
	environment    string
	wal            bool // the file is in the mode of write-ahead logging
	foreign        bool // another program has a table with one of our names
}

// Status reads the schema of a file without changing the file. have is the number of its newest migration, 0 if there
// is no ledger; want is the number of this program. If the program is too old for the ledger, the error is
// ledger.ErrSchema, and have is still set.
func Status(ctx context.Context, path string) (have, want int, err error) {
	f, err := locate(path, true)
	if errors.Is(err, ledger.ErrNoLedger) {
		return 0, schema.Version, nil
	}
	if err != nil {
		return 0, schema.Version, err
	}
	st, err := inspect(ctx, f)
	if err == nil {
		err = st.fits(f)
	}
	return st.have, schema.Version, explain(path, err)
}

// inspect reads the state of the file.
func inspect(ctx context.Context, f *file) (st state, err error) {
	h, err := open(ctx, f.uri("busy_timeout(5000)", "query_only(1)"))
	if err != nil {
		return st, err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	mode, err := pragma(ctx, h, "journal_mode")
	if err != nil {
		return st, err
	}
	st.wal = mode == "wal"
	tables := map[string]bool{}
	err = h.with(ctx).query("SELECT name FROM sqlite_schema WHERE type = 'table' AND name IN ('ledger_items', "+
		"'ledger_meta', '"+schema.Table+"')", func(r row) error {
		tables[r.text(0)] = true
		return nil
	})
	if err == nil && tables[schema.Table] {
		err = h.with(ctx).query("SELECT coalesce(max(version_id), 0) FROM "+schema.Table+" WHERE is_applied",
			func(r row) error {
				st.have = int(r.int(0))
				return nil
			})
	}
	if err == nil && tables["ledger_meta"] && st.have > 0 {
		err = st.readNumbers(h.with(ctx))
	}
	st.foreign = st.have == 0 && (tables["ledger_items"] || tables["ledger_meta"])
	return st, err
}

// Schema implements ledger.Store.
func (s *Store) Schema(ctx context.Context) (ledger.Schema, error) {
	var st state
	if err := s.probe(ctx, func(r session) error { return st.readNumbers(r) }); err != nil {
		return ledger.Schema{}, err
	}
	return st.floored(s.file)
}

// floored is schema with the floors.
func (st state) floored(f *file) (known ledger.Schema, err error) {
	known = st.schema(f)
	known.Floors, err = sqlstore.Floors(st.restored)
	return known, err
}

// schema returns the part of the state that the rules of package ledger check.
func (st state) schema(f *file) ledger.Schema {
	return ledger.Schema{Ledger: f.name, Have: st.have, Compatible: st.compatibleFrom, Oldest: schema.Oldest,
		Known: schema.Version, Environment: st.environment}
}

// readNumbers reads the versions of the ledger in the file.
func (st *state) readNumbers(s session) error {
	const fact = "coalesce((SELECT v FROM ledger_meta WHERE k = '"
	return s.query("SELECT CAST(v AS INTEGER), (SELECT max(version_id) FROM "+schema.Table+" WHERE is_applied), "+
		fact+schema.Restored+"'), ''), "+fact+schema.Environment+"'), '')\n"+
		" FROM ledger_meta WHERE k = 'compatible_from'", func(r row) error {
		st.compatibleFrom, st.have = int(r.int(0)), int(r.int(1))
		st.restored, st.environment = r.text(2), r.text(3)
		return nil
	})
}

// fits returns an error if this program cannot use the file.
func (st state) fits(f *file) error {
	if st.foreign {
		return foreign(f.name, "its table ledger_items is another program's")
	}
	return st.schema(f).Fits()
}

// usable inspects the file and returns an error if it cannot be opened.
func usable(ctx context.Context, f *file, o Options) (state, error) {
	st, err := inspect(ctx, f)
	switch {
	case err != nil:
		return st, err
	case st.fits(f) != nil:
		return st, st.fits(f)
	case st.have == 0 && o.MustExist:
		return st, noLedger(f.name)
	}
	return st, nil
}

func (st state) current() bool { return st.wal && st.have >= schema.Version }

// ensure gives the file this program's schema, or keeps a newer schema that this program may use. Mostly there is
// nothing to do, and it takes no lock to check that.
func ensure(ctx context.Context, f *file, o Options) error {
	if !missing(f) {
		st, err := usable(ctx, f, o)
		if err == nil && st.current() || err != nil && !busy(err) {
			return err
		}
	}
	waiting, cancel := context.WithTimeout(ctx, o.Wait) // applies to other programs; our own migration has no limit
	unlock, err := f.lock(waiting)
	cancel()
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return locked(f.name, err)
	}
	if err != nil {
		return err
	}
	defer unlock()
	if err := f.create(); err != nil {
		return err
	}
	st, err := usable(ctx, f, o)
	switch {
	case err != nil || st.current():
		return err
	case 0 < st.have && st.have < schema.Version: // older, and complete: while a ledger is made, its maker holds the lock
		return upgrade(ctx, f, st, o)
	}
	return migrate(ctx, f, st)
}

func missing(f *file) bool {
	_, err := os.Stat(f.path)
	return errors.Is(err, fs.ErrNotExist)
}

// migrate switches the file to write-ahead logging and applies the missing migrations. The caller holds the lock.
func migrate(ctx context.Context, f *file, st state) error {
	c, err := sqlite.NewConnector(f.uri("busy_timeout(5000)", "journal_mode(WAL)", "synchronous(FULL)") +
		"&_txlock=immediate")
	if err != nil {
		return err
	}
	db := sql.OpenDB(c)
	defer db.Close()
	if err := db.PingContext(ctx); err != nil { // sets the pragmas
		return err
	}
	if st.have >= schema.Version {
		return nil
	}
	files, err := fs.Sub(schema.SQLite, "sqlite")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files, goose.WithTableName(schema.Table),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	_, err = p.Up(ctx)
	return err
}
