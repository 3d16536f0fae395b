package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"hash/fnv"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
	"github.com/ledgerd/ledgerd/schema"
)

// oldest is the server that is supported, as server_version_num counts.
const oldest = 130000

// condition of a schema.
type condition struct {
	have       int    // number of the newest migration applied; 0: no ledger
	compatible int    // the lowest that a program must know
	restored   string // its floors, as sqlstore.Floors parses them

	environment string
}

// Status returns the schema number of the ledger at a URL, 0 if there is none, and the number that this program makes.
// If the ledger is too new for this program, the error is ErrSchema, and have is set nevertheless. Status changes
// nothing.
func Status(ctx context.Context, url string, o Options) (have, want int, err error) {
	err = withStore(ctx, url, o, func(s *Store, o Options) error {
		c, err := s.condition(ctx, s.pool, o.Schema)
		if have = c.have; err != nil {
			return err
		}
		return s.schemaOf(c).Fits()
	})
	return have, schema.Version, err
}

// Migrate makes the ledger at a URL, or brings it up to date, and returns its schema numbers before and after; from 0
// means that it was made. It leaves alone a ledger that is up to date, or newer and still fit for this program. With
// o.MustExist it makes none.
func Migrate(ctx context.Context, url string, o Options) (from, to int, err error) {
	o.Migrate = true
	err = withStore(ctx, url, o, func(s *Store, o Options) error {
		c, err := s.condition(ctx, s.pool, o.Schema)
		if err == nil {
			err = s.schemaOf(c).Fits()
		}
		if err != nil {
			return err
		}
		from = c.have
		if err := s.prepare(ctx, o); err != nil {
			return err
		}
		c, err = s.condition(ctx, s.pool, o.Schema)
		to = c.have
		return err
	})
	return from, to, err
}

// withStore runs fn with a store that has a pool but need not have a ledger.
func withStore(ctx context.Context, url string, o Options, fn func(*Store, Options) error) error {
	pool, err := connectPool(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	s, o, err := newStore(pool, o)
	if err != nil {
		return err
	}
	defer s.end()
	return explain(ctx, s.name, fn(s, o))
}

// prepare makes or migrates the schema as the options allow, and refuses what does not fit.
func (s *Store) prepare(ctx context.Context, o Options) error {
	if err := s.checkEncoding(ctx); err != nil {
		return err
	}
	c, err := s.condition(ctx, s.pool, o.Schema)
	if err == nil && 0 < c.have && c.have < schema.Version && !o.Migrate {
		c, err = s.settled(ctx, o.Schema) // another process may just be making it
	}
	if err != nil {
		return err
	}
	migrate, err := s.judge(c, o)
	if err == nil && migrate {
		if err = s.migrate(ctx, o); err == nil {
			err = s.keepHome(ctx)
		}
		if err == nil {
			c, err = s.condition(ctx, s.pool, o.Schema) // another process may have made it, and worked it
		}
	}
	if err != nil {
		return err
	}
	s.opened = s.schemaOf(c)
	s.opened.Floors, err = sqlstore.Floors(c.restored)
	return err
}

// checkEncoding refuses a pool whose sessions do not use UTF-8: the server would store other text than we send.
func (s *Store) checkEncoding(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if encoding := conn.Conn().PgConn().ParameterStatus("client_encoding"); encoding != "UTF8" {
		return &ledger.Error{Kind: ledger.ErrInvalid,
			Message: fmt.Sprintf("%s: the sessions of the pool use %s", s.name, encoding),
			Hint:    `set RuntimeParams["client_encoding"] to "UTF8" in the pool's ConnConfig`}
	}
	return nil
}

// settled is the condition of a schema while no process migrates it: each migration is committed by itself.
func (s *Store) settled(ctx context.Context, name string) (c condition, err error) {
	err = pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock_shared($1)", pgx.QueryExecModeCacheDescribe,
			lockKey("migrate", name))
		return err
	})
	if err != nil {
		return c, err
	}
	return s.condition(ctx, s.pool, name)
}

// judge decides whether to make or migrate the ledger. Its error is why the ledger cannot be used.
func (s *Store) judge(c condition, o Options) (migrate bool, err error) {
	switch {
	case c.have == 0 && o.MustExist:
		return false, &ledger.Error{Kind: ledger.ErrNoLedger, Message: fmt.Sprintf("no ledger in %s (schema %s)", s.name,
			o.Schema), Hint: "make one", Act: act.Act{Name: act.Migrate}}
	case c.have == 0:
		return true, nil
	case s.schemaOf(c).Fits() != nil:
		return false, s.schemaOf(c).Fits()
	case c.have < schema.Version && !o.Migrate:
		return false, &ledger.Error{Kind: ledger.ErrSchema,
			Message: fmt.Sprintf("the ledger in %s, Postgres schema %s, has schema %d, this program needs %d", s.name, s.schema, c.have,
				schema.Version), Hint: "migrate it", Act: act.Act{Name: act.Migrate}}
	}
	return c.have < schema.Version, nil
}

