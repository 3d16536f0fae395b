package load

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
)

func openPostgres(address, password string) (*Database, error) {
	config, err := pgx.ParseConfig(address)
	if err != nil {
		return nil, errors.New("the URL of Postgres makes no sense")
	}
	if password != "" {
		config.Password = password
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "ledgerd filecsv"
	}
	config.RuntimeParams["client_encoding"] = "UTF8"    // also if the role or the database has another
	config.RuntimeParams["timezone"] = "UTC"            // of times without a zone
	config.DefaultQueryExecMode = pgx.QueryExecModeExec // works through poolers, too
	return &Database{
		db: stdlib.OpenDB(*config),
		// A read after the lock sees everything that was committed. If a paused attempt holds rows, the load does not
		// wait for it but is put off.
		begin: []string{"BEGIN ISOLATION LEVEL READ COMMITTED", "SET LOCAL lock_timeout = '10s'"},
		makeMarkers: `CREATE TABLE IF NOT EXISTS ledgerd_loads (
			identity text NOT NULL, round text NOT NULL, kind text NOT NULL, scope text NOT NULL, item_key text NOT NULL,
			attempt bigint NOT NULL, target text NOT NULL, row_count bigint NOT NULL, sha256 text NOT NULL, load_id bigint,
			loaded_at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (identity, round))`,
		lockMaking: `SELECT pg_advisory_xact_lock(hashtextextended('ledgerd table ' ||
			CASE WHEN strpos($1::text, '.') > 0 THEN $1::text ELSE concat(current_schema(), '.', $1::text) END, 0))`,
		marksOfTable: "DELETE FROM ledgerd_loads WHERE target = $1::text",
		filesOfTable: `SELECT count(DISTINCT item_key) FROM ledgerd_loads
			WHERE target = $1::text AND item_key <> $2::text AND row_count > 0`,
		lockSource: "SELECT pg_advisory_xact_lock(hashtextextended($1::text, 0))",
		insertMarker: `INSERT INTO ledgerd_loads (identity, round, kind, scope, item_key, attempt, target, row_count, sha256, load_id)
			VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::bigint, $7::text, $8::bigint, $9::text, $10::bigint)` + newerMarker,
		selectMarkers: `SELECT round, attempt, target, row_count, sha256, load_id FROM ledgerd_loads
			WHERE identity = $1::text AND (round = $2::text OR attempt > $3::bigint) ORDER BY attempt`,
		dropMarkers: `DELETE FROM ledgerd_loads
			WHERE identity = $1::text AND round <> $2::text AND attempt < $3::bigint AND target = $4::text`,
		untagged: `SELECT kind FROM ledgerd_loads
			WHERE $1::text IN ('', kind) AND item_key = $2::text AND target = $3::text AND load_id IS NULL AND row_count > 0
			ORDER BY kind LIMIT 1`,
		loadsOf: "SELECT load_id FROM ledgerd_loads WHERE $1::text IN ('', kind) AND item_key = $2::text AND load_id IS NOT NULL",
		rowsOfLast: `SELECT row_count FROM ledgerd_loads
			WHERE $1::text IN ('', kind) AND item_key = $2::text AND target = $3::text ORDER BY loaded_at DESC LIMIT 1`,
		kindsOf: `SELECT DISTINCT kind FROM ledgerd_loads l WHERE item_key = $2::text AND load_id IS NOT NULL
			AND EXISTS (SELECT 1 FROM ledgerd_loads WHERE item_key = $2::text AND kind <> $1::text)
			AND EXISTS (SELECT 1 FROM %s t WHERE t.ledgerd_load = l.load_id) ORDER BY kind`,
		selectColumns: `SELECT attname, format_type(atttypid, atttypmod), CASE WHEN typcategory IN ('N', 'S', 'B', 'D') THEN typcategory::text ELSE '' END,
				format_type(coalesce(nullif(typbasetype, 0), t.oid), NULL)
			FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_type t ON t.oid = atttypid
			WHERE attrelid = to_regclass($1::text) AND attnum > 0 AND NOT attisdropped ORDER BY attnum`,
		types: map[Type]string{Text: "text", Int: "bigint", Decimal: "numeric", Bool: "boolean", Date: "date",
			Time: "timestamptz"},
		takes:      map[Type]string{Int: "N", Decimal: "N", Bool: "BN", Date: "D", Time: "D"},
		changeType: "ALTER TABLE %[1]s ALTER COLUMN %[2]s TYPE %[3]s USING %[2]s::%[3]s",
		maxName:    63,
		// https://www.postgresql.org/docs/current/ddl-system-columns.html
		systemColumns: []string{"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"},
		newSink:       newCopier,
		reason:        postgresReason,
		noUniqueIndex: func(err error) bool {
			e, ok := errors.AsType[*pgconn.PgError](err)
			return ok && e.Code == "42P10"
		},
	}, nil
}

