// Package ledgertest is for tests of programs that use a ledger. It makes a ledger with a clock that the test moves,
// works all due items at once, and checks which items a transaction has added.
//
//	l := ledgertest.File(t)                                   // or Memory, without transactions of your own
//	signup(ctx, l.Ledger, l.DB, "ada@example.com")            // the code under test
//	ledgertest.RunDue(t, l.Ledger, handlers)                  // here and now, in the test's goroutine
//	l.Clock.Advance(time.Hour)                                // what waits for a retry is due
//
// On Postgres, give a clock to the store: postgres.Options{Now: clock.Now}.
package ledgertest

import (
	"bytes"
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/typed"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Clock is a clock that stands still until it is moved. It is safe for concurrent use.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock makes a clock that shows a time.
func NewClock(now time.Time) *Clock { return &Clock{now: now.UTC()} }

// Now returns the time that the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// Ledger is a ledger of one test. It is closed when the test ends.
type Ledger struct {
	*ledger.Ledger
	Clock *Clock  // of the ledger; it begins at the present time
	DB    *sql.DB // on the file of the ledger, for tables and transactions of the program; nil for Memory
	Path  string  // of the file; "" for Memory
}

// Memory makes an empty ledger in memory. Its AddTx takes only transactions of memory.Store. For a program that adds
// items in transactions of a database, use File.
func Memory(t testing.TB) *Ledger {
	t.Helper()
	c := NewClock(time.Now())
	return begin(t, &Ledger{Clock: c}, memory.New(memory.Options{Now: c.Now}))
}

// File makes an empty ledger in a temporary file. sqlite.Wrap takes the transactions of its DB.
func File(t testing.TB) *Ledger {
	t.Helper()
	l := &Ledger{Clock: NewClock(time.Now()), Path: filepath.Join(t.TempDir(), "ledger.db")}
	store, err := sqlite.Open(t.Context(), l.Path, sqlite.Options{Now: l.Clock.Now, Unsafe: true})
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	begin(t, l, store)
	escaped := strings.NewReplacer("%", "%25", "#", "%23", "?", "%3f").Replace(l.Path) // a test may be called case#01
	l.DB, err = sql.Open("sqlite", "file:"+escaped+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	t.Cleanup(func() { l.DB.Close() })
	return l
}

// begin opens the ledger over a store.
func begin(t testing.TB, l *Ledger, store ledger.Store) *Ledger {
	// The wait before a retry is not random, but the longest that the policy allows.
	l.Ledger = ledger.New(store, ledger.Options{Jitter: func() float64 { return 1 }})
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("ledgertest: %v", err)
		}
	})
	return l
}

// most is the most attempts of one item in one RunDue. After so many, the item would probably be due for ever.
const most = 100

