package filecsv

import (
	"bytes"
	"database/sql"
	"encoding/csv"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/plugins/filecsv/load"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// databases runs a test on both databases. url is for the plugin's config.
func databases(t *testing.T, test func(t *testing.T, url string, db *sql.DB)) {
	t.Run("sqlite", func(t *testing.T) { onSQLite(t, test) })
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := pgtest.SchemaURL(t)
		test(t, url, open(t, "pgx", url))
	})
}

// onSQLite runs a test that does not depend on the database.
func onSQLite(t *testing.T, test func(t *testing.T, url string, db *sql.DB)) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tables.db")
	test(t, "sqlite:"+path, open(t, "sqlite", path+"?_pragma=busy_timeout(10000)"))
}

func open(t testing.TB, driver, source string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driver, source)
	must.OK(t, err)
	t.Cleanup(func() { must.OK(t, db.Close()) })
	return db
}

// loading starts a plugin process that loads into a database.
func loading(t testing.TB, address string) *sdktest.Host {
	t.Helper()
	bare, password := apart(t, address)
	return sdktest.New(t, Plugin(), sdktest.Options{Config: Config{Database: bare},
		Secrets: map[string]string{"password": password}})
}

// apart removes the password from a URL.
func apart(t testing.TB, address string) (bare, password string) {
	t.Helper()
	u, err := url.Parse(address)
	must.OK(t, err)
	if u.User == nil {
		return address, ""
	}
	password, _ = u.User.Password()
	u.User = url.User(u.User.Username())
	return u.String(), password
}

// tables opens a database as the plugin does.
func tables(t testing.TB, address string) *load.Database {
	t.Helper()
	d, err := load.Open(apart(t, address))
	must.OK(t, err)
	t.Cleanup(func() { _ = d.Close() }) // the tests are not about Close
	return d
}

func csvFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "in.csv")
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// query returns rows as text, with "|" between the values and NULL for none.
func query(t testing.TB, db *sql.DB, statement string) (all []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), statement)
	must.OK(t, err)
	defer rows.Close()
	columns, err := rows.Columns()
	must.OK(t, err)
	for rows.Next() {
		values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		must.OK(t, rows.Scan(into...))
		texts := make([]string, len(columns))
		for i, v := range values {
			texts[i] = v.String
			if !v.Valid {
				texts[i] = "NULL"
			}
		}
		all = append(all, strings.Join(texts, "|"))
	}
	must.OK(t, rows.Err())
	return all
}

// hasTable reports whether a table exists.
func hasTable(t testing.TB, db *sql.DB, url, name string) bool {
	t.Helper()
	statement := "SELECT 1 FROM pg_catalog.pg_class WHERE oid = to_regclass('" + name + "')"
	if strings.HasPrefix(url, "sqlite:") {
		statement = "SELECT 1 FROM sqlite_schema WHERE name = '" + name + "'"
	}
	return len(query(t, db, statement)) > 0
}

func exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// outOf returns the output of a task that must be done.
func outOf(t testing.TB, r sdktest.Result) Out {
	t.Helper()
	if r.Outcome != "done" {
		t.Fatalf("%s %s %s", r.Outcome, r.Code, r.Error)
	}
	return sdktest.Decode[Out](t, r)
}

