package lockable

import (
	"context"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/ledger"
)

// rows runs a query and calls each for every row.
func rows(ctx context.Context, db ledger.Conn, query string, args []any,
	each func(scan func(...any) error) error) error {
	r, err := db.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer r.Close()
	for r.Next() {
		if err := each(r.Scan); err != nil {
			return err
		}
	}
	return r.Err()
}

// describePostgres reads the description of a table from Postgres; nil if there is no such table.
func describePostgres(ctx context.Context, db ledger.Conn, schema, name string) (*table, error) {
	asked := quote(name)
	if schema != "" {
		asked = quote(schema) + "." + asked
	}
	var oid int64
	var kind, inSchema, actual string
	err := rows(ctx, db,
		`SELECT c.oid::bigint, c.relkind::text, n.nspname::text, c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)`, []any{asked}, func(scan func(...any) error) error { return scan(&oid, &kind, &inSchema, &actual) })
	if err != nil || oid == 0 {
		return nil, err
	}
	if kind != "r" && kind != "p" {
		return nil, invalid("name", "%s is not a table, so its rows cannot be locked; name the table that holds them", asked)
	}
	t := &table{name: quote(inSchema) + "." + quote(actual), bare: quote(actual)}
	err = rows(ctx, db,
		`SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), format_type(b.oid, -1), b.typname::text, b.typcategory::text,
 a.attnotnull, a.attgenerated <> '', CASE WHEN b.typname IN ('varchar', 'bpchar') AND a.atttypmod > 4 THEN a.atttypmod - 4 ELSE 0 END
FROM pg_attribute a JOIN pg_type d ON d.oid = a.atttypid JOIN pg_type b ON b.oid = CASE d.typtype WHEN 'd' THEN d.typbasetype ELSE d.oid END
WHERE a.attrelid = $1::bigint AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`, []any{oid}, func(scan func(...any) error) error {
			var c column
			var name, category string
			if err := scan(&c.name, &c.declared, &c.cast, &name, &category, &c.notNull, &c.generated, &c.length); err != nil {
				return err
			}
			switch {
			case name == "int8" || name == "int4" || name == "int2":
				c.class = number
				if name != "int2" {
					c.expires = number
				}
			case name == "uuid":
				c.class = uuidType
			case name == "timestamptz":
				c.class, c.expires = timestamptz, timestamptz
			case category == "S":
				c.class = text
			}
			t.columns = append(t.columns, c)
			return nil
		})
	if err != nil {
		return nil, err
	}
	err = t.indexes(ctx, db,
		`SELECT i.indexrelid::bigint, i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indimmediate, coalesce(a.attname::text, '')
FROM pg_index i CROSS JOIN generate_series(0, i.indnkeyatts - 1) n LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n] AND a.attnum > 0
WHERE i.indrelid = $1::bigint AND i.indisvalid ORDER BY 1, n`, oid)
	return t, err
}

// indexes notes the indexes of a table. The rows of the query are (index, unique, column), in the order of the columns
// of each index; the column "" is an expression.
func (t *table) indexes(ctx context.Context, db ledger.Conn, query string, args ...any) error {
	uniques := map[int64][]string{}
	var last int64
	err := rows(ctx, db, query, args, func(scan func(...any) error) error {
		var id int64
		var unique bool
		var column string
		if err := scan(&id, &unique, &column); err != nil {
			return err
		}
		// A partial index counts as well: it may be an index of the rows that are held.
		if id != last {
			t.leading = append(t.leading, quote(column))
		}
		last = id
		if unique {
			uniques[id] = append(uniques[id], column)
		}
		return nil
	})
	for _, columns := range uniques {
		t.uniques = append(t.uniques, columns)
	}
	return err
}

// describeSQLite reads the description of a table from SQLite; nil if there is no such table.
func describeSQLite(ctx context.Context, db ledger.Conn, schema, name string) (*table, error) {
	var inSchema, actual, kind string
	err := rows(ctx, db,
		`SELECT schema, name, type FROM pragma_table_list WHERE name = ?1 COLLATE NOCASE AND (?2 = '' OR schema = ?2 COLLATE NOCASE)
ORDER BY schema <> 'temp', schema <> 'main' LIMIT 1`, []any{name, schema}, func(scan func(...any) error) error { return scan(&inSchema, &actual, &kind) })
	if err != nil || actual == "" {
		return nil, err
	}
	t := &table{name: quote(inSchema) + "." + quote(actual), bare: quote(actual)}
	if kind != "table" {
		return nil, invalid("name", "%s is a %s, whose rows cannot be locked; name the table that holds them", t.name, kind)
	}
	var primary []string
	// The last column of the primary key is an INTEGER. If it is the only one, it is the rowid and never NULL.
	var rowid bool
	err = rows(ctx, db,
		`SELECT name, type, "notnull", pk, hidden FROM pragma_table_xinfo(?1, ?2) WHERE hidden <> 1 ORDER BY cid`,
		[]any{actual, inSchema}, func(scan func(...any) error) error {
			var c column
			var pk, hidden int
			if err := scan(&c.name, &c.declared, &c.notNull, &pk, &hidden); err != nil {
				return err
			}
			c.generated = hidden > 1
			c.affinity()
			if pk > 0 {
				primary = append(primary, c.name)
				rowid = strings.EqualFold(c.declared, "INTEGER")
			}
			t.columns = append(t.columns, c)
			return nil
		})
	if err != nil {
		return nil, err
	}
	if len(primary) > 0 {
		t.uniques = append(t.uniques, primary)
	}
	if len(primary) == 1 && rowid {
		i := slices.IndexFunc(t.columns, func(c column) bool { return c.name == primary[0] })
		t.columns[i].notNull = true
	}
	err = t.indexes(ctx, db,
		`SELECT i.seq + 1, i."unique" AND NOT i.partial AND NOT EXISTS (SELECT 1 FROM pragma_index_xinfo(i.name, ?2) WHERE key AND cid < 0), coalesce(c.name, '')
FROM pragma_index_list(?1, ?2) i, pragma_index_xinfo(i.name, ?2) c WHERE c.key ORDER BY i.seq, c.seqno`, actual, inSchema)
	return t, err
}

// affinity sets the classes of a column by its declared type, as SQLite does (sqlite.org/datatype3.html).
func (c *column) affinity() {
	declared := strings.ToUpper(c.declared)
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(declared, w) })
	}
	switch {
	case has("INT"):
		c.class, c.expires = number, number
	case has("CHAR", "CLOB", "TEXT"):
		c.class, c.expires = text, text
	case has("DATETIME", "TIMESTAMP"):
		c.expires = text
	case declared == "" || has("BLOB"):
		c.class = untyped
	case has("UUID"): // as other databases declare it; numeric to SQLite, so text stays as it is
		c.class = text
	}
}
