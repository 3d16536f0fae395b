package load

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"slices"
	"strings"

	"modernc.org/sqlite"
)

const (
	busyTime  = "2000"  // milliseconds that a load waits for the lock before it is put off
	maxParams = 32766   // of a statement
	maxBatch  = 100     // rows of a statement
	maxBytes  = 1 << 20 // of values that wait for more rows
)

func openSQLite(path string) (*Database, error) {
	q := url.Values{"_pragma": {"busy_timeout(" + busyTime + ")"}}
	db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1) // several would only wait for each other, in no order
	return &Database{
		db:        db,
		path:      path,
		begin:     []string{"BEGIN IMMEDIATE"},
		oneWriter: true,
		makeMarkers: `CREATE TABLE IF NOT EXISTS ledgerd_loads (
			identity TEXT NOT NULL, round TEXT NOT NULL, kind TEXT NOT NULL, scope TEXT NOT NULL, item_key TEXT NOT NULL,
			attempt INTEGER NOT NULL, target TEXT NOT NULL, row_count INTEGER NOT NULL, sha256 TEXT NOT NULL, load_id INTEGER,
			loaded_at TEXT NOT NULL DEFAULT (strftime('%Y-%m-%d %H:%M:%fZ', 'now')), PRIMARY KEY (identity, round)) STRICT`,
		insertMarker: `INSERT INTO ledgerd_loads (identity, round, kind, scope, item_key, attempt, target, row_count, sha256, load_id)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)` + newerMarker,
		selectMarkers: `SELECT round, attempt, target, row_count, sha256, load_id FROM ledgerd_loads
			WHERE identity = ? AND (round = ? OR attempt > ?) ORDER BY attempt`,
		dropMarkers: "DELETE FROM ledgerd_loads WHERE identity = ? AND round <> ? AND attempt < ? AND target = ?",
		untagged: `SELECT kind FROM ledgerd_loads WHERE ?1 IN ('', kind) AND item_key = ?2 AND target = ?3 AND load_id IS NULL
			AND row_count > 0 ORDER BY kind LIMIT 1`,
		loadsOf: "SELECT load_id FROM ledgerd_loads WHERE ?1 IN ('', kind) AND item_key = ?2 AND load_id IS NOT NULL",
		rowsOfLast: "SELECT row_count FROM ledgerd_loads WHERE ?1 IN ('', kind) AND item_key = ?2 AND target = ?3 ORDER BY " +
			"loaded_at DESC LIMIT 1",
		kindsOf: `SELECT DISTINCT kind FROM ledgerd_loads l WHERE item_key = ?2 AND load_id IS NOT NULL
			AND EXISTS (SELECT 1 FROM ledgerd_loads WHERE item_key = ?2 AND kind <> ?1)
			AND EXISTS (SELECT 1 FROM %s t WHERE t.ledgerd_load = l.load_id) ORDER BY kind`,
		marksOfTable: "DELETE FROM ledgerd_loads WHERE target = ?",
		filesOfTable: "SELECT count(DISTINCT item_key) FROM ledgerd_loads WHERE target = ? AND item_key <> ? AND row_count > 0",
		selectColumns: `SELECT name, type, CASE WHEN type LIKE '%INT%' THEN 'N'
			WHEN type LIKE '%CHAR%' OR type LIKE '%CLOB%' OR type LIKE '%TEXT%' THEN 'S'
			WHEN type LIKE '%REAL%' OR type LIKE '%FLOA%' OR type LIKE '%DOUB%' THEN 'N' ELSE '' END,
			CASE WHEN type LIKE '%INT%' THEN 'whole64' ELSE lower(type) END
			FROM pragma_table_info(replace(?, '"', ''))`, // the affinity: numbers in a column of text are text
		types: map[Type]string{Text: "TEXT", Int: "INTEGER", Decimal: "NUMERIC", Bool: "INTEGER", Date: "TEXT",
			Time: "TEXT"},
		takes: map[Type]string{Int: "N", Decimal: "N", Bool: "N", Date: "S", Time: "S"},
		changeType: "if only files have filled the table, DROP TABLE %[1]s, then ledgerd run %[4]s INPUT… --again with the " +
			"same settings: it makes the table anew with %[2]s %[3]s and loads all files",
		foldsNames:    true,
		maxName:       1 << 20,
		newSink:       newInserter,
		reason:        sqliteReason,
		noUniqueIndex: func(err error) bool { return strings.Contains(err.Error(), "ON CONFLICT clause") },
	}, nil
}

// sqliteReason translates an error code of SQLite, by its primary code.
func sqliteReason(err error) (code string, again, known bool) {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return "", false, false
	}
	switch e.Code() & 0xff {
	case 5, 6: // SQLITE_BUSY, SQLITE_LOCKED
		return Busy, true, true
	case 1: // SQLITE_ERROR: the statement is invalid there
		return "bad_table", false, true
	case 18, 20: // SQLITE_TOOBIG, SQLITE_MISMATCH
		return "bad_value", false, true
	case 19: // SQLITE_CONSTRAINT
		return "constraint", false, true
	case 8, 23: // SQLITE_READONLY, SQLITE_AUTH
		return "forbidden", false, true
	case 26: // SQLITE_NOTADB
		return "no_database", false, true
	}
	return "database", true, true
}

func cannotOpen(err error) bool {
	e, ok := errors.AsType[*sqlite.Error](err)
	return ok && e.Code()&0xff == 14 // SQLITE_CANTOPEN
}

// inserter inserts rows, several with one statement. A value is text. SQLite converts it to the declared type of the
// column if nothing is lost.
type inserter struct {
	many, one *sql.Stmt
	width     int
	most      int // rows of many
	args      []any
	bytes     int // of args
}

func newInserter(ctx context.Context, conn *sql.Conn, to into) (sink, error) {
	in := &inserter{width: len(to.columns), most: max(1, min(maxBatch, maxParams/len(to.columns)))}
	row := "(?" + strings.Repeat(", ?", in.width-1) + ")"
	insert, update := "INSERT INTO "+to.table+" ("+quoteAll(to.columns)+") VALUES "+row, to.update()
	var err error
	if in.one, err = conn.PrepareContext(ctx, insert+update); err == nil {
		in.many, err = conn.PrepareContext(ctx, insert+strings.Repeat(", "+row, in.most-1)+update)
	}
	if err != nil {
		in.abandon()
		return nil, err
	}
	return in, nil
}

func (in *inserter) add(ctx context.Context, values [][]byte) error {
	for _, v := range values {
		if v == nil {
			in.args = append(in.args, nil)
		} else {
			in.args = append(in.args, string(v))
			in.bytes += len(v)
		}
	}
	switch {
	case len(in.args) == in.most*in.width:
		_, err := in.many.ExecContext(ctx, in.args...)
		in.clear()
		return err
	case in.bytes > maxBytes:
		return in.end(ctx)
	}
	return nil
}

func (in *inserter) clear() {
	clear(in.args)
	in.args, in.bytes = in.args[:0], 0
}

// end inserts the remaining rows one by one.
func (in *inserter) end(ctx context.Context) error {
	defer in.clear()
	for row := range slices.Chunk(in.args, in.width) {
		if _, err := in.one.ExecContext(ctx, row...); err != nil {
			return err
		}
	}
	return nil
}

func (in *inserter) abandon() {
	for _, s := range []*sql.Stmt{in.one, in.many} {
		if s != nil {
			_ = s.Close() // it has no effect on the load
		}
	}
}