func TestLoadMakesTheTable(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		path := csvFile(t, "id,\"na\"\"me; DROP TABLE people\",x\\y,joined,ok,balance,select\n"+
			"+1,\"a\tb\nc\\.\",\\N,1.2.2026,yes,1.50,'x'\n2,\"\",\\,,NO,-3,\"--\"\n")
		r := h.Run(sdktest.Task{Payload: payload{
			"path": path, "table": "people", "date_formats": []string{"D.M.YYYY"},
			"types": map[string]string{"id": "int", "joined": "date", "ok": "bool", "balance": "decimal"},
		}})
		want := &Loaded{Table: "people", Rows: 2, Created: true, Attempt: 1}
		if diff := cmp.Diff(want, outOf(t, r).Load); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		got := query(t, db,
			`SELECT id + 0, "na""me; DROP TABLE people", "x\y", CAST(joined AS text), CAST(ok AS integer), CAST(balance AS text), "select" FROM people ORDER BY id`)
		rows := []string{"1|a\tb\nc\\.|\\N|2026-02-01|1|1.50|'x'", `2|NULL|\|NULL|0|-3|--`}
		if strings.HasPrefix(url, "sqlite:") { // SQLite stores 1.50 as a number
			rows[0] = strings.Replace(rows[0], "1.50", "1.5", 1)
		}
		if diff := cmp.Diff(rows, got); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		if got := query(t, db, "SELECT kind, item_key, attempt, target, row_count FROM ledgerd_loads"); len(got) != 1 ||
			got[0] != "filecsv|"+path+"|1|people|2" {
			t.Errorf("markers %q", got)
		}
		// A table that is put aside leaves its name to a new one.
		exec(t, db, "ALTER TABLE people RENAME TO people_2025")
		r = h.Run(sdktest.Task{Payload: payload{"path": path, "table": "people"}})
		if out := outOf(t, r); out.Load.Rows != 2 || !out.Load.Created {
			t.Errorf("%+v", out.Load)
		}
	})
}

func TestLoadTypes(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		r := h.Run(sdktest.Task{Payload: payload{
			"path": csvFile(t,
				"a,at\n9223372036854775807,2026-01-02\n-9223372036854775808,2026-01-02T03:04:05+02:00\n,2026-01-02 03:04:05\n"),
			"table": "t", "types": map[string]string{"a": "int", "at": "time"},
		}})
		outOf(t, r)
		statement := "SELECT a, at FROM t"
		if !strings.HasPrefix(url, "sqlite:") {
			statement = `SELECT a, to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"') FROM t`
		}
		want := []string{"9223372036854775807|2026-01-02 00:00:00Z", "-9223372036854775808|2026-01-02 01:04:05Z",
			"NULL|2026-01-02 03:04:05Z"}
		if diff := cmp.Diff(want, query(t, db, statement)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		r = h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "a\n9223372036854775808\n"), "table": "t",
			"types": map[string]string{"a": "int"}}})
		if r.Code != badRows ||
			!strings.Contains(r.Error, `line 2: column "a": does not fit into 64 bits: "9223372036854775808"`) {
			t.Errorf("%s %s", r.Code, r.Error)
		}
	})
}

// TestLoadHeaderComesAgain: a repeated first row may be the header of joined files, or a value that occurs twice. A
// load asks whether the first row is a header. If it is, the later ones are bad rows.
func TestLoadHeaderComesAgain(t *testing.T) {
	onSQLite(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		run := func(text, header string, bad int) sdktest.Result {
			return h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, text), "table": "h", "header": header,
				"max_bad_rows": bad}})
		}
		const parts = "city,country\nBerlin,de\nRome,it\ncity,country\nOslo,no\n"
		for text, want := range map[string]string{
			parts:                              "The rows below do not tell",
			"Berlin,de\nRome,it\nHamburg,de\n": `"de" comes again below`,
		} {
			r := run(text, "auto", 0)
			if r.Code != "header_unclear" || !strings.Contains(r.Error, want) || hasTable(t, db, url, "h") {
				t.Errorf("%q: %s %s", text, r.Code, r.Error)
			}
		}
		if r := run(parts, "yes", 0); r.Code != badRows || !strings.HasSuffix(r.Error,
			"on line 4: the header comes again; no other row is bad: --set max_bad_rows=1") {
			t.Errorf("%s %s", r.Code, r.Error)
		}
		outOf(t, run(parts, "yes", 1))
		if got := query(t, db, "SELECT city FROM h ORDER BY city"); !slices.Equal(got, []string{"Berlin", "Oslo", "Rome"}) {
			t.Errorf("rows %q", got)
		}
	})
}