// postgresReason translates an error code of Postgres, by its class.
func postgresReason(err error) (code string, again, known bool) {
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return "", false, false
	}
	switch {
	case e.Code == "55P03": // lock_not_available
		return Busy, true, true
	case strings.HasPrefix(e.Code, "22"):
		return "bad_value", false, true
	case strings.HasPrefix(e.Code, "23"):
		return "constraint", false, true
	case e.Code == "42501":
		return "forbidden", false, true
	case strings.HasPrefix(e.Code, "42"), strings.HasPrefix(e.Code, "54"), strings.HasPrefix(e.Code, "3F"):
		return "bad_table", false, true
	}
	return "database", true, true
}

// copier sends rows by COPY in text form: the server reads each value by the type of its column.
type copier struct {
	pipe *io.PipeWriter
	out  *bufio.Writer
	done chan error
}

func newCopier(ctx context.Context, conn *sql.Conn, to into) (sink, error) {
	if len(to.key) > 0 {
		return newMerger(ctx, conn, to)
	}
	return copyTo(ctx, conn, to.table, to.columns), nil
}

// merger sends rows to a temporary table and then merges them into the other one, where it updates existing rows. Of
// rows with the same key the last one counts. It merges in the order of the key, so that two merges do not deadlock.
type merger struct {
	*copier
	conn  *sql.Conn
	merge string
}

func newMerger(ctx context.Context, conn *sql.Conn, to into) (sink, error) {
	columns, key := quoteAll(to.columns), quoteAll(to.key)
	m := &merger{conn: conn, merge: "INSERT INTO " + to.table + " (" + columns + ") SELECT DISTINCT ON (" + key + ") " +
		columns +
		" FROM pg_temp.ledgerd_stage ORDER BY " + key + ", ledgerd_order DESC" + to.update()}
	for _, statement := range []string{
		"CREATE TEMPORARY TABLE ledgerd_stage ON COMMIT DROP AS SELECT " + columns + " FROM " + to.table + " WITH NO DATA",
		"ALTER TABLE pg_temp.ledgerd_stage ADD COLUMN ledgerd_order bigint GENERATED ALWAYS AS IDENTITY",
		m.merge, // without rows, so that it reports obstacles at once
	} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return nil, err
		}
	}
	m.copier = copyTo(ctx, conn, "pg_temp.ledgerd_stage", to.columns)
	return m, nil
}

func (m *merger) end(ctx context.Context) error {
	if err := m.copier.end(ctx); err != nil {
		return err
	}
	_, err := m.conn.ExecContext(ctx, m.merge)
	return err
}

func copyTo(ctx context.Context, conn *sql.Conn, table string, columns []string) *copier {
	r, w := io.Pipe()
	c := &copier{pipe: w, out: bufio.NewWriterSize(w, 64<<10), done: make(chan error, 1)}
	statement := "COPY " + table + " (" + quoteAll(columns) + ") FROM STDIN"
	go func() {
		err := conn.Raw(func(raw any) error {
			_, err := raw.(*stdlib.Conn).Conn().PgConn().CopyFrom(ctx, r, statement)
			return err
		})
		if err = whereOf(err); err == nil {
			err = io.ErrClosedPipe // add fails from now on
		} else {
			c.done <- err
		}
		_ = r.CloseWithError(err)
		close(c.done)
	}()
	return c
}

// whereOf adds the row and value to an error of COPY.
func whereOf(err error) error {
	if e := (*pgconn.PgError)(nil); errors.As(err, &e) && e.Where != "" {
		return &placed{err, e.Where}
	}
	return err
}

type placed struct {
	error
	where string
}

func (p *placed) Error() string { return p.error.Error() + "; " + p.where }
func (p *placed) Unwrap() error { return p.error }

func (c *copier) add(_ context.Context, values [][]byte) error {
	for i, v := range values {
		if i > 0 {
			c.out.WriteByte('\t')
		}
		if v == nil {
			c.out.WriteString(`\N`)
			continue
		}
		c.text(v)
	}
	return c.failed(c.out.WriteByte('\n')) // includes earlier errors
}

// text writes a value and escapes the characters that COPY interprets.
func (c *copier) text(v []byte) {
	from := 0
	for i, b := range v {
		var escape string
		switch b {
		case '\\':
			escape = `\\`
		case '\t':
			escape = `\t`
		case '\n':
			escape = `\n`
		case '\r':
			escape = `\r`
		default:
			continue
		}
		c.out.Write(v[from:i])
		c.out.WriteString(escape)
		from = i + 1
	}
	c.out.Write(v[from:])
}

// failed returns the error of COPY that caused an error of the pipe.
func (c *copier) failed(err error) error {
	if err == nil {
		return nil
	}
	if reason, more := <-c.done; more {
		return reason
	}
	return err
}

func (c *copier) end(context.Context) error {
	if err := c.failed(c.out.Flush()); err != nil {
		return err
	}
	_ = c.pipe.Close() // never fails
	return <-c.done
}

func (c *copier) abandon() {
	_ = c.pipe.CloseWithError(errors.New("abandoned"))
	for range c.done {
	}
}