// RunDue works all items that are due now, also those that the handlers add, one after the other, the kinds by name. It
// returns how each attempt ended. Items that are due later, such as retries, stay. It logs how many due items have no
// handler. Timeouts of kinds are not applied.
func RunDue(t testing.TB, l *ledger.Ledger, handlers map[string]worker.Handler) (ended []ledger.Ending) {
	t.Helper()
	attempts := map[int64]int{}
	for again := true; again; {
		again = false
		if _, err := l.Promote(t.Context(), bounds.MaxBatch); err != nil {
			t.Fatalf("ledgertest: %v", err)
		}
		for _, kind := range slices.Sorted(maps.Keys(handlers)) {
			leases, err := l.Claim(t.Context(), ledger.Claim{Kind: kind, Agent: "ledgertest", Limit: 1})
			if err != nil {
				t.Fatalf("ledgertest: %v", err)
			}
			for _, lease := range leases {
				if attempts[lease.ID]++; attempts[lease.ID] > most {
					t.Fatalf("ledgertest: item %d (kind %s, key %q) is due again after %d attempts: does its handler ask for it "+
						"without a wait?", lease.ID, lease.Kind, lease.Key, most)
				}
				ended = append(ended, run(t, l, handlers[kind], lease))
				again = true
			}
		}
	}
	others := map[string]int{}
	for it, err := range l.List(t.Context(), ledger.Filter{States: []ledger.State{ledger.StateReady}}, 0) {
		if err != nil {
			t.Fatalf("ledgertest: %v", err)
		}
		if handlers[it.Kind] == nil {
			others[it.Kind]++
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(others)) {
		t.Logf("ledgertest: %d items of kind %s are due and have no handler here", others[kind], kind)
	}
	return ended
}

// run works one item.
func run(t testing.TB, l *ledger.Ledger, h worker.Handler, lease *ledger.Lease) ledger.Ending {
	t.Helper()
	if err := l.Start(t.Context(), time.Minute, lease)[0]; err != nil {
		t.Fatalf("ledgertest: item %d: %v", lease.ID, err)
	}
	settled := make(chan ledger.Result, 1)
	h.Handle(t.Context(), lease, func(r ledger.Result) { settled <- r })
	e := []ledger.Ending{{Lease: lease, Result: <-settled}}
	if e[0].Result.Outcome == worker.OutcomeRecorded {
		recorded := lease.Ended()
		switch held := l.Held(t.Context(), lease)[0] == nil; {
		case held && recorded != nil:
			t.Fatalf("ledgertest: item %d (kind %s, key %q): the handler reported that it had recorded the end, but its "+
				"transaction has not committed", lease.ID, lease.Kind, lease.Key)
		case held:
			e[0].Result = worker.Unrecorded()
		case recorded != nil:
			return *recorded
		default:
			e[0].Recorded = worker.OutcomeRecorded
			return e[0]
		}
	}
	if err := l.Finish(t.Context(), e...)[0]; err != nil {
		t.Fatalf("ledgertest: item %d (kind %s, key %q): %v", lease.ID, lease.Kind, lease.Key, err)
	}
	return e[0]
}

// Added fails the test unless a transaction that is still open has added this value, and returns its item. With a nil
// tx it looks for a committed item of the value. In memory an item that was there before the transaction is found, too.
func Added[T any](t testing.TB, l *ledger.Ledger, tx ledger.Conn, k typed.Kind[T], want T) ledger.Item {
	t.Helper()
	n, it := look(t, l, tx, k, want)
	switch {
	case it == nil:
		t.Fatalf("ledgertest: no item of kind %s has the scope %q and the key %q", n.Kind, n.Scope, n.Key)
	case !bytes.Equal(it.Payload, n.Payload):
		t.Fatalf("ledgertest: item of kind %s, scope %q, key %q: the payload is %s, not %s", n.Kind, n.Scope, n.Key,
			it.Payload, n.Payload)
	case tx != nil && tx.Dialect() != "memory" && known(t, l, n): // in memory it would wait for tx
		t.Fatalf("ledgertest: item of kind %s, scope %q, key %q: was there before this transaction", n.Kind, n.Scope, n.Key)
	}
	return *it
}

// NotAdded fails the test if the transaction sees an item with the key of this value. With a nil tx it looks for a
// committed item.
func NotAdded[T any](t testing.TB, l *ledger.Ledger, tx ledger.Conn, k typed.Kind[T], v T) {
	t.Helper()
	if n, it := look(t, l, tx, k, v); it != nil {
		t.Fatalf("ledgertest: item %d of kind %s has the scope %q and the key %q", it.ID, n.Kind, n.Scope, n.Key)
	}
}

// look returns the new item of a value, and the item with its key in the ledger as tx sees it; nil if there is none.
func look[T any](t testing.TB, l *ledger.Ledger, tx ledger.Conn, k typed.Kind[T], v T) (n ledger.NewItem,
	it *ledger.Item) {
	t.Helper()
	var err error
	if tx == nil {
		n, it, err = find(t, l, k, v)
	} else {
		err = l.LockStore().Update(t.Context(), tx, func(in ledger.Tx) (err error) {
			if n, err = k.Item(in.Now(), v); err != nil {
				return err
			}
			found, err := in.LoadKeys([]ledger.Identity{{Kind: n.Kind, Scope: n.Scope, Key: n.Key}})
			if len(found) > 0 {
				item := found[0].Item(in.Now())
				it = &item
			}
			return err
		})
	}
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	return n, it
}

// find is look without a transaction. It waits for no other transaction.
func find[T any](t testing.TB, l *ledger.Ledger, k typed.Kind[T], v T) (n ledger.NewItem, it *ledger.Item, err error) {
	now, err := l.Now(t.Context())
	if err != nil {
		return n, nil, err
	}
	if n, err = k.Item(now, v); err != nil {
		return n, nil, err
	}
	item, err := l.Find(t.Context(), n.Kind, n.Scope, n.Key)
	if errors.Is(err, ledger.ErrNotFound) {
		return n, nil, nil
	}
	return n, &item, err
}

// known reports whether an item is committed.
func known(t testing.TB, l *ledger.Ledger, n ledger.NewItem) bool {
	t.Helper()
	is, err := l.Known(t.Context(), ledger.Identity{Kind: n.Kind, Scope: n.Scope, Key: n.Key})
	if err != nil {
		t.Fatalf("ledgertest: %v", err)
	}
	return is[0]
}
