package filecsv

import (
	"database/sql"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// TestLoadDate: a date is stored as a date, also if date_formats have a time of day. The database finds it by its
// day, in any zone.
func TestLoadDate(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		outOf(t, h.Run(sdktest.Task{Payload: payload{
			"path": csvFile(t, "id,day\n1,2026-07-22\n2,\n"), "table": "t", "types": map[string]string{"day": "date"},
		}}))
		if got := query(t, db, "SELECT id, CAST(day AS text) FROM t WHERE day = '2026-07-22'"); !slices.Equal(got,
			[]string{"1|2026-07-22"}) {
			t.Errorf("rows %q", got)
		}
		declared := "SELECT type FROM pragma_table_info('t') WHERE name = 'day'"
		if !strings.HasPrefix(url, "sqlite:") {
			declared = "SELECT data_type FROM information_schema.columns WHERE table_schema = current_schema() AND " +
				"table_name = 't' AND column_name = 'day'"
		}
		if got := query(t, db, declared); !slices.Equal(got, []string{"date"}) && !slices.Equal(got, []string{"TEXT"}) {
			t.Errorf("the column is %q", got)
		}
		r := h.Run(sdktest.Task{Payload: payload{
			"path": csvFile(t, "id,day\n3,2026-07-22 10:00:00\n"), "table": "t", "types": map[string]string{"day": "date"},
		}})
		if want := `column "day": not a date like YYYY-MM-DD: "2026-07-22 10:00:00"; the type time takes a time of ` +
			`day`; r.Code != badRows || !strings.HasSuffix(r.Error, want) {
			t.Errorf("%s %s, want …%s", r.Code, r.Error, want)
		}
		r = h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, "day\n1\n"), "types": map[string]string{"day": "date"},
			"date_formats": []string{"YYYY-MM-DD hh:mm"}}})
		if r.Code != "bad_check" || !strings.Contains(r.Error, "the type time has") {
			t.Errorf("%s %s", r.Code, r.Error)
		}
	})
}

// TestLoadDecimalComma: a decimal comma is read if a setting asks for it. If not, the failure names the setting.
func TestLoadDecimalComma(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		load := payload{"path": csvFile(t, "id;amount\n1.000;1.234,56\n2;-0,5\n"), "table": "t",
			"types": map[string]string{"id": "int", "amount": "decimal"}}
		if r := h.Run(sdktest.Task{Payload: load}); r.Code != badRows ||
			!strings.HasSuffix(r.Error, `not an integer: "1.000"; with a decimal comma: --set decimal=,`) {
			t.Errorf("%s %s", r.Code, r.Error)
		}
		load["decimal"] = ","
		outOf(t, h.Run(sdktest.Task{Payload: load}))
		if got := query(t, db, "SELECT id, CAST(amount AS text) FROM t ORDER BY id"); !slices.Equal(got,
			[]string{"2|-0.5", "1000|1234.56"}) {
			t.Errorf("rows %q", got)
		}
	})
}

// TestLoadDayWithZone: a day with a zone, as XML writes it, has no time of day.
func TestLoadDayWithZone(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		outOf(t, loading(t, url).Run(sdktest.Task{Payload: payload{
			"path":  csvFile(t, "day\n2026-11-20+05:00\n2026-11-20-05:00\n2026-11-20Z\n"),
			"table": "t", "types": map[string]string{"day": "date"}, "date_formats": []string{"YYYY-MM-DDZ"},
		}}))
		if got := query(t, db, "SELECT CAST(day AS text) FROM t"); !slices.Equal(got, []string{"2026-11-20", "2026-11-20",
			"2026-11-20"}) {
			t.Errorf("days %q", got)
		}
	})
}

// TestLoadIsUTF8: text is sent as UTF-8, also if the database or the role is set to another encoding.
func TestLoadIsUTF8(t *testing.T) {
	url := pgtest.Latin1(t)
	outOf(t, loading(t, url).Run(sdktest.Task{Payload: payload{"path": csvFile(t, "id,name\n1,Zoé\n"), "table": "p"}}))
	if got := query(t, open(t, "pgx", url), "SELECT length(name) FROM p"); !slices.Equal(got, []string{"3"}) {
		t.Errorf("the name has %v characters, want 3", got)
	}
}

