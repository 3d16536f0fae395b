package txn

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
)

// MaxKeys is how many entity locks one transaction may hold. The server keeps them in memory that
// all sessions share (by default room for 6,400).
const MaxKeys = 1000

// Lock takes the entity locks of all keys in one fixed order, and holds them until the end of the transaction of the
// innermost Run that ctx is in. Keys that this transaction has locked are not locked again. A key is any text. Reads
// after Lock see what the former holder has committed.
//
// Transactions that lock everything in one call never deadlock. Locks that are taken in several
// calls may; then Run repeats the transaction. Do not roll back to a savepoint that is older than
// a lock: Postgres frees it then.
//
// Lock returns ErrNoTx outside of Run. It fails with more than MaxKeys in one transaction, and in a transaction that is
// RepeatableRead. After any error of Lock the transaction is rolled back.
func Lock(ctx context.Context, keys ...string) error {
	t := innermost(ctx)
	if t == nil {
		return ErrNoTx
	}
	return t.take(ctx, keys)
}

// Databases yields the databases of the open transactions that ctx is in, innermost first, for a
// store that has to know whether it would wait for its own caller.
func Databases(ctx context.Context) iter.Seq[any] {
	return func(yield func(any) bool) {
		for s, _ := ctx.Value(scopeKey{}).(*scope); s != nil; s = s.outer {
			if s.t.open() && !yield(s.t.db) {
				return
			}
		}
	}
}

// transaction is shared by all calls in one transaction.
type transaction struct {
	pool, db, tx any
	isolation    Isolation
	lock         func(ctx context.Context, keys []string) error

	mu    sync.Mutex
	keys  []string // that Lock was called with, sorted; they are locked unless there is a cause
	cause error    // why the transaction must be rolled back: its first failure
	ended bool
}

// take locks those keys that are not locked yet.
func (t *transaction) take(ctx context.Context, keys []string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return ErrNoTx
	}
	if err := t.broken(); err != nil {
		return err
	}
	keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool {
		_, held := slices.BinarySearch(t.keys, k)
		return held
	})
	slices.Sort(keys)
	keys = slices.Compact(keys)
	switch n := len(t.keys) + len(keys); {
	case len(keys) == 0:
		return nil
	case n > MaxKeys:
		t.cause = fmt.Errorf("txn: %d entity locks in one transaction, at most %d: lock what these entities have in common",
			n, MaxKeys)
	case t.isolation == RepeatableRead:
		t.cause = fmt.Errorf("txn: entity locks protect nothing at %v, which reads what was before the lock: use %v or %v",
			t.isolation, ReadCommitted, Serializable)
	default:
		t.keys = append(t.keys, keys...)
		slices.Sort(t.keys)
		t.cause = t.lock(ctx, keys)
	}
	return t.cause
}

// fail makes sure that the transaction is rolled back, and returns the error.
func (t *transaction) fail(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cause == nil {
		t.cause = err
	}
	return err
}

// failed is why the transaction must be rolled back, or nil.
func (t *transaction) failed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cause
}

// rolledBack is the error of further calls in a transaction that must be rolled back, or nil.
func (t *transaction) rolledBack() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.broken()
}

// broken is rolledBack for a caller that has locked t.mu.
func (t *transaction) broken() error {
	if t.cause == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrRolledBack, t.cause)
}

// end makes contexts that outlive the transaction forget it, and returns the keys that Lock was called with.
func (t *transaction) end() (keys []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ended = true
	return t.keys
}

func (t *transaction) open() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.ended
}

// scope is the chain of transactions that a context is in.
type scope struct {
	t     *transaction
	outer *scope
}

type scopeKey struct{}

// within returns a context in the transaction.
func within(ctx context.Context, t *transaction) context.Context {
	outer, _ := ctx.Value(scopeKey{}).(*scope)
	return context.WithValue(ctx, scopeKey{}, &scope{t, outer})
}

// innermost is the transaction that ctx is in, or nil.
func innermost(ctx context.Context) *transaction {
	if s, _ := ctx.Value(scopeKey{}).(*scope); s != nil && s.t.open() {
		return s.t
	}
	return nil
}

// find is the transaction on this pool that ctx is in, or nil.
func find(ctx context.Context, pool any) *transaction {
	for s, _ := ctx.Value(scopeKey{}).(*scope); s != nil; s = s.outer {
		if s.t.pool == pool && s.t.open() {
			return s.t
		}
	}
	return nil
}
