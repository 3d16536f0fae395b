package postgres

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqltx"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// DB runs transactions on the caller's pool; the ledger need not be there. The end of a ctx does not interrupt COMMIT.
// COMMIT has ten seconds. See Open about pools of the caller and synchronous standbys.
func DB(pool *pgxpool.Pool) txn.DB[pgx.Tx] { return poolDB{pool: pool} }

// SQLDB is DB on a handle of database/sql. It must use pgx's driver (github.com/jackc/pgx/v5/stdlib).
func SQLDB(db *sql.DB) txn.DB[*sql.Tx] { return &sqlDB{pool: sqltx.Pool{DB: db}} }

// endTimeout bounds COMMIT and ROLLBACK.
const endTimeout = 10 * time.Second

type poolDB struct {
	transient
	pool *pgxpool.Pool
}

func (d poolDB) Pool() any { return d.pool }

func (d poolDB) Begin(ctx context.Context, i txn.Isolation) (pgx.Tx, error) {
	level := map[txn.Isolation]pgx.TxIsoLevel{
		txn.ReadCommitted: pgx.ReadCommitted, txn.RepeatableRead: pgx.RepeatableRead, txn.Serializable: pgx.Serializable,
	}[i]
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	return tx, uncommitted(err)
}

func (d poolDB) Commit(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	return fate(tx.Commit(ctx))
}

func (d poolDB) Rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	_ = tx.Rollback(ctx) // a connection on which it fails is closed
}

func (d poolDB) Lost(tx pgx.Tx) bool { return tx.Conn().IsClosed() }

func (d poolDB) LockKeys(ctx context.Context, tx pgx.Tx, keys []string) error {
	return lockKeys(ctx, Wrap(tx), keys)
}

func (d poolDB) Conn(tx pgx.Tx) ledger.Conn { return Wrap(tx) }

type sqlDB struct {
	transient
	pool sqltx.Pool
}

func (d *sqlDB) Pool() any { return d.pool.DB }

func (d *sqlDB) Begin(ctx context.Context, i txn.Isolation) (*sql.Tx, error) {
	level := map[txn.Isolation]sql.IsolationLevel{
		txn.ReadCommitted: sql.LevelReadCommitted, txn.RepeatableRead: sql.LevelRepeatableRead,
		txn.Serializable: sql.LevelSerializable,
	}[i]
	tx, err := d.pool.Begin(ctx, sql.TxOptions{Isolation: level})
	return tx, uncommitted(err)
}

func (d *sqlDB) Commit(_ context.Context, tx *sql.Tx) error { return fate(d.pool.Commit(tx)) }

func (d *sqlDB) Rollback(tx *sql.Tx) { _ = d.pool.Rollback(tx) } // a connection on which it fails is closed

func (d *sqlDB) Lost(tx *sql.Tx) (lost bool) {
	d.pool.Raw(tx, func(conn any) {
		if c, ours := conn.(*stdlib.Conn); ours {
			lost = c.Conn().IsClosed()
		}
	})
	return lost
}

func (d *sqlDB) LockKeys(ctx context.Context, tx *sql.Tx, keys []string) error {
	return lockKeys(ctx, WrapSQL(tx), keys)
}

func (d *sqlDB) Conn(tx *sql.Tx) ledger.Conn { return WrapSQL(tx) }

// fate tells what became of a transaction by the error of its COMMIT. Only an answer of the server is certain.
// pgconn.SafeToRetry is not asked: in pgx 5.12 it reports a COMMIT whose answer is missing as not sent.
func fate(err error) error {
	answer := new(pgconn.PgError)
	switch {
	case err == nil, errors.As(err, &answer) && !lost(err),
		errors.Is(err, pgx.ErrTxClosed), errors.Is(err, sql.ErrTxDone): // ended by the function itself
		return err
	case errors.Is(err, pgx.ErrTxCommitRollback):
		return fmt.Errorf("%w: Postgres undid it when a statement failed, whose error was not returned", txn.ErrRolledBack)
	}
	return fmt.Errorf("%w: %w", txn.ErrUncertain, err)
}

// transient reports the errors that txn.Run repeats.
type transient struct{}

func (transient) Transient(err error) bool { return rolledBack(err) || errors.As(err, new(repeatable)) }

// lockKeys takes advisory locks of the transaction by the first eight bytes of the keys' SHA-256, in the order of these
// numbers. Keys with the same number are the same lock. In SQL, for other programs that want to honour a lock:
//
//	SELECT pg_advisory_xact_lock(('x' || left(encode(sha256('account:7'), 'hex'), 16))::bit(64)::bigint)
func lockKeys(ctx context.Context, tx ledger.Conn, keys []string) error {
	numbers := make([]int64, len(keys))
	for i, k := range keys {
		sum := sha256.Sum256([]byte(k))
		numbers[i] = int64(binary.BigEndian.Uint64(sum[:]))
	}
	slices.Sort(numbers)
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(n) FROM unnest($1::bigint[]) n", slices.Compact(numbers))
	return err
}
