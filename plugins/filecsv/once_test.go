package filecsv

import (
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/plugins/filecsv/load"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// TestLoadKilled: a load may be killed at any moment. The next attempt loads the file, once.
func TestLoadKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "people.csv")
	must.OK(t, os.WriteFile(path, people(50_000, false), 0o600))
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		for attempt, fault := range []sdktest.Fault{sdktest.KillPlugin, sdktest.KillHost, sdktest.Cancel} {
			r := h.Run(sdktest.Task{Payload: payload{"path": path, "table": "people"}, Key: path, ID: 1,
				Attempt: int64(attempt + 1), Fault: fault, AtProgress: 10})
			if r.Outcome == "done" {
				t.Fatalf("attempt %d was not struck: %+v", attempt+1, r)
			}
			if hasTable(t, db, url, "people") {
				t.Errorf("attempt %d was %s and has left a table", attempt+1, r.Outcome)
			}
		}
		for attempt := int64(4); attempt <= 5; attempt++ {
			out := outOf(t, h.Run(sdktest.Task{Payload: payload{"path": path, "table": "people"}, Key: path, ID: 1,
				Attempt: attempt}))
			want := &Loaded{Table: "people", Rows: 50_000, Created: attempt == 4, Already: attempt == 5, Attempt: 4}
			if diff := cmp.Diff(want, out.Load); diff != "" || out.Rows != 50_000 {
				t.Errorf("attempt %d: -want +got\n%s", attempt, diff)
			}
			if got := query(t, db, "SELECT count(*), count(DISTINCT id) FROM people"); got[0] != "50000|50000" {
				t.Errorf("after attempt %d there are %s rows", attempt, got)
			}
		}
		if got := query(t, db, "SELECT attempt, row_count FROM ledgerd_loads"); fmt.Sprint(got) != "[4|50000]" {
			t.Errorf("markers %q", got)
		}
	})
}

// rig runs attempts at one item in one process, step by step, with content that has a given digest.
type rig struct {
	database *load.Database
	round    string
}

func (r *rig) begin(t *testing.T, attempt int64, content string) (*load.Load, error) {
	t.Helper()
	l, err := r.database.Begin(t.Context(), load.Job{
		Item:    load.Item{ID: 1, Kind: "filecsv", Key: "/in/a.csv", Round: r.round, Attempt: attempt},
		Table:   "t",
		Columns: []load.Column{{Name: "a"}},
		Digest:  func() (string, error) { return content, nil },
	})
	if err == nil {
		t.Cleanup(l.Close)
	}
	return l, err
}

// fill loads some rows without committing.
func fill(t *testing.T, l *load.Load, rows int) {
	t.Helper()
	for i := range rows {
		must.OK(t, l.Add(t.Context(), [][]byte{fmt.Append(nil, i)}))
	}
}

func wantCode(t *testing.T, err error, code string) {
	t.Helper()
	var e *load.Error
	if e, _ = err.(*load.Error); e == nil || e.Code != code {
		t.Errorf("%v, want code %s", err, code)
	}
}

// loads begins a load, adds rows and commits.
func (r *rig) loads(t *testing.T, attempt int64, content string, rows int) (load.Done, error) {
	t.Helper()
	l, err := r.begin(t, attempt, content)
	if err != nil {
		return load.Done{}, err
	}
	defer l.Close()
	fill(t, l, rows)
	return l.Commit(t.Context(), content)
}

func (r *rig) wantLoad(t *testing.T, attempt int64, content string, rows int, want load.Done) {
	t.Helper()
	want.Table = "t"
	if done, err := r.loads(t, attempt, content, rows); err != nil || done != want {
		t.Errorf("attempt %d: %+v, %v; want %+v", attempt, done, err, want)
	}
}

// TestLoadStale: a stale attempt is refused, whether it ends after a later one has committed (Postgres; on SQLite the
// later one waits for it) or begins after that.
func TestLoadStale(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		r := &rig{tables(t, url), "filecsv/1/1"}
		exec(t, db, "CREATE TABLE t (a text, ledgerd_load bigint)")
		if !strings.HasPrefix(url, "sqlite:") {
			stale, err := r.begin(t, 1, "old")
			must.OK(t, err)
			fill(t, stale, 10)
			r.wantLoad(t, 2, "same", 10, load.Done{Rows: 10, Attempt: 2})
			_, err = stale.Commit(t.Context(), "old")
			wantCode(t, err, "stale")
			stale.Close()
		} else {
			r.wantLoad(t, 2, "same", 10, load.Done{Rows: 10, Attempt: 2})
		}
		_, err := r.loads(t, 1, "old", 10)
		wantCode(t, err, "stale")
		// Any attempt, also an earlier one, finds the same content there.
		r.wantLoad(t, 3, "same", 10, load.Done{Rows: 10, Already: true, Attempt: 2})
		r.wantLoad(t, 1, "same", 10, load.Done{Rows: 10, Already: true, Attempt: 2})
		// Other content replaces what was there, also in the same round.
		r.wantLoad(t, 4, "other", 8, load.Done{Rows: 8, Replaced: 10, Attempt: 4})
		r.round = "filecsv/1/2"
		r.wantLoad(t, 5, "other", 7, load.Done{Rows: 7, Replaced: 8, Attempt: 5})
		r.round = "filecsv/1/1"
		_, err = r.loads(t, 4, "old", 10)
		wantCode(t, err, "stale")
		if got := query(t, db, "SELECT count(*) FROM t"); got[0] != "7" {
			t.Errorf("%s rows, want 7", got)
		}
		// If the later attempt is of another ledger, the statement of the error lets this one replace its rows.
		_, statement, _ := strings.Cut(fmt.Sprint(err), "and only then: ")
		exec(t, db, statement)
		r.wantLoad(t, 1, "old", 10, load.Done{Rows: 10, Replaced: 7, Attempt: 1})
		r.wantLoad(t, 1, "old", 10, load.Done{Rows: 10, Already: true, Attempt: 1})
	})
}

