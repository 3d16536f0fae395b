// Package pgtest gives tests a real Postgres.
//
// The server is the one that LEDGERD_TEST_POSTGRES names (`make test` starts a server and sets the variable).
// Otherwise the tests of each package start a temporary server from the programs installed on the machine. It ends with
// them. Without Postgres a test fails and names what to install; it is never skipped.
//
// A test takes a schema ([Schema]) or a database ([Database]) of its own on the shared server, or
// a server of its own ([Start]) that it may stop, crash and start again.
package pgtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest/cluster"
)

// Env names the environment variable with the URL of the server to use. Its user must be allowed
// to make schemas there, and databases for [Database].
const Env = "LEDGERD_TEST_POSTGRES"

// started starts the shared server. It lives as long as this process.
var started = sync.OnceValues(func() (*cluster.Cluster, error) { return cluster.Start(Options{}) })

// URL addresses the shared server and the database in which [Schema] makes schemas.
func URL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv(Env); given != "" {
		return given
	}
	server, err := started()
	must.OK(t, err)
	return server.URL()
}

// Pool opens a pool on [URL]; it is closed when the test ends.
func Pool(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(context.Background(), URL(t))
	must.OK(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// Schema makes an empty schema in the database of [URL] for this test alone and returns its name. The name needs no
// quoting. When the test ends the schema is dropped with all that is in it; a transaction that the test left open makes
// it fail then.
func Schema(t testing.TB) string {
	t.Helper()
	name := unique()
	execute(t, "CREATE SCHEMA "+name)
	t.Cleanup(func() { execute(t, "DROP SCHEMA IF EXISTS "+name+" CASCADE") })
	return name
}

// SchemaURL is [URL] with a [Schema] of its own as the search path.
func SchemaURL(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(URL(t))
	must.OK(t, err)
	q := u.Query()
	q.Set("search_path", Schema(t))
	u.RawQuery = q.Encode()
	return u.String()
}

// Database makes an empty database for this test alone and returns its URL. When the test ends
// the database is dropped; sessions still open there are ended.
func Database(t testing.TB) string {
	t.Helper()
	name := unique()
	execute(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { execute(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	u, err := url.Parse(URL(t))
	must.OK(t, err)
	u.Path = "/" + name
	return u.String()
}

// Latin1 is a [Database] whose sessions exchange text in LATIN1, unless they choose UTF-8.
func Latin1(t testing.TB) string {
	t.Helper()
	address := Database(t)
	u, err := url.Parse(address)
	must.OK(t, err)
	execute(t, "ALTER DATABASE "+strings.TrimPrefix(u.Path, "/")+" SET client_encoding = 'LATIN1'")
	return address
}

// Version returns the version of the shared server as a number: 150018 is 15.18.
func Version(t testing.TB) int {
	t.Helper()
	version, err := strconv.Atoi(Setting(t, "server_version_num"))
	must.OK(t, err)
	return version
}

// Setting returns the value of a setting of the shared server, as its superuser or the user of [Env] sees it.
func Setting(t testing.TB, name string) (value string) {
	t.Helper()
	connect(t, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT current_setting($1)", name).Scan(&value)
	})
	return value
}

// Options of [Start].
type Options = cluster.Options

// Start starts a server for this test alone. It ends with the test. It runs on this machine even if [Env] names a
// server.
func Start(t testing.TB, o Options) *cluster.Cluster {
	t.Helper()
	server, err := cluster.Start(o)
	must.OK(t, err)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return server
}

// unique returns a name for a schema or a database that no other test has. Its prefix shows where it comes from, if a
// killed test leaves it on a server that stays.
func unique() string {
	return "ledgerd_test_" + strings.ToLower(rand.Text()[:16])
}

// patience is how long a statement of this package may wait, above all for locks that the test
// still holds.
const patience = 5 * time.Minute

// execute runs a statement on the shared server.
func execute(t testing.TB, statement string) {
	t.Helper()
	connect(t, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
		return nil
	})
}

// idle are connections to the shared server that [connect] uses again. To make one takes the server much longer than
// most statements of this package do.
var idle = make(chan *pgx.Conn, 4)

// connect calls do with a connection to the shared server.
func connect(t testing.TB, do func(context.Context, *pgx.Conn) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var conn *pgx.Conn
	select {
	case conn = <-idle:
	default:
		var err error
		conn, err = pgx.Connect(ctx, URL(t))
		must.OK(t, err)
	}
	err := do(ctx, conn)
	if err == nil {
		select {
		case idle <- conn:
			return
		default:
		}
	}
	conn.Close(ctx)
	must.OK(t, err)
}