// TestLoadColumnWithoutName: no table is made if a column cannot have its name.
func TestLoadColumnWithoutName(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h, path := loading(t, url), csvFile(t, "a\n1\n")
		for _, name := range []string{"", "x\x00y"} {
			r := h.Run(sdktest.Task{Payload: payload{"path": path, "table": "t", "into": map[string]string{"a": name}}})
			if r.Code != "columns" || !r.Final || !strings.Contains(r.Error, "is not a name for a column") {
				t.Errorf("%q: %s %v %s", name, r.Code, r.Final, r.Error)
			}
		}
		outOf(t, h.Run(sdktest.Task{Payload: payload{"path": path, "table": "t"}}))
		r := h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "xmin\n1\n"), "table": "u"}})
		if strings.HasPrefix(url, "postgres") {
			if r.Code != "columns" || !r.Final || !strings.Contains(r.Error, "another name with --set into.xmin=…") {
				t.Errorf("%s %v %s", r.Code, r.Final, r.Error)
			}
		} else {
			outOf(t, r)
		}
	})
}

func TestLoadIntoATableThatIsThere(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		exec(t, db,
			`CREATE TABLE users (id integer PRIMARY KEY, "Mail" text NOT NULL, born date, source text DEFAULT 'file', born_in text)`)
		path := csvFile(t, "MAIL,ID,Year,born in\na@example.com,1,2001-01-01,Rome\n")
		for _, tt := range []struct {
			set        payload
			code, text string
			final      bool
		}{
			{payload{"table": "users"}, "columns",
				`table users has no column "Year", "born in"; it has id, Mail, born, source, born_in: say which column goes where with --set into.COLUMN_OF_THE_FILE=COLUMN_OF_THE_TABLE, for each column that is to be loaded: others are left out then`, true},
			{payload{"table": "users", "into": map[string]string{"nope": "id"}}, "missing_column",
				`into: the file has no column "nope"`, true},
			{payload{"table": "users", "into": map[string]string{"MAIL": "mail", "ID": "MAIL"}}, "columns",
				`would both go into column "Mail"`, true},
			{payload{"table": "users", "into": map[string]string{"ID": "id"}}, "constraint", "", true},
			{payload{"table": "no.such.table"}, "bad_table", "", true},
			{payload{"table": `x"; DROP TABLE users; --`}, "bad_table", "letters, digits and _", true},
			{payload{"table": "ledgerd_loads"}, "bad_table", "none to load files into", true},
			{payload{"into": map[string]string{"ID": "id"}}, "bad_check", "into and key: there is no table", true},
		} {
			tt.set["path"] = path
			r := h.Run(sdktest.Task{Payload: tt.set})
			if r.Outcome != "failed" || r.Code != tt.code || r.Final != tt.final || !strings.Contains(r.Error, tt.text) {
				t.Errorf("%v: %s %s %s, final %v", tt.set, r.Outcome, r.Code, r.Error, r.Final)
			}
		}
		set := payload{"path": path, "table": "users", "into": map[string]string{"MAIL": "Mail", "ID": "id", "Year": "born",
			"born in": "born_in"}}
		if out := outOf(t, h.Run(sdktest.Task{Payload: set})); out.Load.Rows != 1 || out.Load.Created {
			t.Errorf("%+v", out.Load)
		}
		want := []string{"1|a@example.com|2001-01-01|file|Rome"}
		if diff := cmp.Diff(want,
			query(t, db, `SELECT id, "Mail", CAST(born AS text), source, born_in FROM users`)); diff != "" {
			t.Errorf("-want +got\n%s", diff)
		}
		// A row with a name of into is a header.
		towns := payload{"path": csvFile(t, "City,Country\nBerlin,Germany\nParis,France\n"), "table": "towns",
			"into": map[string]string{"City": "city", "Country": "land"}}
		if out := outOf(t, h.Run(sdktest.Task{Payload: towns})); out.Load.Rows != 2 {
			t.Errorf("%+v", out.Load)
		}
		// The database refuses a row that passed the checks: nothing of the file is loaded.
		r := h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "id,mail\n7,b@example.com\n8,\n"), "table": "users"}})
		if r.Code != "constraint" || !r.Final || len(query(t, db, "SELECT id FROM users")) != 1 {
			t.Errorf("%s %s, then there are %q", r.Code, r.Error, query(t, db, "SELECT id FROM users"))
		}
	})
}

