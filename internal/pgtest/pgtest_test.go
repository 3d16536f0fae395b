package pgtest

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// count returns the result of a query that counts, with one argument.
func count(t *testing.T, pool *pgxpool.Pool, sql, arg string) (n int) {
	t.Helper()
	must.OK(t, pool.QueryRow(t.Context(), sql, arg).Scan(&n))
	return n
}

func TestSchemaIsOfOneTestAndGoneAfterIt(t *testing.T) {
	pool := Pool(t)
	const schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = $1"
	var first, second string
	t.Run("test", func(t *testing.T) {
		first, second = Schema(t), Schema(t)
		if first == second {
			t.Errorf("%s was given twice", first)
		}
		for _, name := range []string{first, second} {
			must.Do(t)(pool.Exec(t.Context(), "CREATE TABLE "+name+".items (id int)"))
		}
	})
	for _, name := range []string{first, second} {
		if count(t, pool, schemas, name) != 0 {
			t.Errorf("%s is still there after its test", name)
		}
	}
}

func TestDatabaseIsOfOneTestAndGoneAfterItAlsoWithOpenSessions(t *testing.T) {
	pool := Pool(t)
	const databases = "SELECT count(*) FROM pg_database WHERE datname = $1"
	var name string
	t.Run("test", func(t *testing.T) {
		conn, err := pgx.Connect(t.Context(), Database(t))
		must.OK(t, err)
		must.OK(t, conn.QueryRow(t.Context(), "SELECT current_database()").Scan(&name))
		if count(t, pool, databases, name) != 1 {
			t.Errorf("%s does not exist during its test", name)
		}
	})
	if count(t, pool, databases, name) != 0 {
		t.Errorf("%s is still there after its test", name)
	}
}

func TestVersion(t *testing.T) {
	var text string
	must.OK(t, Pool(t).QueryRow(t.Context(), "SHOW server_version").Scan(&text))
	major, _, _ := strings.Cut(text, ".")
	if got := Version(t) / 10000; major != strconv.Itoa(got) {
		t.Errorf("major version %d of server %s", got, text)
	}
}

// TestWithoutPostgresATestFails runs another test of this package on a machine without Postgres.
func TestWithoutPostgresATestFails(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestVersion$", "-test.v")
	cmd.Env = append(os.Environ(), Env+"=", cluster.BinEnv+"=/nonexistent")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "--- FAIL: TestVersion") ||
		!strings.Contains(string(out), cluster.BinEnv) {
		t.Errorf("%v, want a failing test with what to do:\n%s", err, out)
	}
}
