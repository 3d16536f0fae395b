package filecsv

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/plugins/filecsv/load"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// TestLoadFailedLeavesNoTable: a file that fails leaves no table, so the next file decides its columns.
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

// TestLoadTypeOfAnotherColumn: a type that differs from the type of the table's column is refused before anything is
// loaded.
func TestLoadTypeOfAnotherColumn(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h, sqlite := loading(t, url), strings.HasPrefix(url, "sqlite:")
		exec(t, db,
			"CREATE TABLE p (words text, whole integer, broken numeric, half double precision, truth boolean, day date)")
		for _, tt := range []struct {
			column, typ, value string
			sqlite, postgres   string // the column's type in the refusal; "": it is taken
		}{
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
			set := payload{"path": path, "table": "p", "header": "yes", "types": map[string]string{tt.column: tt.typ}}
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
				tt.column, tt.typ)
			if r.Code != "column_type" || !r.Final || !strings.Contains(strings.ToLower(r.Error), strings.ToLower(want)) {
				t.Errorf("%s %v %s, want %s", r.Code, r.Final, r.Error, want)
			}
			change := `ALTER TABLE "p" ALTER COLUMN "words" TYPE numeric USING "words"::numeric, or load into another table`
			if tt.column == "words" && tt.typ == "decimal" && !sqlite && !strings.Contains(r.Error, change) {
				t.Errorf("what to do: %s", r.Error)
			}
		}
	})
}

// TestLoadMarkerWithoutItsRows: a marker counts only while its rows are in the table, for items of any ledger.
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
			task.Attempt = 1 // the attempt of a new ledger
			again("dropped", false)
			if table != "updated" { // another load may have updated the rows
				exec(t, db, "DELETE FROM "+table+" WHERE id = '2'")
				set["on_reload"] = "replace"
				again("in part", false)
			}
		}
	})
}

// TestLoadMarkersOfAnEarlierTable: a table that is made again does not inherit the markers of an earlier table of its
// name.
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
		// The new table lacks the rows of b. That it lacks the earlier rows of a is no news.
		out := outOf(t, h.Run(task))
		if !out.Load.Created || out.Load.Gone != 1 {
			t.Errorf("%+v", out.Load)
		}
		exec(t, db, "DROP TABLE users")
		if out := outOf(t, h.Run(task)); !out.Load.Created || out.Load.Gone != 0 {
			t.Errorf("%+v", out.Load)
		}
	})
}

// TestLoadOfAnotherKind: a file that another kind has loaded into the table is refused, so that its rows are not
// there twice, unless on_reload decides otherwise. If a person has loaded a file for two kinds, both keep their rows.
func TestLoadOfAnotherKind(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		d := tables(t, url)
		begin := func(kind, key string, round int, isFile bool, reload load.Reload) (*load.Load, error) {
			return d.Begin(t.Context(), load.Job{Table: "t", Columns: []load.Column{{Name: "a"}}, Reload: reload,
				Item:   load.Item{ID: 1, Kind: kind, Key: key, Round: fmt.Sprint(round), Attempt: int64(round), IsFile: isFile},
				Digest: func() (string, error) { return "same", nil }})
		}
		round := 0
		loads := func(kind, key string, isFile bool, reload load.Reload, replaced int64, rows string) {
			t.Helper()
			round++
			l, err := begin(kind, key, round, isFile, reload)
			if err != nil {
				t.Errorf("%s, %s: %v", kind, reload, err)
				return
			}
			defer l.Close()
			fill(t, l, 2)
			if done, err := l.Commit(t.Context(), "same"); err != nil || done.Replaced != replaced {
				t.Errorf("%s, %s: %+v, %v, want %d replaced", kind, reload, done, err, replaced)
			}
			if got := query(t, db, "SELECT count(*) FROM t"); got[0] != rows {
				t.Errorf("%s, %s: %s rows, want %s", kind, reload, got[0], rows)
			}
		}
		refused := func(kind, other string) {
			t.Helper()
			round++
			l, err := begin(kind, "/in/a.csv", round, true, "")
			if wantCode(t, err, "other_kind"); err == nil {
				l.Close()
			} else if !strings.Contains(err.Error(), "kind "+other+" has loaded this file into table t") {
				t.Error(err)
			}
		}
		loads("people", "/in/a.csv", true, "", 0, "2")
		refused("filecsv", "people")
		loads("people", "/in/a.csv", true, load.Replace, 2, "2")
		loads("filecsv", "/in/b.csv", true, "", 0, "4") // another file
		loads("filecsv", "/in/a.csv", true, load.ReplaceAll, 2, "4")
		refused("people", "filecsv")
		loads("people", "/in/a.csv", true, load.ReplaceOwn, 0, "6")
		loads("people", "/in/a.csv", true, load.ReplaceOwn, 2, "6")
		loads("filecsv", "/in/a.csv", true, "", 2, "6") // both have rows
		loads("third", "/in/a.csv", true, load.Append, 0, "8")
		exec(t, db, "DELETE FROM t")
		loads("fourth", "/in/a.csv", true, "", 0, "2")
		// A key that is not a path belongs to one kind only.
		loads("monday", "7", false, "", 0, "4")
		loads("tuesday", "7", false, "", 0, "6")
	})
}

// TestLoadOfTwoKindsAtOnce: two kinds load a file at the same time, and neither sees the other at the start. The
// second is refused at its end. SQLite allows only one load at a time.
func TestLoadOfTwoKindsAtOnce(t *testing.T) {
	url := pgtest.SchemaURL(t)
	d, db := tables(t, url), open(t, "pgx", url)
	exec(t, db, "CREATE TABLE t (a text, ledgerd_load bigint)")
	var both [2]*load.Load
	for i, kind := range []string{"one", "two"} {
		var err error
		both[i], err = d.Begin(t.Context(), load.Job{Table: "t", Columns: []load.Column{{Name: "a"}},
			Item: load.Item{ID: 1, Kind: kind, Key: "/in/a.csv", Round: "1", Attempt: 1, IsFile: true}})
		must.OK(t, err)
		defer both[i].Close()
		fill(t, both[i], 2)
	}
	must.Do(t)(both[0].Commit(t.Context(), "same"))
	_, err := both[1].Commit(t.Context(), "same")
	wantCode(t, err, "other_kind")
	both[1].Close()
	if got := query(t, db, "SELECT count(*) FROM t"); got[0] != "2" {
		t.Errorf("%s rows", got[0])
	}
}

// TestLoadOfAnotherKindForeignTable: a table without load numbers refuses a file that another kind has loaded.
func TestLoadOfAnotherKindForeignTable(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		exec(t, db, "CREATE TABLE t (a text)")
		d := tables(t, url)
		loads := func(kind string, reload load.Reload) error {
			l, err := d.Begin(t.Context(), load.Job{Table: "t", Columns: []load.Column{{Name: "a"}}, Reload: reload,
				Item: load.Item{ID: 1, Kind: kind, Key: "/in/a.csv", Round: "1", Attempt: 1, IsFile: true}})
			if err != nil {
				return err
			}
			defer l.Close()
			fill(t, l, 2)
			_, err = l.Commit(t.Context(), "same")
			return err
		}
		must.OK(t, loads("one", ""))
		err := loads("two", "")
		if wantCode(t, err, "loaded_before"); err == nil || !strings.Contains(err.Error(), "before by kind one, and") {
			t.Error(err)
		}
		if err := loads("two", load.ReplaceOwn); err != nil {
			t.Error(err)
		}
	})
}