// TestLoadDelimitersAtTheEnd: delimiters after the last name are no columns of an existing or a new table. They do
// not count either when the table decides whether there is a header.
func TestLoadDelimitersAtTheEnd(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		exec(t, db, "CREATE TABLE people (name text, land text)")
		for table, text := range map[string]string{"people": "Name,Land,,\nAda,UK,,\nBob,US,,\n",
			"new": "name,n,\nAda,1,\nBob,2,\n"} {
			path := csvFile(t, text)
			out := outOf(t, h.Run(sdktest.Task{Payload: payload{"path": path, "table": table}}))
			if out.ColumnCount != 2 || out.Load.Rows != 2 {
				t.Errorf("%s: %d columns, %+v", table, out.ColumnCount, out.Load)
			}
			write(t, path, text+"Cy"+strings.Repeat(",3", strings.Count(text[:strings.IndexByte(text, '\n')], ","))+"\n")
			r := h.Run(sdktest.Task{Payload: payload{"path": path, "table": table, "header": "yes", "on_reload": "append"},
				Round: "2", Attempt: 2})
			if r.Code != badRows ||
				!strings.Contains(r.Error,
					`1 of 3 rows bad, the first on line 4: column "column_3": the header has no name for the value "3"; --set required=column_3 makes it a column`) {
				t.Errorf("%s: %s %s", table, r.Code, r.Error)
			}
		}
		if got := query(t, db, "SELECT name, n FROM new ORDER BY name"); !slices.Equal(got, []string{"Ada|1", "Bob|2"}) {
			t.Errorf("rows %q", got)
		}
		set := payload{"path": csvFile(t, "name,n,\nAda,1,x\n"), "table": "new", "into": map[string]string{"name": "name",
			"column_3": "n"}}
		outOf(t, h.Run(sdktest.Task{Payload: set, ID: 9}))
		if got := query(t, db, "SELECT name, n FROM new WHERE n = 'x'"); !slices.Equal(got, []string{"Ada|x"}) {
			t.Errorf("a column that the mapping names: rows %q", got)
		}
	})
}

func TestLoadBadRows(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		path := csvFile(t, "a,b\n1,2\nx\n3,4\n")
		r := h.Run(sdktest.Task{Payload: payload{"path": path, "table": "t"}})
		if r.Code != badRows || !r.Final || hasTable(t, db, url, "t") {
			t.Errorf("%s %s", r.Code, r.Error)
		}
		if out := sdktest.Decode[Out](t, r); out.Rows != 3 || out.BadRows != 1 || out.Load != nil {
			t.Errorf("the output of what is refused: %+v", out)
		}
		out := outOf(t, h.Run(sdktest.Task{Payload: payload{"path": path, "table": "t", "max_bad_rows": -1}}))
		if got := query(t, db, "SELECT a, b FROM t ORDER BY a"); out.Load.Rows != 2 || fmt.Sprint(got) != "[1|2 3|4]" {
			t.Errorf("%+v, %q", out.Load, got)
		}
		r = h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "a,b\n1,2\n1,3\n"), "table": "t",
			"unique": []string{"a"}}})
		if r.Code != badRows || len(query(t, db, "SELECT a FROM t")) != 2 {
			t.Errorf("a repeated value: %s %s", r.Code, r.Error)
		}
		out = outOf(t, h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "a,b\n1,2\n1,3\n"), "table": "u",
			"unique": []string{"a"}, "max_bad_rows": 1}}))
		if got := query(t, db, "SELECT a, b FROM u"); out.BadRows != 1 || fmt.Sprint(got) != "[1|2]" {
			t.Errorf("a repeated value that is allowed: %+v, %q", out, got)
		}
	})
}

