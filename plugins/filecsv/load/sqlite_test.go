package load

import (
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
)

// TestLongRows: rows with long values do not wait for a hundred of them.
func TestLongRows(t *testing.T) {
	d, err := openSQLite(filepath.Join(t.TempDir(), "t.db"))
	must.OK(t, err)
	defer d.db.Close()
	must.Do(t)(d.db.Exec("CREATE TABLE t (a text)"))
	conn, err := d.db.Conn(t.Context())
	must.OK(t, err)
	defer conn.Close()
	in, err := newInserter(t.Context(), conn, into{table: "t", columns: []string{"a"}})
	must.OK(t, err)
	defer in.abandon()
	value := make([]byte, 400<<10)
	for n := range 7 {
		must.OK(t, in.add(t.Context(), [][]byte{value}))
		var rows int
		must.OK(t, conn.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&rows))
		if waiting := n + 1 - rows; waiting > 2 {
			t.Errorf("%d rows of 400 KiB wait", waiting)
		}
	}
	must.OK(t, in.end(t.Context()))
	var rows int
	must.OK(t, conn.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(&rows))
	if rows != 7 {
		t.Errorf("%d rows", rows)
	}
}
