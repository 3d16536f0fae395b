package tables_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/tables"
	"github.com/ledgerd/ledgerd/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store are the methods of both stores.
type store interface {
	ledger.Store
	tables.Store
}

// place is a file or a schema for one ledger.
type place struct {
	name string
	open func() (store, error)
	// sql answers a query with one column of texts.
	sql func(query string) []string
}

func sqlitePlace(t testing.TB) place {
	path := filepath.Join(t.TempDir(), "ledger.db")
	return place{"sqlite", func() (store, error) {
		return sqlite.Open(t.Context(), path, sqlite.Options{})
	}, func(query string) []string { return rowsOf(t, "sqlite", path, "main", query) }}
}

// rowsOf returns the rows of a query, each of them one text. {{S}} in it stands for the schema.
func rowsOf(t testing.TB, driver, source, schema, query string) (all []string) {
	t.Helper()
	db, err := sql.Open(driver, source)
	must.OK(t, err)
	defer db.Close()
	rows, err := db.QueryContext(t.Context(), strings.ReplaceAll(query, "{{S}}", schema))
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		must.OK(t, rows.Scan(&text))
		all = append(all, text)
	}
	must.OK(t, rows.Err())
	return all
}

func postgresPlace(t testing.TB) place {
	name, pool := pgtest.Schema(t), pgtest.Pool(t)
	return place{"postgres", func() (store, error) {
		return postgres.Open(t.Context(), pool, postgres.Options{Schema: name})
	}, func(query string) []string { return rowsOf(t, "pgx", pgtest.URL(t), name, query) }}
}

func mustOpen(t testing.TB, p place) store {
	t.Helper()
	s, err := p.open()
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, s.Close()) })
	return s
}

// describe returns the tables of a store.
func describe(t testing.TB, s store) (all []tables.Table) {
	t.Helper()
	err := s.ReadTables(t.Context(), func(r tables.Reader) (err error) {
		all, err = r.Tables()
		return err
	})
	must.OK(t, err)
	return all
}

// A table that a migration makes and tables.go does not declare would be lost by a copy.
func TestEveryTableOfTheSchemaIsDeclared(t *testing.T) {
	declared := map[string][]string{"sqlite": {schema.Meta, schema.Table}, "postgres": {schema.Meta, schema.Table}}
	for _, d := range schema.Tables {
		declared["postgres"] = append(declared["postgres"], d.Name)
		if !d.Apart {
			declared["sqlite"] = append(declared["sqlite"], d.Name)
		}
	}
	columns := map[string]map[string][]string{}
	for _, p := range []struct {
		place
		names string // query for the names of all tables
	}{
		{sqlitePlace(t), `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`},
		{postgresPlace(t), `SELECT relname::text FROM pg_class WHERE relnamespace = '{{S}}'::regnamespace AND relkind = 'r' ORDER BY relname COLLATE "C"`},
	} {
		s := mustOpen(t, p.place)
		want := slices.Sorted(slices.Values(declared[p.name]))
		if made := p.sql(p.names); !slices.Equal(made, want) {
			t.Errorf("%s: the migrations make %v, package schema declares %v", p.name, made, want)
		}
		columns[p.name] = map[string][]string{}
		for _, table := range describe(t, s) {
			columns[p.name][table.Name] = slices.Sorted(slices.Values(table.Columns))
			for _, k := range table.Key {
				if !slices.Contains(table.Columns, k) {
					t.Errorf("%s: %s has no column %s", p.name, table.Name, k)
				}
			}
		}
	}
	for name, has := range columns["sqlite"] {
		if pg := columns["postgres"][name]; !slices.Equal(has, pg) {
			t.Errorf("%s has columns %v on SQLite, %v on Postgres", name, has, pg)
		}
	}
}

// Both databases have a unique index on the key of each table, and on no other column.
func TestKeysAreUnique(t *testing.T) {
	lite, pg := sqlitePlace(t), postgresPlace(t)
	mustOpen(t, lite)
	mustOpen(t, pg)
	for _, d := range append(schema.Tables, schema.Content{Name: schema.Meta, Key: []string{"k"}}) {
		want := strings.Join(d.Key, ",")
		indexes := append(
			lite.sql(
				`SELECT coalesce((SELECT group_concat(name, ',') FROM (SELECT name FROM pragma_index_info(l.name) ORDER BY seqno)), '') FROM pragma_index_list('`+d.Name+`') l WHERE l."unique" AND NOT l.partial`),
			lite.sql(`SELECT coalesce(group_concat(name, ','), '') FROM (SELECT name FROM pragma_table_info('`+d.Name+
				`') WHERE pk > 0 ORDER BY pk)`)...)
		if !d.Apart && !slices.Contains(indexes, want) {
			t.Errorf("sqlite: %s has no unique index on %s, only on %q", d.Name, want, indexes)
		}
		indexes = pg.sql(
			`SELECT string_agg(a.attname, ',' ORDER BY k.n) FROM pg_index i CROSS JOIN unnest(i.indkey::int[]) WITH ORDINALITY k(att, n)
 JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.att WHERE i.indrelid = '{{S}}.` + d.Name + `'::regclass AND i.indisunique AND i.indpred IS NULL GROUP BY i.indexrelid`)
		if !slices.Contains(indexes, want) {
			t.Errorf("postgres: %s has no unique index on %s, only on %q", d.Name, want, indexes)
		}
	}
}

// dump returns the rows of all tables but ledger_meta.
func dump(t testing.TB, s tables.Store) map[string][]map[string]any {
	t.Helper()
	all := map[string][]map[string]any{}
	err := s.ReadTables(context.WithoutCancel(t.Context()), func(r tables.Reader) error {
		list, err := r.Tables()
		if err != nil {
			return err
		}
		for _, table := range list[1:] {
			err := r.Scan(table, func(row tables.Row) error {
				values := map[string]any{}
				for i, c := range table.Columns {
					values[c] = row[i]
					if b, ok := row[i].([]byte); ok {
						values[c] = append([]byte{}, b...)
					}
				}
				all[table.Name] = append(all[table.Name], values)
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	must.OK(t, err)
	return all
}