// TestLoadWholeNumbers: a value that does not fit into a column of whole numbers makes a bad row, whether types names
// the column or not. It is neither rounded nor cut, and the other rows are loaded. SQLite stores fractions as they are.
func TestLoadWholeNumbers(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h, lite := loading(t, url), strings.HasPrefix(url, "sqlite:")
		exec(t, db, "CREATE TABLE w (id integer PRIMARY KEY, small smallint, big bigint)")
		for _, tt := range []struct {
			types, row, want string // "" for a bad row
			lite             string // on SQLite, "=" for the same
		}{
			{"", "1,7,9223372036854775807", "1|7|9223372036854775807", "="},
			{"", "2.00,-8,", "2|-8|NULL", "="},
			{"", "3,1.5,1", "", "3|1.5|1"},
			{"", "4,1,89490200001234567890", "", ""},
			{"", "5,70000,1", "", "5|70000|1"},
			{"", "3000000000,1,1", "", "3000000000|1|1"},
			{"", "6,1e3,-1.5E+01", "6|1000|-15", "="},
			{"", "70e-1,.0,9.223372036854775807E18", "7|0|9223372036854775807", "="},
			{"", "8,0e99999999999,1e19", "", ""},
			{"", "9,1,1e99999999999", "", ""},
			{"", "10,15e-1,1", "", "10|1.5|1"},
			{"int", "3000000000,1,1", "", "3000000000|1|1"},
			{"int", "11,70000,1", "", "11|70000|1"},
			{"int", "12,1,-9223372036854775808", "12|1|-9223372036854775808", "="},
			{"int", "13,1,9223372036854775808", "", ""},
			{"decimal", "14,1.5,1", "", "14|1.5|1"},
			{"decimal", "15,2.0,1e3", "15|2|1000", "="},
		} {
			exec(t, db, "DELETE FROM w")
			p := payload{"path": csvFile(t, "id,small,big\n"+tt.row+"\n"), "table": "w", "max_bad_rows": 1}
			if tt.types != "" {
				p["types"] = map[string]string{"id": tt.types, "small": tt.types, "big": tt.types}
			}
			want := tt.want
			if lite && tt.lite != "=" {
				want = tt.lite
			}
			bad := outOf(t, h.Run(sdktest.Task{Payload: p})).BadRows
			got := strings.Join(query(t, db, "SELECT id, small, big FROM w"), " ")
			if got != want || bad == 1 != (want == "") {
				t.Errorf("%s as %q: got %q and %d bad rows, want %q", tt.row, tt.types, got, bad, want)
			}
		}
	})
}

// TestRejectsOfALoad: a load that fails at its end leaves the bad rows of the version that is loaded.
func TestRejectsOfALoad(t *testing.T) {
	address := pgtest.SchemaURL(t)
	db, dir := open(t, "pgx", address), t.TempDir()
	bare, password := apart(t, address)
	h := sdktest.New(t, Plugin(), sdktest.Options{Config: Config{Database: bare, RejectDir: dir},
		Secrets: map[string]string{"password": password}})
	exec(t, db, "CREATE TABLE known (id integer PRIMARY KEY)")
	exec(t, db, "INSERT INTO known VALUES (1)")
	exec(t, db, "CREATE TABLE r (id integer PRIMARY KEY REFERENCES known DEFERRABLE INITIALLY DEFERRED)")
	path := csvFile(t, "id\n1\nx\n")
	task := sdktest.Task{Payload: payload{"path": path, "table": "r", "key": []string{"id"}, "max_bad_rows": 1}}
	outOf(t, h.Run(task))
	before := rejectsOf(t, dir)
	must.OK(t, os.WriteFile(path, []byte("id\n2\ny\n"), 0o600))
	if r := h.Run(task); r.Code != "constraint" {
		t.Fatalf("%s %s", r.Code, r.Error)
	}
	if d := cmp.Diff(before, rejectsOf(t, dir)); d != "" || len(before) != 1 {
		t.Error(d, before)
	}
}

// TestLoadByTheColumnsType: date_formats and decimal read the values for a column of dates or numbers, whether types
// names it or not. No setting of the session does.
func TestLoadByTheColumnsType(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		exec(t, db, "CREATE TABLE ev (id integer PRIMARY KEY, d date, at timestamp, n numeric)")
		const text = "id;d;at;n\n1;03/02/2024;04/02/2024 10:30;1.234\n2;;;\n"
		ev := payload{"path": csvFile(t, text), "table": "ev", "key": []string{"id"}, "decimal": ",",
			"date_formats": []string{"DD/MM/YYYY", "DD/MM/YYYY hh:mm"}}
		outOf(t, h.Run(sdktest.Task{Payload: ev}))
		got := query(t, db, "SELECT id, CAST(d AS text), substr(CAST(at AS text), 1, 16), n FROM ev ORDER BY id")
		if want := []string{"1|2024-02-03|2024-02-04 10:30|1234", "2|NULL|NULL|NULL"}; !slices.Equal(got, want) {
			t.Errorf("rows %q, want %q", got, want)
		}
		for column, row := range map[string]string{"d": "3;02/13/2024;;", "at": "3;;13:00;", "n": "3;;;1,2,3"} {
			ev["path"] = csvFile(t, "id;d;at;n\n"+row+"\n")
			r := h.Run(sdktest.Task{Payload: ev})
			if r.Code != badRows || !strings.Contains(r.Error, `column "`+column+`": not a`) {
				t.Errorf("%s: %s %s", row, r.Code, r.Error)
			}
		}
		delete(ev, "decimal")
		ev["path"], ev["max_bad_rows"] = csvFile(t, "id;n\n4;n/a\n5;+.5\n"), 1
		outOf(t, h.Run(sdktest.Task{Payload: ev}))
		if got := query(t, db, "SELECT id FROM ev WHERE id > 3"); !slices.Equal(got, []string{"5"}) {
			t.Errorf("with a decimal point: rows %q", got)
		}
		if !strings.HasPrefix(url, "sqlite:") {
			exec(t, db, "CREATE TABLE arrays (n numeric[], at timestamptz[])")
			path := csvFile(t, "n,at\n\"{1.5,2}\",\"{2026-01-02,2026-01-03}\"\n")
			outOf(t, h.Run(sdktest.Task{Payload: payload{"path": path, "table": "arrays"}}))
		}
	})
}
