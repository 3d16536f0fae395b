// Package ours does the work of the benchmark with ledgerd: in this process, through a plugin's process, or with
// separate programs, on Postgres and on SQLite.
package ours

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// Kind of all items; the plugin has the same name.
const Kind = "noop"

// Bench is what all measurements share.
type Bench struct {
	Postgres string // URL of a database in which schemas may be made
	Dir      string // folder for SQLite files
	Programs string // folder with ledgerd, ledgerd-plugin-noop, riversqlite and graphile
}

var made atomic.Int64

// SchemaName returns a name that no other measurement uses at the same time, in this process or in another one on the
// same server.
func SchemaName(side string) string { return fmt.Sprintf("%s_%d_%d", side, os.Getpid(), made.Add(1)) }

// Place is the place of one ledger: a schema or a file.
type Place struct {
	url, schema string
	file        string
	connections int // that the ledger has on Postgres; 0: the usual number
}

// OnPostgres returns a new, empty place.
func (b *Bench) OnPostgres(ctx context.Context) (*Place, error) {
	p := &Place{url: b.Postgres, schema: SchemaName("ours")}
	return p, p.Exec(ctx, "CREATE SCHEMA "+p.schema)
}

// OnSQLite returns a new, empty place.
func (b *Bench) OnSQLite(context.Context) (*Place, error) {
	return &Place{file: filepath.Join(b.Dir, fmt.Sprintf("ours-%d.db", made.Add(1)))}, nil
}

// On is OnPostgres or OnSQLite.
type On func(context.Context) (*Place, error)

// Open opens the ledger, as a program with its own connections would.
func (p *Place) Open(ctx context.Context) (*ledger.Ledger, error) {
	if p.file != "" {
		s, err := sqlite.Open(ctx, p.file, sqlite.Options{})
		if err != nil {
			return nil, err
		}
		return ledger.New(s, ledger.Options{Logger: Quiet}), nil
	}
	address := p.url
	if p.connections > 0 {
		u, err := url.Parse(p.url)
		if err != nil {
			return nil, err
		}
		q := u.Query()
		q.Set("pool_max_conns", strconv.Itoa(p.connections))
		u.RawQuery = q.Encode()
		address = u.String()
	}
	s, err := postgres.Connect(ctx, address, postgres.Options{Schema: p.schema})
	if err != nil {
		return nil, err
	}
	return ledger.New(s, ledger.Options{Logger: Quiet}), nil
}

// Address returns the address of the ledger, for ledgerd's --db.
func (p *Place) Address() string {
	if p.file != "" {
		return "sqlite:" + p.file
	}
	u, err := url.Parse(p.url)
	if err != nil {
		panic(err) // it has been connected to
	}
	q := u.Query()
	q.Set("search_path", p.schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// Remove deletes the ledger.
func (p *Place) Remove() error {
	if p.file != "" {
		return RemoveSQLite(p.file)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return p.Exec(ctx, "DROP SCHEMA "+p.schema+" CASCADE")
}

// RemoveSQLite deletes a database, as far as it is there.
func RemoveSQLite(path string) error {
	var all error
	for _, end := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + end); !errors.Is(err, fs.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// Settle makes the server do now what it would do in the background during a measurement.
func (p *Place) Settle(ctx context.Context) error {
	if p.file != "" {
		return nil
	}
	return SettlePostgres(ctx, p.url, p.schema)
}

// SettlePostgres vacuums and analyses the tables of a schema, and writes a checkpoint.
func SettlePostgres(ctx context.Context, url, schema string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	rows, err := conn.Query(ctx, "SELECT format('VACUUM (ANALYZE) %I.%I', schemaname, tablename) FROM pg_tables WHERE "+
		"schemaname = $1", schema)
	if err != nil {
		return err
	}
	statements, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, sql := range append(statements, "CHECKPOINT") {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// Exec runs statements in the schema of a place on Postgres, on a new connection.
func (p *Place) Exec(ctx context.Context, statements ...string) error {
	c, err := pgx.ParseConfig(p.url)
	if err != nil {
		return err
	}
	c.RuntimeParams["search_path"] = p.schema
	conn, err := pgx.ConnectConfig(ctx, c)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}
