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

// Connect opens the ledger at a URL (or a keyword/value string, as libpq takes it) with two pools of its own: one for
// the frequent statements (hot.go), one for the rest. Close closes both. Errors are those of Open; none contains the
// password.
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
	hot := splitPool(config) // nil: there is one connection only, and all calls share it
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
	if hot != nil {
		pool, err := newPool(ctx, hot)
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		s.hot = pool
	}
	return s, nil
}

// refuseWrites makes the sessions of a pool read-only, unless there is a pooler before the server.
func refuseWrites(config *pgxpool.Config) {
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if err := after(ctx, conn); err != nil {
			return err
		}
		_, err := setUnpooled(ctx, conn, []string{"default_transaction_read_only"}, []string{"on"})
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

// connectPool makes a pool for a task that needs no store, such as a migration.
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
		if err == nil && path != "" { // for names without a schema in queries of users; our statements have theirs
			_, err = setUnpooled(ctx, conn, []string{"search_path"}, []string{path})
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

// setUnpooled sets settings of the server's session, and reports whether it did. It does nothing if there is a pooler
// before the server: another client may use the session next. Then the session is not the one that was reported when we
// connected.
func setUnpooled(ctx context.Context, conn *pgx.Conn, names, values []string) (set bool, err error) {
	tag, err := conn.Exec(ctx,
		"SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) s(name, value) WHERE pg_backend_pid() = $3::bigint",
		pgx.QueryExecModeCacheDescribe, names, values, int64(conn.PgConn().PID()))
	return tag.RowsAffected() > 0, err
}
