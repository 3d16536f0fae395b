package sqlite_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

func begin(t testing.TB, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	must.OK(t, err)
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

// Items that are added and finished in a transaction of the caller commit with it, or not at all. The transaction may
// have been begun by a statement on a *sql.Conn.
func TestCallersTransaction(t *testing.T) {
	l, path := newLedger(t)
	must.Do(t)(l.Add(t.Context(), numbered(1)...))
	leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	must.OK(t, err)
	c, err := database(t, path).Conn(t.Context())
	must.OK(t, err)
	defer c.Close()
	conn := sqlite.Wrap(c)
	for n, end := range []string{"ROLLBACK", "COMMIT"} {
		must.Do(t)(c.ExecContext(t.Context(), "BEGIN"))
		_, err := l.AddTx(t.Context(), conn, ledger.NewItem{Kind: "new", Key: "x"})
		must.OK(t, errors.Join(err, l.FinishTx(t.Context(), conn, ledger.Ending{Lease: leases[0],
			Result: ledger.Done(nil)})))
		if n, err := l.Count(t.Context(), ledger.Filter{Kinds: []string{"new"}}); n != 0 || err != nil {
			t.Errorf("before the commit others see %d, %v", n, err)
		}
		must.Do(t)(c.ExecContext(t.Context(), end))
		for _, f := range []ledger.Filter{{Kinds: []string{"new"}}, {States: []ledger.State{ledger.StateDone}}} {
			if got, err := l.Count(t.Context(), f); got != int64(n) || err != nil {
				t.Errorf("after %s: %d of %+v, %v", end, got, f, err)
			}
		}
	}
	verify(t, l)
}

// The ledger's first statement takes the write lock or fails at once.
func TestCallersTransactionLocks(t *testing.T) {
	l, path := newLedger(t)
	db, err := sql.Open("sqlite", path)
	must.OK(t, err)
	defer db.Close()
	first, second := begin(t, db), begin(t, db)
	item := ledger.NewItem{Kind: "k", Key: "x"}
	must.Do(t)(l.AddTx(t.Context(), sqlite.Wrap(first), item))
	_, err = l.AddTx(t.Context(), sqlite.Wrap(second), item)
	if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "locked") {
		t.Errorf("while another holds the lock: %v", err)
	}
	must.OK(t, first.Commit())
	third := begin(t, db)
	rows, err := third.QueryContext(t.Context(), "SELECT id FROM ledger_items") // takes the snapshot
	must.OK(t, err)
	rows.Next()
	rows.Close()
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "y"}))
	_, err = l.AddTx(t.Context(), sqlite.Wrap(third), item)
	if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(ledger.Hint(err), "call the ledger before reading") {
		t.Errorf("after it read and another connection wrote: %v", err)
	}
}

// other is a driver for database/sql that is not the one of this package.
type other struct{}

var errOther = errors.New("no such table")

func (other) Open(string) (driver.Conn, error)             { return other{}, nil }
func (other) Connect(context.Context) (driver.Conn, error) { return other{}, nil }
func (other) Driver() driver.Driver                        { return other{} }
func (other) Prepare(string) (driver.Stmt, error)          { return nil, errOther }
func (other) Close() error                                 { return nil }
func (other) Begin() (driver.Tx, error)                    { return other{}, nil }
func (other) Commit() error                                { return nil }
func (other) Rollback() error                              { return nil }

// foreignConn is a Conn for a store of another kind.
type foreignConn struct{ ledger.Conn }

func (foreignConn) Dialect() string { return "postgres" }

func TestCallersTransactionRefused(t *testing.T) {
	l, path := newLedger(t)
	_, elsewhere := newLedger(t)
	db := database(t, path)
	strangers := sql.OpenDB(other{})
	defer strangers.Close()
	empty := database(t, newPath(t))
	idle, err := db.Conn(t.Context())
	must.OK(t, err)
	defer idle.Close()
	ended := begin(t, db)
	must.OK(t, ended.Rollback())
	for name, tt := range map[string]struct {
		conn    ledger.Conn
		message string
	}{
		"another driver":   {sqlite.Wrap(begin(t, strangers)), "is of another driver"},
		"another file":     {sqlite.Wrap(begin(t, empty)), "is not on the file of this ledger"},
		"another ledger":   {sqlite.Wrap(begin(t, database(t, elsewhere))), "is not on the file of this ledger"},
		"nil":              {nil, "is nil"},
		"nothing":          {sqlite.Wrap(nil), "is nil"},
		"no *sql.Tx":       {sqlite.Wrap((*sql.Tx)(nil)), "is nil"},
		"no *sql.Conn":     {sqlite.Wrap((*sql.Conn)(nil)), "is nil"},
		"an ended one":     {sqlite.Wrap(ended), "has ended"},
		"a pool":           {sqlite.Wrap(db), "needs a transaction"},
		"no transaction":   {sqlite.Wrap(idle), "is not an open transaction"},
		"another database": {foreignConn{}, "is one of postgres"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := l.AddTx(t.Context(), tt.conn, ledger.NewItem{Kind: "k", Key: "x"})
			if !errors.Is(err, ledger.ErrInvalid) || !strings.Contains(err.Error()+"; "+ledger.Hint(err), tt.message) {
				t.Errorf("%v", err)
			}
			if name == "an ended one" && !errors.Is(err, sql.ErrTxDone) {
				t.Errorf("the cause is lost: %v", err)
			}
		})
	}
}
