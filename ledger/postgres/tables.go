package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger/tables"
	"github.com/ledgerd/ledgerd/schema"
)

var _ tables.Store = (*Store)(nil)

// ReadTables implements tables.Store. While it runs, vacuum removes no dead rows, as during any long transaction.
func (s *Store) ReadTables(ctx context.Context, fn func(tables.Reader) error) error {
	snapshot := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	return s.withTables(ctx, snapshot, func(t *tablesOf) error { return fn(t) })
}

// WriteTables implements tables.Store.
func (s *Store) WriteTables(ctx context.Context, fn func(tables.Writer) error) error {
	return s.withTables(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(t *tablesOf) error {
		all := `{{S}}.` + schema.Meta
		for _, d := range schema.Tables {
			all += `, {{S}}.` + d.Name
		}
		if _, err := t.tx.Exec(ctx, t.sql("LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE", all)); err != nil {
			return err
		}
		return fn(t)
	})
}

func (s *Store) withTables(ctx context.Context, o pgx.TxOptions, fn func(*tablesOf) error) error {
	return s.runOnce(ctx, s.pool, func(ctx context.Context, c *pgx.Conn) error {
		tx, err := c.BeginTx(ctx, o)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx))
		// The other ledger may take any time meanwhile: that must not end this transaction or statement.
		if _, err := tx.Exec(ctx,
			"SET LOCAL idle_in_transaction_session_timeout = 0; SET LOCAL statement_timeout = 0"); err != nil {
			return err
		}
		if err := fn(&tablesOf{ctx: ctx, s: s, tx: tx}); err != nil {
			return err
		}
		return committing(tx.Commit(ctx))
	})
}

// tablesOf implements tables.Writer in a transaction.
type tablesOf struct {
	ctx   context.Context
	s     *Store
	tx    pgx.Tx
	types map[string]string // "table.column" → name of its type
}

func (t *tablesOf) sql(format string, args ...any) string {
	return t.s.render(fmt.Sprintf(format, args...))
}

func (t *tablesOf) Tables() ([]tables.Table, error) {
	all := []tables.Table{{Name: schema.Meta, Key: []string{"k"}}}
	for _, d := range schema.Tables {
		if !d.Apart {
			all = append(all, tables.Table{Name: d.Name, Key: d.Key})
		}
	}
	for i := range all {
		rows, err := t.tx.Query(t.ctx, t.sql(`SELECT * FROM %s LIMIT 0`, rowsOf(all[i])))
		if err != nil {
			return nil, err
		}
		for _, f := range rows.FieldDescriptions() {
			all[i].Columns = append(all[i].Columns, f.Name)
		}
		if rows.Close(); rows.Err() != nil {
			return nil, rows.Err()
		}
	}
	return all, nil
}

// rowsOf is the FROM clause of a table's rows as they are copied. Rows of the backlog carry their leases.
func rowsOf(table tables.Table) string {
	if table.Name == backlog {
		return work + ` b`
	}
	return `{{S}}.` + table.Name
}

// readTypes reads the types of all columns once.
func (t *tablesOf) readTypes() error {
	if t.types != nil {
		return nil
	}
	rows, err := t.tx.Query(t.ctx,
		`SELECT c.relname || '.' || a.attname, format_type(a.atttypid, NULL) FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relnamespace = $1::text::regnamespace AND c.relkind = 'r' AND a.attnum > 0 AND NOT a.attisdropped`, t.s.schema)
	if err != nil {
		return err
	}
	t.types = map[string]string{}
	var column, kind string
	_, err = pgx.ForEachRow(rows, []any{&column, &kind}, func() error {
		t.types[column] = kind
		return nil
	})
	return err
}

func (t *tablesOf) Scan(table tables.Table, each func(tables.Row) error) error {
	rows, err := t.tx.Query(t.ctx, t.sql(`SELECT %s FROM %s ORDER BY %s`, strings.Join(table.Columns, ", "), rowsOf(table),
		strings.Join(table.Key, ", ")))
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return err
		}
		if err := neutral(values); err != nil {
			return fmt.Errorf("%s: %w", table.Name, err)
		}
		if err := each(values); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *tablesOf) Empty(table tables.Table) (empty bool, err error) {
	err = t.tx.QueryRow(t.ctx, t.sql(`SELECT NOT EXISTS (SELECT 1 FROM {{S}}.%s)`, table.Name)).Scan(&empty)
	return empty, err
}

