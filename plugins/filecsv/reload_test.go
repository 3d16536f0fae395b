package filecsv

import (
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// TestReloadReplaces: a file that is loaded again replaces its own rows and no others, whether it has changed or not,
// in another round or by another ledger.
func TestReloadReplaces(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		a, b := csvFile(t, "id,name\n1,Ada\n2,Bob\n"), csvFile(t, "id,name\n9,Zoe\n")
		load := func(path string, id, attempt int64, round string, want *Loaded) {
			t.Helper()
			r := h.Run(sdktest.Task{Payload: payload{"path": path, "table": "people"}, ID: id, Attempt: attempt, Round: round})
			want.Table, want.Attempt = "people", attempt
			if diff := cmp.Diff(want, outOf(t, r).Load); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		}
		load(a, 1, 1, "1", &Loaded{Rows: 2, Created: true})
		load(b, 2, 1, "1", &Loaded{Rows: 1})
		load(a, 1, 2, "2", &Loaded{Rows: 2, Replaced: 2})
		write(t, a, "id,name\n1,Ada\n2,Rob\n3,Cy\n")
		load(a, 1, 3, "3", &Loaded{Rows: 3, Replaced: 2})
		if got := query(t, db, "SELECT count(*) FROM ledgerd_loads"); got[0] != "2" {
			t.Errorf("%s markers of two files", got[0])
		}
		load(a, 7, 1, "1 of another ledger", &Loaded{Rows: 3, Replaced: 3})
		if got := query(t, db, "SELECT id, name FROM people ORDER BY id"); !slices.Equal(got, []string{"1|Ada", "2|Rob",
			"3|Cy", "9|Zoe"}) {
			t.Errorf("rows %q", got)
		}
		// on_reload=append adds the rows again.
		r := h.Run(sdktest.Task{Payload: payload{"path": b, "table": "people", "on_reload": "append"}, ID: 2, Attempt: 2,
			Round: "2"})
		if got := query(t, db, "SELECT count(*) FROM people"); outOf(t, r).Load.Replaced != 0 || got[0] != "5" {
			t.Errorf("%s rows after on_reload=append", got)
		}
		load(b, 2, 3, "3", &Loaded{Rows: 1, Replaced: 2})
	})
}

// TestReloadKilled: a reload that is killed leaves the rows of the earlier load. The next attempt replaces them.
func TestReloadKilled(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h, path := loading(t, url), csvFile(t, string(people(25_000, false)))
		task := sdktest.Task{Payload: payload{"path": path, "table": "people"}, ID: 1, Attempt: 1}
		outOf(t, h.Run(task))
		write(t, path, string(people(40_000, false)))
		task.Round = "2"
		for _, fault := range []sdktest.Fault{sdktest.KillPlugin, sdktest.KillHost, sdktest.Cancel} {
			task.Attempt, task.Fault, task.AtProgress = task.Attempt+1, fault, 5
			if r := h.Run(task); r.Outcome == "done" {
				t.Fatalf("%v did not strike: %+v", fault, r)
			}
			if got := query(t, db, "SELECT count(*) FROM people"); got[0] != "25000" {
				t.Errorf("%v has left %s rows", fault, got)
			}
		}
		task.Attempt, task.Fault = task.Attempt+1, sdktest.None
		if out := outOf(t, h.Run(task)); out.Load.Rows != 40_000 || out.Load.Replaced != 25_000 {
			t.Errorf("%+v", out.Load)
		}
		if got := query(t, db, "SELECT count(*), count(DISTINCT id) FROM people"); got[0] != "40000|40000" {
			t.Errorf("rows %s", got)
		}
	})
}

