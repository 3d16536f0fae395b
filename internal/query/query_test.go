package query_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/internal/query"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

// opener prepares a query on a database.
type opener func(ctx context.Context, text string) (*query.Query, error)

func onBoth(t *testing.T, test func(t *testing.T, name string, open opener)) {
	t.Run("sqlite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "users.db")
		db, err := sql.Open("sqlite", path)
		must.OK(t, err)
		defer db.Close()
		must.Do(t)(db.Exec(
			`PRAGMA journal_mode = WAL; CREATE TABLE users (n int, born date, ok boolean); INSERT INTO users VALUES (1, '2000-01-02', 1)`))
		test(t, "sqlite", func(ctx context.Context, text string) (*query.Query, error) {
			return query.SQLite(ctx, path, "list.sql", text)
		})
	})
	t.Run("postgres", func(t *testing.T) {
		test(t, "postgres", func(ctx context.Context, text string) (*query.Query, error) {
			return query.Postgres(ctx, pgtest.URL(t), "list.sql", text)
		})
	})
}

func all(t *testing.T, q *query.Query) (rows [][]any) {
	t.Helper()
	for cells, err := range q.Rows(t.Context()) {
		must.OK(t, err)
		rows = append(rows, append([]any{}, cells...))
	}
	return rows
}

func TestRows(t *testing.T) {
	onBoth(t, func(t *testing.T, name string, open opener) {
		q, err := open(t.Context(), `SELECT 'a' AS key, 1 AS n, NULL AS none, 'é''<' AS "odd ""name"""`)
		must.OK(t, err)
		defer q.Close()
		if d := cmp.Diff([][]any{{"a", int64(1), nil, "é'<"}}, all(t, q)); d != "" {
			t.Error(d)
		}
		if q.Columns[3].Name != `odd "name"` {
			t.Errorf("%+v", q.Columns)
		}
	})
}

// Text is UTF-8, even if the database or the role has another encoding.
func TestTextIsUTF8(t *testing.T) {
	q, err := query.Postgres(t.Context(), pgtest.Latin1(t), "list.sql", "SELECT 'Zoé' AS key, length('Zoé') AS n")
	must.OK(t, err)
	defer q.Close()
	if d := cmp.Diff([][]any{{"Zoé", int64(3)}}, all(t, q)); d != "" {
		t.Error(d)
	}
}

// The URL of a ledger may have parameters of pools, and a search_path: a pooler refuses that at the start of a session.
func TestURLOfALedger(t *testing.T) {
	in := pgtest.SchemaURL(t)
	for _, url := range []string{in, pgtest.Bouncer(t, in)} {
		q, err := query.Postgres(t.Context(), url+"&pool_max_conns=2", "list.sql",
			"SELECT current_setting('search_path') AS key")
		must.OK(t, err)
		defer q.Close()
		if rows := all(t, q); len(rows) != 1 || !strings.Contains(in, rows[0][0].(string)) {
			t.Errorf("%s: %v", url, rows)
		}
	}
}

// A value has the form of the database, not a type into which the driver would convert it.
func TestTypes(t *testing.T) {
	onBoth(t, func(t *testing.T, name string, open opener) {
		text, want := `SELECT n, born, ok, 0.5, x'00' FROM users`, []any{int64(1), "2000-01-02", int64(1), 0.5, []byte{0}}
		if name == "postgres" {
			text = `SELECT 1::smallint, '2000-01-02'::date, true, 0.5::float8, '\x00'::bytea AS bytes, 1.50::numeric AS d, 'NaN'::numeric AS nan, '{"a": 1}'::jsonb AS j, 'x'::char(3) AS c`
			want = []any{int64(1), "2000-01-02", true, 0.5, []byte(`\x00`), query.Decimal("1.50"), "NaN", query.Raw(`{"a": 1}`),
				"x  "}
		}
		q, err := open(t.Context(), text)
		must.OK(t, err)
		defer q.Close()
		if d := cmp.Diff([][]any{want}, all(t, q)); d != "" {
			t.Error(d)
		}
	})
}

// A program that needs only the first rows does not wait for the others.
func TestStopEarly(t *testing.T) {
	onBoth(t, func(t *testing.T, name string, open opener) {
		const endless = "WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s) SELECT n FROM s"
		q, err := open(t.Context(), endless)
		must.OK(t, err)
		for cells, err := range q.Rows(t.Context()) {
			must.OK(t, err)
			if cells[0] != int64(1) {
				t.Errorf("the first row is %v", cells)
			}
			break
		}
		must.OK(t, q.Close())
	})
}