// TestLoadManyAtOnce: many files are loaded at the same time into one table that does not exist yet.
func TestLoadManyAtOnce(t *testing.T) {
	const files = 12
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		h := loading(t, url)
		results := make(chan sdktest.Result)
		for i := range files {
			path := csvFile(t, fmt.Sprintf("a,b\n%d,x\n%d,y\n", i, i))
			go func() { results <- h.Run(sdktest.Task{Payload: payload{"path": path, "table": "t"}}) }()
		}
		for range files {
			if r := <-results; r.Outcome != "done" {
				t.Errorf("%s %s %s", r.Outcome, r.Code, r.Error)
			}
		}
		if got := query(t, db, "SELECT count(*), count(DISTINCT a) FROM t"); got[0] != fmt.Sprintf("%d|%d", 2*files, files) {
			t.Errorf("rows %s", got)
		}
	})
}

// TestLoadBusy: a load is snoozed while another process writes to the SQLite file. It does not count as failed.
func TestLoadBusy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tables.db")
	db := open(t, "sqlite", file)
	db.SetMaxOpenConns(1)
	exec(t, db, "BEGIN IMMEDIATE")
	h := loading(t, "sqlite:"+file)
	task := sdktest.Task{Payload: payload{"path": csvFile(t, "a\n1\n"), "table": "t"}}
	if r := h.Run(task); r.Outcome != "snoozed" || r.Delay != busyDelay {
		t.Errorf("%+v", r)
	}
	exec(t, db, "COMMIT")
	outOf(t, h.Run(task))
}

// TestLoadLetsGo: a load that is stopped releases its locks on the table.
func TestLoadLetsGo(t *testing.T) {
	databases(t, func(t *testing.T, url string, db *sql.DB) {
		path := filepath.Join(t.TempDir(), "people.csv")
		must.OK(t, os.WriteFile(path, people(100_000, false), 0o600))
		h := loading(t, url)
		outOf(t, h.Run(sdktest.Task{Payload: payload{"path": csvFile(t, string(people(1, false))), "table": "people"}}))
		if r := h.Run(sdktest.Task{Payload: payload{"path": path, "table": "people"}, Fault: sdktest.LoseLease,
			AtProgress: 5}); r.Outcome != "released" {
			t.Errorf("%+v", r)
		}
		exec(t, db, "CREATE INDEX i ON people (id)", "DROP TABLE people") // needs the locks
	})
}

// TestLoadCommitCut: a COMMIT whose answer is lost may have taken effect or not. The next attempt finds out.
func TestLoadCommitCut(t *testing.T) {
	for name, where := range map[string]int32{"landed": pgtest.CutLanded, "before": pgtest.CutBefore} {
		t.Run(name, func(t *testing.T) {
			direct := pgtest.SchemaURL(t)
			cutter := pgtest.NewCutter(t)
			_, parameters, _ := strings.Cut(direct, "?")
			r := &rig{tables(t, cutter.URL[:strings.IndexByte(cutter.URL+"?", '?')]+"?"+parameters), "filecsv/1/1"}
			db := open(t, "pgx", direct)
			l, err := r.begin(t, 1, "same") // makes the table, too
			must.OK(t, err)
			fill(t, l, 10)
			cutter.Cut(where)
			_, err = l.Commit(t.Context(), "same")
			if e, _ := err.(*load.Error); e == nil || e.Code != "database" || !e.Again {
				t.Errorf("%v, want one that is tried again", err)
			}
			l.Close()
			done, err := r.loads(t, 2, "same", 10)
			if err != nil || done.Rows != 10 || done.Already != (where == pgtest.CutLanded) {
				t.Errorf("%+v, %v", done, err)
			}
			if got := query(t, db, "SELECT count(*) FROM t"); got[0] != "10" {
				t.Errorf("%s rows, want 10", got)
			}
		})
	}
}