// TestReloadForeignTable: a table of another program does not mark the rows of a file, so a second load is refused
// unless a setting asks for it.
func TestReloadForeignTable(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h, path := loading(t, url), csvFile(t, "id,name\n1,Ada\n")
		exec(t, db, "CREATE TABLE users (id integer, name text)")
		run := func(attempt int64, set payload) sdktest.Result {
			set["path"], set["table"] = path, "users"
			return h.Run(sdktest.Task{Payload: set, ID: 1, Attempt: attempt, Round: fmt.Sprint(attempt)})
		}
		outOf(t, run(1, payload{}))
		r := run(2, payload{})
		if r.Code != "loaded_before" || !r.Final || !strings.Contains(r.Error, "--set on_reload=append") {
			t.Errorf("%s %v %s", r.Code, r.Final, r.Error)
		}
		outOf(t, run(3, payload{"on_reload": "append"}))
		if got := query(t, db, "SELECT count(*) FROM users"); got[0] != "2" {
			t.Errorf("%s rows", got)
		}
		// With the column ledgerd_load, later loads can be replaced.
		exec(t, db, "ALTER TABLE users ADD COLUMN ledgerd_load bigint")
		other := csvFile(t, "id,name\n5,Eve\n")
		for attempt := int64(1); attempt <= 2; attempt++ {
			r = h.Run(sdktest.Task{Payload: payload{"path": other, "table": "users"}, ID: 2, Attempt: attempt,
				Round: fmt.Sprint(attempt)})
			if out := outOf(t, r); out.Load.Replaced != attempt-1 {
				t.Errorf("attempt %d: %+v", attempt, out.Load)
			}
		}
		if got := query(t, db, "SELECT id, name FROM users ORDER BY id"); !slices.Equal(got, []string{"1|Ada", "1|Ada",
			"5|Eve"}) {
			t.Errorf("rows %q", got)
		}
	})
}

// TestReloadByKey: with a key, existing rows are updated and new ones added, from any file.
func TestReloadByKey(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		run := func(id int64, text string) sdktest.Result {
			return h.Run(sdktest.Task{Payload: payload{
				"path": csvFile(t, text), "table": "people", "key": []string{"ID"}, "types": map[string]string{"ID": "int"},
				"into": map[string]string{"ID": "id", "Name": "name"},
			}, ID: id})
		}
		outOf(t, run(1, "ID,Name\n1,Ada\n2,Bob\n"))
		outOf(t, run(2, "ID,Name\n2,Rob\n3,Cy\n2,Robert\n"))
		if got := query(t, db, "SELECT id, name FROM people ORDER BY id"); !slices.Equal(got, []string{"1|Ada", "2|Robert",
			"3|Cy"}) {
			t.Errorf("rows %q", got)
		}
		if r := run(3, "ID,Name\n4,Dan\n,Eve\n"); r.Code != badRows ||
			!strings.Contains(r.Error, `line 3: column "ID": no value`) {
			t.Errorf("%s %s", r.Code, r.Error)
		}
		exec(t, db, "CREATE TABLE plain (id integer, name text)")
		r := h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "id,name\n1,Ada\n"), "table": "plain",
			"key": []string{"id"}}})
		if r.Code != "no_unique_index" || !r.Final || !strings.Contains(r.Error, `CREATE UNIQUE INDEX … ON "plain" ("id")`) {
			t.Errorf("%s %v %s", r.Code, r.Final, r.Error)
		}
	})
}