func TestLoadNeedsADatabase(t *testing.T) {
	path := csvFile(t, "a\n1\n")
	r := loading(t, "").Run(sdktest.Task{Payload: payload{"path": path, "table": "t"}})
	if r.Code != "no_database" || !r.Final || !strings.Contains(r.Error, `[kinds.filecsv.with] database = "sqlite:PATH"`) {
		t.Errorf("%s %s", r.Code, r.Error)
	}
	file := filepath.Join(t.TempDir(), "ledger.db")
	exec(t, open(t, "sqlite", file), "CREATE TABLE ledger_items (id integer)")
	if r := loading(t, "sqlite:"+file).Run(sdktest.Task{Payload: payload{"path": path,
		"table": "t"}}); r.Code != "no_database" || !r.Final {
		t.Errorf("%s %s", r.Code, r.Error)
	}
	file = filepath.Join(t.TempDir(), "missing", "people.db")
	if r := loading(t, "sqlite:"+file).Run(sdktest.Task{Payload: payload{"path": path, "table": "t"}}); r.Final ||
		!strings.Contains(r.Error, file+" cannot be opened or made") {
		t.Errorf("%s %s", r.Code, r.Error)
	}
	// Without a server the failure is not final, and the password is not shown.
	r = loading(t, "postgres://app:hunter22@127.0.0.1:1/x").Run(sdktest.Task{Payload: payload{"path": path, "table": "t"}})
	if r.Code != "database" || r.Final || strings.Contains(fmt.Sprint(r), "hunter22") {
		t.Errorf("%+v", r)
	}
	for _, url := range []string{"sqlite:relative.db", "mysql://app:hunter22@host/x",
		"postgres://app:hunter22@host:port:5/x", "hunter22", "postgres://app@host/x?password=hunter22"} {
		err := (&Config{Database: url}).Open(t.Context())
		if err == nil || !strings.HasPrefix(err.Error(), "database: ") || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestLoadAnyText: the table has any header and any values as the file has them.
func TestLoadAnyText(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		tables, dir := 0, t.TempDir()
		text := rapid.StringOf(rapid.OneOf(rapid.SampledFrom([]rune("\\\"'\t\n\r,;|{}$?:%-N.\u00a0 ")),
			rapid.Rune().Filter(func(r rune) bool { return r != 0 && r != '\ufeff' })))
		name := rapid.Custom(func(t *rapid.T) string {
			return string(trim([]byte(text.Filter(func(s string) bool {
				return len(trim([]byte(s))) > 0 && len(s) <= 60
			}).Draw(t, "name"))))
		})
		rapid.Check(t, func(rt *rapid.T) {
			header := rapid.SliceOfNDistinct(name, 2, 4, strings.ToLower).Draw(rt, "header")
			rows := rapid.SliceOfN(rapid.SliceOfN(text, len(header), len(header)), 1, 5).Draw(rt, "rows")
			var file bytes.Buffer
			w := csv.NewWriter(&file)
			must.OK(rt, w.WriteAll(append([][]string{header}, rows...)))
			tables++
			path := filepath.Join(dir, fmt.Sprintf("%d.csv", tables))
			must.OK(rt, os.WriteFile(path, file.Bytes(), 0o600))
			table := fmt.Sprintf("t%d", tables)
			r := h.Run(sdktest.Task{Payload: payload{"path": path, "table": table, "header": "yes", "delimiter": ","}})
			if r.Outcome != "done" {
				rt.Fatalf("%s %s %s", r.Outcome, r.Code, r.Error)
			}
			var want, columns []string
			for _, name := range header {
				columns = append(columns, `"`+strings.ReplaceAll(name, `"`, `""`)+`"`)
			}
			for _, row := range rows {
				texts := make([]string, len(row))
				for i, v := range row {
					if texts[i] = v; len(trim([]byte(v))) == 0 {
						texts[i] = "NULL"
					}
				}
				want = append(want, strings.Join(texts, "|"))
			}
			if diff := cmp.Diff(want, query(t, db, "SELECT "+strings.Join(columns, ", ")+" FROM "+table)); diff != "" {
				rt.Errorf("-want +got\n%s", diff)
			}
		})
	})
}
