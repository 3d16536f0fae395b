package txn

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// DB begins and ends transactions of type T. postgres.DB, postgres.SQLDB and sqlite.DB make one.
type DB[T any] interface {
	// Pool identifies the database: Run joins a transaction of a DB with an equal pool.
	Pool() any
	// Begin begins a transaction. Where one transaction writes at a time it waits for its turn.
	Begin(ctx context.Context, i Isolation) (T, error)
	// Commit ends a transaction. After an error that matches ErrUncertain, it may have taken effect; after any other error
	// it has not. An error that matches ErrRolledBack means that a statement had failed before.
	Commit(ctx context.Context, tx T) error
	// Rollback ends a transaction. If that fails, the connection is gone, and the transaction with it.
	Rollback(tx T)
	// Lost reports whether the connection of a transaction that has not been ended is gone.
	Lost(tx T) bool
	// LockKeys takes the locks of distinct keys, and waits for locks that others hold. It takes them in an order that
	// depends on nothing but the keys.
	LockKeys(ctx context.Context, tx T, keys []string) error
	// Conn returns tx in the form for Ledger.AddTx and FinishTx, and for code that knows no driver.
	Conn(tx T) ledger.Conn
	// Transient reports whether an error of Begin, of a statement or of Commit means that the database has given up on the
	// transaction, and the same transaction may succeed when it is repeated.
	Transient(err error) bool
}

// Isolation of a transaction. On SQLite every level is serializable.
type Isolation int

// The levels, each stronger than the one before.
const (
	ReadCommitted Isolation = iota
	// RepeatableRead sees one moment of the database. That moment is before the end of any wait for a lock, so Lock is
	// refused.
	RepeatableRead
	Serializable
)

func (i Isolation) String() string {
	return [...]string{"read committed", "repeatable read", "serializable"}[i]
}

// Config of a Runner; the zero value is good.
type Config struct {
	MaxTries  int           // how often fn is called at most; 0 means 10
	MaxTime   time.Duration // of Run as a whole, with all tries and all waiting: the ctx of fn ends then; 0 means 30 s
	Isolation Isolation
	OnTry     func(Try) // called after each try: for metrics and logs; nil means none
}

// Try describes how one try of a transaction ended.
type Try struct {
	N      int           // 1, 2, 3 …
	Err    error         // nil: committed
	Repeat bool          // another try follows, unless the time ends in the pause before it
	Took   time.Duration // with the wait for its turn and for locks
}

// Runner runs functions on one database. It is safe for concurrent use.
type Runner[T any] struct {
	db     DB[T]
	config Config
}

// New makes a Runner. Make one per pool at start and share it.
func New[T any](db DB[T], c Config) *Runner[T] {
	c.MaxTries = cmp.Or(c.MaxTries, 10)
	c.MaxTime = cmp.Or(c.MaxTime, 30*time.Second)
	return &Runner[T]{db, c}
}

// Conn returns tx in the form for Ledger.AddTx and FinishTx.
func (r *Runner[T]) Conn(tx T) ledger.Conn { return r.db.Conn(tx) }

// Errors of this package, to be matched with errors.Is.
var (
	ErrNoTx       = errors.New("txn: not inside Run")
	ErrUncertain  = errors.New("txn: COMMIT was sent and not answered; it may have taken effect")
	ErrRolledBack = errors.New("txn: rolled back, because something inside of it had failed")
)

var errLost = errors.New("txn: the connection was lost before COMMIT, or a ctx of the function's own ended during a " +
	"statement")

// TriesError is returned when the transaction did not go through in the tries or the time that it had.
type TriesError struct {
	Tries int
	Err   error // of the last try
}

func (e *TriesError) Error() string {
	if e.Tries == 1 {
		return fmt.Sprintf("txn: gave up: %v", e.Err)
	}
	return fmt.Sprintf("txn: gave up after %d tries: %v", e.Tries, e.Err)
}
func (e *TriesError) Unwrap() error { return e.Err }
