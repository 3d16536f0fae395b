package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/dburl"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/query"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// place is a database with a ledger, and a function that makes queries of the database.
type place struct {
	ledger *ledger.Ledger
	db     *sql.DB
	query  func(text string) *query.Query
}

// places returns a place on each database.
func places(t *testing.T) map[string]place {
	t.Helper()
	must := func(err error) {
		t.Helper()
		must.OK(t, err)
	}
	path := filepath.Join(t.TempDir(), "ledger.db")
	lite, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	must(err)
	liteDB, err := sql.Open("sqlite", path)
	must(err)
	address := pgtest.SchemaURL(t)
	at, err := app.ParseAddress(address, "test")
	must(err)
	pg, err := at.Open(t.Context(), dburl.Options{Make: true})
	must(err)
	pgDB, err := sql.Open("pgx", address)
	must(err)
	open := func(q *query.Query, err error) *query.Query {
		must(err)
		t.Cleanup(func() { q.Close() })
		return q
	}
	all := map[string]place{
		"sqlite": {ledger.New(lite, ledger.Options{}), liteDB, func(text string) *query.Query {
			return open(query.SQLite(context.Background(), path, "list.sql", text))
		}},
		"postgres": {ledger.New(pg, ledger.Options{}), pgDB, func(text string) *query.Query {
			return open(query.Postgres(context.Background(), address, "list.sql", text))
		}},
	}
	for _, p := range all {
		t.Cleanup(func() { p.db.Close(); p.ledger.Close() })
	}
	return all
}

// querySource returns a list of a kind with a schema.
func querySource(t *testing.T, schema, set string, input ledger.Input, q *query.Query) *intake.Source {
	t.Helper()
	c, err := settings.Compile([]byte(schema))
	must.OK(t, err)
	s := &intake.Source{Template: ledger.NewItem{Kind: "k"}, Input: input, Payload: json.RawMessage(set), Query: q,
		Parse: c.Parse, Validate: c.Validate, Fields: map[string]string{}}
	for _, f := range c.Fields() {
		s.Fields[f.Name] = f.Type
	}
	must.OK(t, s.Check())
	return s
}

const (
	anything = `{}`
	ofMail   = `{"type":"object","properties":{"to":{"type":"string","maxLength":20},"template":{"type":"string","pattern":"^[a-z]*$"},"subject":{"type":"string","maxLength":10},
 "n":{"type":"integer"},"data":{"type":"object"}},"required":["to"],"additionalProperties":false}`
)

// A list makes the same items, byte for byte, on both databases.
func TestQueryOnBoth(t *testing.T) {
	line := ledger.Input{Type: intake.Line}
	to := ledger.Input{Type: intake.Line, Field: "to"}
	here := places(t)
	for _, p := range here {
		for _, statement := range []string{`CREATE TABLE users (id integer, name text, age bigint, born date)`,
			`INSERT INTO users VALUES (1, 'Ann & <Bob>', 41, '2000-01-02'), (2, '"é"` + "\u2028\t\n\\" +
				`', NULL, NULL), (3, NULL, -9223372036854775808, '1999-12-31'), (4, '', 0, NULL), (NULL, 'x', 1, NULL), (1, 'again', 1, NULL),
 (5, 'a name of more than twenty characters', 1, NULL), (6, ' spaces ', 6, NULL)`} {
			must.Do(t)(p.db.Exec(statement))
		}
	}
	for i, c := range []struct {
		schema, set, text string
		input             ledger.Input
	}{
		{anything, `{"template":"a<","b":[1, 2]}`, `SELECT id AS key, name, age, born FROM users ORDER BY id`, line},
		{anything, ``, `SELECT name AS key FROM users`, line},
		{anything, ``, `SELECT name AS key, age FROM users`, to},
		{anything, `{"age":7}`, `SELECT name AS key, age FROM users`, line}, // NULL keeps the 7
		{ofMail, `{"template":"a"}`, `SELECT name AS key FROM users`, to},
		{ofMail, `{"template":"a"}`, `SELECT id AS key, name AS "to", id AS subject FROM users`, to},
		{ofMail, `{"template":"a"}`, `SELECT id AS key, name AS "to", name AS subject FROM users`, to},
		{ofMail, ``, `SELECT name AS key, name AS template FROM users`, to}, // a pattern is checked for each row
		{ofMail, ``, `SELECT id AS key, name AS "to", name AS "data.name" FROM users`, to},
		{anything, ``, `SELECT id AS key, 1 AS priority FROM users`, line},
		{anything, ``, `SELECT 'https://a.example/' || id AS key FROM users`, ledger.Input{Type: intake.URL}},
	} {
		var first map[string]string
		for name, p := range here {
			s := querySource(t, c.schema, c.set, c.input, p.query(c.text))
			s.Template.Scope = fmt.Sprint(i)
			for found, err := range s.Items(t.Context()) {
				if _, bad := errors.AsType[*intake.BadLine](err); bad {
					continue
				} else if err != nil {
					t.Fatal(err)
				}
				must.Do(t)(p.ledger.Add(t.Context(), found.Item))
			}
			items := kept(t, p.ledger, s.Template.Scope)
			if len(items) == 0 {
				t.Errorf("%d, %s: no items", i, name)
			}
			if first == nil {
				first = items
			} else if d := cmp.Diff(first, items); d != "" {
				t.Errorf("%d: the databases differ\n%s", i, d)
			}
		}
	}
}

// kept returns the items of a scope in the ledger.
func kept(t *testing.T, l *ledger.Ledger, scope string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for it, err := range l.List(t.Context(), ledger.Filter{Scopes: []string{scope}}, 0) {
		must.OK(t, err)
		all[it.Key] = fmt.Sprintf("%s slot %d from %s, shard %s, priority %d", it.Payload, it.Slot, it.Source, it.ShardKey,
			it.Priority)
	}
	return all
}