// TestReloadFails: a version of a file that is not loaded leaves the rows of the earlier version in the table, and a
// lasting failure reports their number.
func TestReloadFails(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		exec(t, db, "CREATE TABLE others (id integer, name text)")
		for table, reload := range map[string]string{"people": "replace", "others": "append"} {
			path := csvFile(t, "id,name\n1,Ada\n2,Bob\n")
			run := func(attempt int64) sdktest.Result {
				return h.Run(sdktest.Task{Payload: payload{"path": path, "table": table, "required": []string{"id"},
					"on_reload": reload}, ID: 1, Attempt: attempt, Round: fmt.Sprint(attempt)})
			}
			bad := func(attempt int64, code, want string) {
				t.Helper()
				if r := run(attempt); r.Code != code || !r.Final || !strings.HasSuffix(r.Error, want) {
					t.Errorf("%s: %s %v %s, want %s %s", table, r.Code, r.Final, r.Error, code, want)
				}
			}
			stay := "; the rows of the version before stay in " + table + " (2)"
			write(t, path, "id,name\nx\n")
			bad(1, badRows, "the number of fields is 1, not 2; is the header on another line? --set skip=LINES")
			write(t, path, "id,name\n1,Ada\n2,Bob\n")
			outOf(t, run(2))
			write(t, path, "id,name\n1,Ada\n2\n")
			bad(3, badRows, "line 3: the number of fields is 1, not 2"+stay)
			write(t, path, "number,name\n1,Ada\n")
			bad(4, "missing_column", `column "id" missing`+stay)
			write(t, path, "id,name\n1,\"Ada\n")
			bad(5, "unterminated_quote", stay)
			must.OK(t, os.Remove(path))
			bad(6, "not_found", "there is no such file (any more)"+stay)
			if got := query(t, db, "SELECT count(*) FROM "+table); got[0] != "2" {
				t.Errorf("%s rows in %s", got[0], table)
			}
		}
	})
}

// TestLoadHeaderUnclear: a load does not guess whether the first row is a header.
func TestLoadHeaderUnclear(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h, path := loading(t, url), csvFile(t, "Country,Capital\nFrance,Paris\nSpain,Madrid\n")
		r := h.Run(sdktest.Task{Payload: payload{"path": path, "table": "t"}})
		if r.Code != "header_unclear" || !r.Final ||
			!strings.Contains(r.Error, "first row (Country, Capital) name the columns? The rows below do not tell: --set "+
				"header=yes, or --set columns=… (names of the columns: 2)") {
			t.Errorf("%s %v %s", r.Code, r.Final, r.Error)
		}
		remark := csvFile(t, "# Capitals\nCountry,Capital\nFrance,Paris\n# Spain\n")
		if r := h.Run(sdktest.Task{Payload: payload{"path": remark, "table": "t"}}); r.Code != "header_unclear" ||
			!strings.HasPrefix(r.Error, "the first row is # Capitals; if that is a remark: --set comment=#") {
			t.Errorf("%s %s", r.Code, r.Error)
		}
		exec(t, db, "CREATE TABLE t (country text, capital text)")
		out := outOf(t, h.Run(sdktest.Task{Payload: payload{"path": path, "table": "t"}}))
		if !out.Header || out.HeaderWhy != "the table has a column for each of its names" {
			t.Errorf("%v, %s", out.Header, out.HeaderWhy)
		}
		if got := query(t, db, "SELECT * FROM t"); !slices.Equal(got, []string{"France|Paris", "Spain|Madrid"}) {
			t.Errorf("rows %q", got)
		}
	})
}

// TestLoadTrim: values are loaded as they are in the file, unless trim removes white space around them. Around the
// values of a key it never counts.
func TestLoadTrim(t *testing.T) {
	onSQLite(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		for table, want := range map[string]string{"asis": "| Ada |1|", "trimmed": "|Ada|1|"} {
			outOf(t, h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "name, n\n Ada , 1 \n"), "table": table,
				"types": map[string]string{"n": "int"}, "trim": table == "trimmed"}}))
			if got := query(t, db, "SELECT '|' || name || '|' || n || '|' FROM "+table); got[0] != want {
				t.Errorf("%s: %q, want %q", table, got, want)
			}
		}
		outOf(t, h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "name,n\nAda,1\n Ada , 2 \n"), "table": "keyed",
			"key": []string{"name"}}}))
		if got := query(t, db, "SELECT '|' || name || '|' || n || '|' FROM keyed"); !slices.Equal(got, []string{"|Ada| 2 |"}) {
			t.Errorf("keyed: %q", got)
		}
	})
}