// Insert copies rows in: this is several times as fast as inserting them.
func (t *tablesOf) Insert(table tables.Table, all []tables.Row) error {
	if err := t.readTypes(); err != nil {
		return err
	}
	if table.Name == backlog {
		leases, columns, rows := apart(table, all)
		if err := t.insertLeases(leases); err != nil {
			return err
		}
		table.Columns, all = columns, rows
	}
	kinds := make([]string, len(table.Columns))
	for i, c := range table.Columns {
		kinds[i] = t.types[table.Name+"."+c]
	}
	next := pgx.CopyFromSlice(len(all), func(i int) ([]any, error) {
		values := make([]any, len(kinds))
		for j, v := range all[i] {
			var err error
			if values[j], err = native(v, kinds[j]); err != nil {
				return nil, fmt.Errorf("%s.%s: %w", table.Name, table.Columns[j], err)
			}
		}
		return values, nil
	})
	_, err := t.tx.CopyFrom(t.ctx, pgx.Identifier{t.s.schemaName, table.Name}, table.Columns, next)
	return err
}

func (t *tablesOf) SetMeta(key, value string) error {
	_, err := t.tx.Exec(t.ctx, t.sql(`INSERT INTO {{S}}.ledger_meta (k, v) VALUES ($1, $2)
 ON CONFLICT (k) DO UPDATE SET v = excluded.v`), key, value)
	return err
}

// sequence is the quoted name of the sequence that numbers the table's rows, "" if there is none.
func (t *tablesOf) sequence(table tables.Table) (name string, err error) {
	err = t.tx.QueryRow(t.ctx,
		t.sql(`SELECT coalesce(max(pg_get_serial_sequence('{{S}}.%s', attname)), '') FROM pg_attribute
 WHERE attrelid = '{{S}}.%[1]s'::regclass AND attidentity <> '' AND NOT attisdropped`, table.Name)).Scan(&name)
	return name, err
}

func (t *tablesOf) Sequence(table tables.Table) (last int64, err error) {
	name, err := t.sequence(table)
	if err != nil || name == "" {
		return 0, err
	}
	err = t.tx.QueryRow(t.ctx, `SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM `+name).Scan(&last)
	return last, err
}

func (t *tablesOf) SetSequence(table tables.Table, last int64) error {
	name, err := t.sequence(table)
	if err != nil || name == "" || last == 0 {
		return err
	}
	_, err = t.tx.Exec(t.ctx, `SELECT setval($1::text::regclass, greatest($2, (SELECT last_value FROM `+name+`)))`, name,
		last)
	return err
}

// neutral converts the values of a row to the types of package tables.
func neutral(row []any) error {
	for i, v := range row {
		switch v := v.(type) {
		case nil, int64, string, []byte:
		case int16:
			row[i] = int64(v)
		case int32:
			row[i] = int64(v)
		case bool:
			row[i] = int64(0)
			if v {
				row[i] = int64(1)
			}
		case time.Time:
			row[i] = v.UnixMicro()
		case [16]byte:
			row[i] = v[:]
		default:
			return fmt.Errorf("a value of type %T cannot be copied", v)
		}
	}
	return nil
}

// native converts a value of package tables to what pgx takes for a column of this type.
func native(v any, kind string) (any, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case int64:
		switch kind {
		case "bigint", "integer", "smallint":
			return v, nil
		case "boolean":
			return v != 0, nil
		case "timestamp with time zone":
			return time.UnixMicro(v), nil
		}
	case string:
		if kind == "text" {
			return v, nil
		}
	case []byte:
		switch {
		case kind == "bytea":
			return v, nil
		case kind == "uuid" && len(v) == 16:
			return [16]byte(v), nil
		}
	}
	return nil, fmt.Errorf("a column of type %s cannot have a %T", kind, v)
}
