package postgres

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/pgcancel"
	"github.com/ledgerd/ledgerd/ledger"
)

// connectTimeout is the time for each address of the server, unless the URL has connect_timeout.
const connectTimeout = 5 * time.Second

// poolSize is enough for the claims, endings and renewals of a worker that keeps a server busy;
// pool_max_conns in the URL sets another.
const poolSize = 8

// settings of our sessions, unless the URL has them. Our statements are too short for JIT. Bitmap scans have no order:
// right after a drain the planner believes that almost no row is ready, and would read and sort all ready rows for each
// claim. A claim is one statement, so it has the isolation of the session. The timeout releases the row locks of a
// process that freezes within a transaction. A statement sets them, because poolers refuse such parameters at the start
// of a session.
var settings = []setting{
	{"jit", "off"},
	{"enable_bitmapscan", "off"},
	{"default_transaction_isolation", readCommitted},
	{"idle_in_transaction_session_timeout", "10s"},
	{"client_min_messages", "warning"}, // see noteUnreplicated
}

// readCommitted is the isolation of statements: each must see what others have committed before it.
const readCommitted = "read committed"

// setting is a setting of a session.
type setting struct{ name, value string }

// Connect opens the ledger at a URL (or a keyword/value string, as libpq takes it) with a pool of its own. Close closes
// the pool. Errors are those of Open; none contains the password.
func Connect(ctx context.Context, url string, o Options) (*Store, error) {
	config, err := poolConfig(url)
	if err != nil {
		return nil, err
	}
	if o.ReadOnly {
		refuseWrites(config)
	}
	if o.URL != nil {
		config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			if url, err := o.URL(); err == nil {
				now, err := pgx.ParseConfig(url)
				if err == nil && now.Host == config.ConnConfig.Host && now.Port == config.ConnConfig.Port &&
					now.Database == c.Database { // a URL of another server counts from the next start on
					c.User, c.Password = now.User, now.Password
				}
			}
			return nil
		}
	}
	hot := splitPool(config)
	pool, err := newPool(ctx, config)
	if err != nil {
		return nil, err
	}
	s, err := Open(ctx, pool, o)
	if err != nil {
		pool.Close()
		return nil, err
	}
	s.owned = true
	if hot == nil {
		return s, nil
	}
	if s.hot, err = newPool(ctx, hot); err != nil {
		s.hot = pool
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// refuseWrites makes the sessions of a pool read-only. As in applyPath, a session behind a pooler is left as it is,
// since another client may use it next.
func refuseWrites(config *pgxpool.Config) {
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := after(ctx, conn); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, "SELECT set_config('default_transaction_read_only', 'on', false) "+
			"WHERE pg_backend_pid() = $1::bigint", pgx.QueryExecModeCacheDescribe, int64(conn.PgConn().PID()))
		if err != nil {
			pgcancel.CloseUnused(conn)
		}
		return err
	}
}

func newPool(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	return pool, explain(ctx, ledgerName(config.ConnConfig), err)
}

func connectPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	config, err := poolConfig(url)
	if err != nil {
		return nil, err
	}
	return newPool(ctx, config)
}

func poolConfig(url string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil { // the error may quote a part of the password
		return nil, &ledger.InvalidError{Field: "url",
			Reason: "not a Postgres URL, such as postgres://user@host:5432/database (special characters of a password are " +
				"written as %XX)"}
	}
	if !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = poolSize
	}
	c := config.ConnConfig
	c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	c.DescriptionCacheCapacity = max(c.DescriptionCacheCapacity, 512) // pgx's default; the mode needs a cache
	c.ConnectTimeout = cmp.Or(c.ConnectTimeout, connectTimeout)
	if c.RuntimeParams["application_name"] == "" {
		c.RuntimeParams["application_name"] = "ledgerd"
	}
	// Else the server takes our UTF-8 for what the role or the database has been set to. A pooler knows this parameter.
	c.RuntimeParams["client_encoding"] = "UTF8"
	path := c.RuntimeParams["search_path"]
	delete(c.RuntimeParams, "search_path") // a pooler refuses it
	chosen := strings.Contains(url, "target_session_attrs") || os.Getenv("PGTARGETSESSIONATTRS") != ""
	if !chosen && severalHosts(c) { // all but one may be standbys
		c.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	pgcancel.Use(c, connectTimeout)
	noteUnreplicated(c)
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		err := applySettings(ctx, conn)
		if err == nil && path != "" {
			err = applyPath(ctx, conn, path)
		}
		if err != nil {
			pgcancel.CloseUnused(conn)
		}
		return err
	}
	return config, nil
}

func severalHosts(c *pgx.ConnConfig) bool {
	for _, f := range c.Fallbacks {
		if f.Host != c.Host || f.Port != c.Port {
			return true
		}
	}
	return false
}

func applySettings(ctx context.Context, conn *pgx.Conn) error {
	var sql strings.Builder
	names, values := settingsFor(conn, settings)
	for i, name := range names {
		sql.WriteString("SET " + name + " = '" + values[i] + "';")
	}
	_, err := conn.Exec(ctx, sql.String())
	return err
}

// settingsFor returns the settings of a list that the URL does not set.
func settingsFor(conn *pgx.Conn, list []setting) (names, values []string) {
	for _, s := range list {
		if _, given := conn.Config().RuntimeParams[s.name]; !given {
			names, values = append(names, s.name), append(values, s.value)
		}
	}
	return names, values
}

// applyPath sets search_path, for names without a schema in queries of users; our statements do not need it. Behind a
// pooler in transaction mode it would change the session of another client. So it is set only if the server's session
// is the one that was reported when we connected.
func applyPath(ctx context.Context, conn *pgx.Conn, path string) error {
	_, err := conn.Exec(ctx, "SELECT set_config('search_path', $1, false) WHERE pg_backend_pid() = $2::bigint",
		pgx.QueryExecModeCacheDescribe, path, int64(conn.PgConn().PID()))
	return err
}