func TestMistakes(t *testing.T) {
	onBoth(t, func(t *testing.T, name string, open opener) {
		for text, place := range map[string]string{
			"SELECT 1\n  FORM users":       "list.sql:2:8: ",
			"SELECT é, missing FROM users": "list.sql",
			"SELECT 1 AS a, 2 AS a, (":     "list.sql",
			"CREATE TABLE x (n int)":       "list.sql",
			"":                             "list.sql",
			"SELECT 1; SELECT 2":           "list.sql",
			"SELECT 1 AS a, 2 AS a":        `list.sql: there are two columns "a"`,
			"SELECT count(*) GROUP BY":     map[string]string{"sqlite": "list.sql: ", "postgres": "list.sql:"}[name],
		} {
			q, err := open(t.Context(), text)
			if err == nil {
				for _, e := range q.Rows(t.Context()) {
					err = e
				}
				q.Close()
			}
			bad, ok := errors.AsType[*query.Error](err)
			if !ok || !strings.HasPrefix(bad.Error(), place) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// A text that closes the parentheses around it and continues runs nothing. A semicolon within a string, a name or a
// comment is allowed.
func TestOneSelect(t *testing.T) {
	onBoth(t, func(t *testing.T, name string, open opener) {
		other := filepath.Join(t.TempDir(), "other.db")
		evil := "PRAGMA query_only = 0; ATTACH 'file:" + other + "?mode=rwc' AS o; CREATE TABLE o.t (a)"
		if name == "postgres" {
			evil = "CREATE TABLE made_by_a_query (a int)"
		}
		for _, between := range []string{";", "-- '\n;", "/* ' */;", "AS \"'\" ; -- '\n"} {
			q, err := open(t.Context(), "SELECT 1 AS a) "+between+evil+"; SELECT * FROM (SELECT 2 AS a")
			if bad, ok := errors.AsType[*query.Error](err); !ok || name == "sqlite" &&
				!strings.Contains(bad.Error(), "one SELECT") {
				t.Errorf("%q: %v", between, err)
			}
			if err == nil {
				q.Close()
			}
		}
		if _, err := os.Stat(other); err == nil {
			t.Error("a query has made a file")
		}
		q, err := open(t.Context(), "SELECT ';''' AS \";\" -- ;\n/* ; */")
		must.OK(t, err)
		defer q.Close()
		if d := cmp.Diff([][]any{{";'"}}, all(t, q)); d != "" {
			t.Error(d)
		}
	})
}

// A query without an end is ended by its ctx, and by its timeout.
func TestEnds(t *testing.T) {
	onBoth(t, func(t *testing.T, name string, open opener) {
		const endless = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n`
		q, err := open(t.Context(), endless)
		must.OK(t, err)
		defer q.Close()
		q.Timeout = 50 * time.Millisecond
		for _, err := range q.Rows(t.Context()) {
			if bad, ok := errors.AsType[*query.Error](err); !ok ||
				!strings.Contains(bad.Message, "longer than") {
				t.Errorf("%v", err)
			}
		}
		again, err := open(t.Context(), endless)
		must.OK(t, err)
		defer again.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(50*time.Millisecond, cancel)
		for _, err := range again.Rows(ctx) {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}
		}
	})
}

// Rows are passed on as they come.
func TestMemory(t *testing.T) {
	onBoth(t, func(t *testing.T, name string, open opener) {
		q, err := open(t.Context(),
			`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200000) SELECT i, '`+strings.Repeat("x",
				500)+`' AS t FROM n`)
		must.OK(t, err)
		defer q.Close()
		n, most := 0, uint64(0)
		for _, err := range q.Rows(t.Context()) { // 100 MB
			must.OK(t, err)
			if n++; n%20_000 == 0 {
				var m runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&m)
				most = max(most, m.HeapAlloc)
			}
		}
		if n != 200_000 || most > 30<<20 {
			t.Errorf("%d rows, %d bytes at most", n, most)
		}
	})
}

func TestUnreachable(t *testing.T) {
	if _, err := query.Postgres(t.Context(), "postgres://nobody:secret@127.0.0.1:1/none", "list.sql",
		"SELECT 1"); !errors.Is(err, query.ErrUnreachable) || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
	if _, err := query.SQLite(t.Context(), filepath.Join(t.TempDir(), "none.db"), "list.sql", "SELECT 1"); !errors.Is(err,
		query.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	for content, want := range map[string]string{
		"\ufeffSELECT 1 ;\n": "SELECT 1", "SELECT 1;;": "SELECT 1", " ;": "is empty", "\xff": "is not UTF-8", strings.Repeat(
			" ", 1<<20+1): "at most",
	} {
		name := filepath.Join(dir, "q.sql")
		must.OK(t, os.WriteFile(name, []byte(content), 0o600))
		text, err := query.Read(name)
		if text != want && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%.20q: %q, %v", content, text, err)
		}
	}
}