// rower is a pool or a transaction.
type rower interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// condition reads how far the schema is, and refuses servers on which a ledger cannot live.
func (s *Store) condition(ctx context.Context, in rower, name string) (c condition, err error) {
	var version int
	var encoding, isolation string
	var meta, migrations bool
	err = in.QueryRow(ctx,
		`SELECT current_setting('server_version_num')::int, current_setting('server_encoding'), current_setting('default_transaction_isolation'), to_regclass($1) IS NOT NULL, to_regclass($2) IS NOT NULL`,
		pgx.QueryExecModeCacheDescribe, pgx.Identifier{name, "ledger_meta"}.Sanitize(), pgx.Identifier{name,
			schema.Table}.Sanitize()).Scan(&version, &encoding, &isolation, &meta, &migrations)
	if err != nil {
		return c, err
	}
	if version < oldest {
		return c, &ledger.Error{Kind: ledger.ErrSchema,
			Message: fmt.Sprintf("%s is Postgres %d.%d, which is too old: a ledger needs %d or newer", s.name, version/10000,
				version%10000, oldest/10000)}
	}
	if encoding != "UTF8" {
		return c, &ledger.Error{Kind: ledger.ErrSchema, Message: fmt.Sprintf("%s has encoding %s", s.name, encoding),
			Hint: "create a database with encoding UTF8"}
	}
	if isolation != readCommitted && isolation != "read uncommitted" { // in Postgres they are the same
		return c, &ledger.Error{Kind: ledger.ErrInvalid,
			Message: fmt.Sprintf("%s: the sessions have the isolation %q by default", s.name, isolation),
			Hint: `set default_transaction_isolation to "read committed" for them: in RuntimeParams of the pool's ConnConfig, ` +
				"in the URL, or by ALTER ROLE"}
	}
	if !meta || !migrations {
		return c, nil
	}
	err = in.QueryRow(ctx, s.render(readCondition), pgx.QueryExecModeCacheDescribe).Scan(&c.have, &c.compatible,
		&c.restored, &c.environment)
	return c, err
}

// readCondition reads a condition from a schema that holds a ledger.
const readCondition = `SELECT (SELECT coalesce(max(version_id), 0)::int FROM {{S}}.` + schema.Table +
	` WHERE is_applied), (SELECT v::int FROM {{S}}.ledger_meta WHERE k = 'compatible_from'),
 coalesce((SELECT v FROM {{S}}.ledger_meta WHERE k = '` + schema.Restored + `'), ''),
 coalesce((SELECT v FROM {{S}}.ledger_meta WHERE k = '` + schema.Environment + `'), '')`

// Schema implements ledger.Store. Claims wait for it, so it does not wait behind readings that take long.
func (s *Store) Schema(ctx context.Context) (ledger.Schema, error) {
	var c condition
	err := s.lookUp(ctx, func(ss session) error {
		return ss.query(readCondition, nil, func(scan scanner) error {
			return scan(&c.have, &c.compatible, &c.restored, &c.environment)
		})
	})
	if err != nil {
		return ledger.Schema{}, err
	}
	known := s.schemaOf(c)
	known.Floors, err = sqlstore.Floors(c.restored)
	return known, err
}

// schemaOf returns the schema without its floors.
func (s *Store) schemaOf(c condition) ledger.Schema {
	return ledger.Schema{Ledger: s.name, Have: c.have, Compatible: c.compatible, Oldest: schema.Oldest,
		Known: schema.Version, Environment: c.environment}
}

// migrate runs the outstanding migrations, in a session of its own and not through a pooler: they need the schema in
// search_path, and one session for all transactions.
func (s *Store) migrate(ctx context.Context, o Options) error {
	config := s.pool.Config()
	conn := config.ConnConfig
	conn.RuntimeParams["search_path"] = s.schema
	options := []stdlib.OptionOpenDB{}
	if config.BeforeConnect != nil {
		options = append(options, stdlib.OptionBeforeConnect(config.BeforeConnect))
	}
	db := stdlib.OpenDB(*conn, options...)
	defer db.Close()
	// One at a time. The lock is that of a transaction, so that it cannot be left behind. The pool's session holds it: a
	// session of its own would cost the server as much as a third of the migrations.
	return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SET LOCAL idle_in_transaction_session_timeout = 0")
		if err == nil {
			_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", pgx.QueryExecModeCacheDescribe,
				lockKey("migrate", o.Schema))
		}
		if err != nil {
			return err
		}
		// Another process may have migrated it before us. Until the end this session keeps a lock on the tables that it
		// reads here, ACCESS SHARE: a migration that alters them would wait for ever.
		c, err := s.condition(ctx, tx, o.Schema)
		if err != nil {
			return err
		}
		if outstanding, err := s.judge(c, o); err != nil || !outstanding {
			return err
		}
		return s.up(ctx, db, o.Schema)
	})
}

// up makes the schema unless it is there, and runs the migrations.
func (s *Store) up(ctx context.Context, db *sql.DB, name string) error {
	if err := s.createSchema(ctx, db, name); err != nil {
		return err
	}
	files, err := fs.Sub(schema.Postgres, "postgres")
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, files, goose.WithTableName(schema.Table),
		goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// createSchema makes the schema unless it is there. CREATE SCHEMA IF NOT EXISTS needs rights even if it does nothing.
func (s *Store) createSchema(ctx context.Context, db *sql.DB, name string) error {
	var there bool
	if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)",
		name).Scan(&there); err != nil || there {
		return err
	}
	_, err := db.ExecContext(ctx, "CREATE SCHEMA "+s.schema)
	return err
}

// lockKey is the key of an advisory lock.
func lockKey(parts ...string) int64 {
	h := fnv.New64a()
	for _, p := range parts {
		fmt.Fprintf(h, "ledgerd\x00%s\x00", p)
	}
	return int64(h.Sum64())
}
