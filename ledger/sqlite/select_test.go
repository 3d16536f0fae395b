package sqlite_test

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/storetest"
)

func TestSelects(t *testing.T) {
	tables := map[ledger.Store]*sql.DB{}
	storetest.Selects(t, func(t testing.TB, now func() time.Time) ledger.Store {
		path := filepath.Join(t.TempDir(), "ledger.db")
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		tables[s] = database(t, path)
		return s
	}, func(t testing.TB, s ledger.Store, statement string, args ...any) {
		t.Helper()
		if _, err := tables[s].ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	})
}

// TestSelectIsOne: a query that closes the parentheses around it and goes on changes nothing.
func TestSelectIsOne(t *testing.T) {
	l, _ := newLedger(t)
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "list", Key: "there"}); err != nil {
		t.Fatal(err)
	}
	_, err := l.AddSelect(t.Context(), ledger.Selection{Kind: "list", Key: "i",
		Query: `SELECT 1 AS i) q; DELETE FROM ledger_backlog; SELECT * FROM (SELECT 2 AS i`})
	if bad, ok := errors.AsType[*ledger.QueryError](err); !ok || !strings.Contains(bad.Message, "one SELECT") {
		t.Error(err)
	}
	if it, err := l.Find(t.Context(), "list", "", "there"); err != nil || it.State != ledger.StateReady {
		t.Errorf("%+v %v", it, err)
	}
}

// TestSelectLetsOthersWrite: a list is added in short steps, and others write in between.
func TestSelectLetsOthersWrite(t *testing.T) {
	l, path := newLedger(t)
	other, err := sqlite.Open(t.Context(), path, sqlite.Options{MustExist: true})
	if err != nil {
		t.Fatal(err)
	}
	o := ledger.New(other, ledger.Options{})
	defer o.Close()
	over := make(chan error, 1)
	go func() {
		_, err := l.AddSelect(t.Context(), ledger.Selection{Kind: "list", Key: "i",
			Query: `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40000) SELECT i FROM n`})
		over <- err
	}()
	var ids []int64
	for i := 0; ; i++ {
		select {
		case err := <-over:
			if err != nil {
				t.Fatal(err)
			}
			first, err := l.Find(t.Context(), "list", "", "1")
			if err != nil {
				t.Fatal(err)
			}
			last, err := l.Find(t.Context(), "list", "", "39999")
			if err != nil {
				t.Fatal(err)
			}
			between := 0
			for _, id := range ids {
				if first.ID < id && id < last.ID {
					between++
				}
			}
			if between == 0 {
				t.Errorf("of %d items of another process none was added between the first (%d) and the last (%d) of a list", len(ids), first.ID, last.ID)
			}
			return
		default:
			a, err := o.Add(t.Context(), ledger.NewItem{Kind: "other", Key: fmt.Sprint(i)})
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, a[0].ID)
		}
	}
}
