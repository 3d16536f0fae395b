package filecsv

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// A file that fails leaves no table behind, so the columns of the next file decide.
func TestLoadFailedLeavesNoTable(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		for id, text := range []string{"other,thing\n1,2\n3\n", "email,amount\na@x.org,1.5\nb@x.org,2,3\n"} {
			r := h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, text), "table": "p"}, ID: int64(id) + 1})
			if r.Code != badRows || hasTable(t, db, url, "p") {
				t.Errorf("%q: %s %s; is the table there: %v", text, r.Code, r.Error, hasTable(t, db, url, "p"))
			}
		}
		set := payload{"path": csvFile(t, "email,amount\nc@x.org,1.5\n"), "table": "p",
			"types": map[string]string{"amount": "decimal"}}
		if out := outOf(t, h.Run(sdktest.Task{Payload: set, ID: 9})); !out.Load.Created || out.Load.Rows != 1 {
			t.Errorf("%+v", out.Load)
		}
		if got := query(t, db, "SELECT amount + 1 FROM p"); !slices.Equal(got, []string{"2.5"}) {
			t.Errorf("rows %q", got)
		}
	})
}

// A type that the column of the table does not have is refused before anything is loaded.
func TestLoadTypeOfAnotherColumn(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h, sqlite := loading(t, url), strings.HasPrefix(url, "sqlite:")
		exec(t, db,
			"CREATE TABLE p (words text, whole integer, broken numeric, half double precision, truth boolean, day date)")
		for _, tt := range []struct{ column, kind, value, sqlite, postgres string }{
			{"words", "int", "1", "TEXT", "text"}, {"words", "decimal", "1", "TEXT", "text"}, {"words", "bool", "yes", "TEXT",
				"text"},
			{"words", "date", "2026-01-02", "", "text"}, {"words", "email", "a@example.com", "", ""},
			{"whole", "int", "1", "", ""}, {"whole", "decimal", "1", "", ""}, {"whole", "bool", "yes", "", ""},
			{"whole", "date", "2026-01-02", "INTEGER", "integer"},
			{"broken", "decimal", "1.5", "", ""}, {"half", "decimal", "1.5", "", ""},
			{"truth", "bool", "yes", "", ""}, {"truth", "int", "1", "", "boolean"},
			{"day", "date", "2026-01-02", "", ""}, {"day", "int", "1", "", "date"},
		} {
			path := csvFile(t, tt.column+"\n"+tt.value+"\n")
			set := payload{"path": path, "table": "p", "header": "yes", "types": map[string]string{tt.column: tt.kind}}
			r := h.Run(sdktest.Task{Payload: set, Key: path})
			refused := tt.postgres
			if sqlite {
				refused = tt.sqlite
			}
			if refused == "" {
				outOf(t, r)
				continue
			}
			want := fmt.Sprintf("column %q of table p is %s, and types.%s=%s needs another type: ", tt.column, refused,
				tt.column, tt.kind)
			if r.Code != "column_type" || !r.Final || !strings.Contains(strings.ToLower(r.Error), strings.ToLower(want)) {
				t.Errorf("%s %v %s, want %s", r.Code, r.Final, r.Error, want)
			}
			change := `ALTER TABLE "p" ALTER COLUMN "words" TYPE numeric USING "words"::numeric, or load into another table`
			if tt.column == "words" && tt.kind == "decimal" && !sqlite && !strings.Contains(r.Error, change) {
				t.Errorf("what to do: %s", r.Error)
			}
		}
	})
}

// A marker counts only while its rows are in the table, whatever ledger it is of.
func TestLoadMarkerWithoutItsRows(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		path := csvFile(t, "id,name\n1,Ada\n2,Bob\n")
		for table, set := range map[string]payload{
			"replaced": {}, "added": {"on_reload": "append"}, "updated": {"key": []string{"id"}},
		} {
			set["path"], set["table"] = path, table
			task := sdktest.Task{Payload: set, Key: table, ID: 1, Attempt: 3}
			again := func(what string, already bool) {
				t.Helper()
				out := outOf(t, h.Run(task))
				if got := query(t, db, "SELECT id, name FROM "+table+" ORDER BY id"); out.Load.Already != already ||
					!slices.Equal(got, []string{"1|Ada", "2|Bob"}) {
					t.Errorf("%s: %s: %+v, rows %q", table, what, out.Load, got)
				}
			}
			again("first", false)
			again("once more", true)
			exec(t, db, "DELETE FROM "+table)
			again("emptied", false)
			again("after that", true)
			exec(t, db, "DROP TABLE "+table)
			task.Attempt = 1 // of a ledger that has begun anew
			again("dropped", false)
			if table != "updated" { // where another load may have updated them
				exec(t, db, "DELETE FROM "+table+" WHERE id = '2'")
				set["on_reload"] = "replace"
				again("in part", false)
			}
		}
	})
}

// A table that is made anew has nothing to do with what an earlier table of its name was loaded with.
func TestLoadMarkersOfAnEarlierTable(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h, path := loading(t, url), csvFile(t, "id,name\n1,Ada\n")
		task := sdktest.Task{Payload: payload{"path": path, "table": "users", "key": []string{"id"}}, Key: "a", ID: 1}
		exec(t, db, "CREATE TABLE users (id integer PRIMARY KEY, name text)")
		outOf(t, h.Run(task))
		exec(t, db, "DROP TABLE users")
		outOf(t, h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "id,name\n2,Bob\n"), "table": "users",
			"key": []string{"id"}}, Key: "b", ID: 2}))
		if out := outOf(t, h.Run(task)); out.Load.Already {
			t.Errorf("%+v", out.Load)
		}
		task.Payload = payload{"path": path, "table": "users"}
		exec(t, db, "DROP TABLE users")
		if out := outOf(t, h.Run(task)); !out.Load.Created {
			t.Errorf("%+v", out.Load)
		}
	})
}
