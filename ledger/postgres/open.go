package postgres

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// Options of Open and Connect; the zero value is for production.
type Options struct {
	// Schema that holds the tables, all named ledger_…; "" means "public". At most 55 bytes, and no apostrophe.
	Schema string
	// Migrate brings an existing ledger up to date. Without it a ledger is made where there is
	// none, and one with an outstanding migration is refused with ledger.ErrSchema; see the function Migrate.
	Migrate bool
	// MustExist refuses to make a ledger: ledger.ErrNoLedger where there is none.
	MustExist bool
	// ReadOnly is for Connect: its sessions cannot write, except behind a pooler that shares them between clients.
	ReadOnly bool
	// URL is for Connect: each new connection takes its user and password from the URL that this function returns, so
	// that a password can be changed while the program runs. If it is nil or returns an error, they stay as they were.
	URL func() (string, error)
	// Now, for tests only, replaces the database's clock.
	Now func() time.Time
}

// maxSchema leaves room for the prefix of the channel's name.
const maxSchema = maxIdentifier - len(channelPrefix)

const maxIdentifier = 63 // bytes of a name in Postgres

// Store is a ledger.Store on Postgres. It is safe for concurrent use, by many processes at once.
type Store struct {
	shared
	pool       *pgxpool.Pool
	hot        *pgxpool.Pool // of the hot path; may be pool itself
	owned      bool          // Connect made the pools, so Close closes them
	name       string        // for people
	schema     string        // quoted
	schemaName string        // not quoted
	site       site
	clock      func() time.Time // of a test; nil is the database's clock
	opened     ledger.Schema    // when it was opened

	channel     string
	announcer   announcer
	positions   positions
	claims      coalescer
	rendered    sync.Map        // templates → SQL, see render
	kept        atomic.Int64    // entries of rendered, about
	described   *sync.Map       // see pipe.described
	prepared    map[string]bool // SQL of the hot path; nil prepares nothing
	newness     newness
	prunes      prunes
	laned       lanedKinds
	leaseSweeps sqlstore.Pace // of leases whose items have all ended
	lanes       laneKeeper
	repeated    atomic.Int64 // see Busy

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup  // calls
	ending  context.Context // ends with Close
	end     context.CancelFunc
}

var _ ledger.Store = (*Store)(nil)

// Open opens the ledger in the caller's pool. It never closes the pool. Errors match ledger.ErrUnavailable, ErrDenied,
// ErrSchema or ErrNoLedger. Where commits wait for a synchronous standby, only a pool of Connect notices that such a
// wait was cancelled, by statement_timeout for example. Postgres reports the commit as done.
func Open(ctx context.Context, pool *pgxpool.Pool, o Options) (*Store, error) {
	s, o, err := newStore(pool, o)
	if err != nil {
		return nil, err
	}
	err = s.prepare(ctx, o)
	if err == nil {
		err = pool.QueryRow(ctx, s.render(readSite), pgx.QueryExecModeCacheDescribe).Scan(&s.site.database,
			&s.site.ledger, nil)
	}
	if err != nil {
		s.end()
		return nil, explain(ctx, s.name, err)
	}
	return s, nil
}

// newStore makes a store that has not looked at the database yet, and completes the options.
func newStore(pool *pgxpool.Pool, o Options) (*Store, Options, error) {
	o.Schema = cmp.Or(o.Schema, "public")
	if len(o.Schema) > maxSchema {
		return nil, o, &ledger.InvalidError{Field: "schema", Reason: fmt.Sprintf("%d bytes, at most %d", len(o.Schema),
			maxSchema)}
	}
	if strings.Contains(o.Schema, "'") {
		return nil, o, &ledger.InvalidError{Field: "schema", Reason: "has an apostrophe"}
	}
	config := pool.Config().ConnConfig
	if config.DescriptionCacheCapacity < 1 {
		return nil, o, &ledger.InvalidError{Field: "pool", Reason: "description_cache_capacity is 0, it must be 1 at least"}
	}
	s := &Store{
		pool: pool, hot: pool, name: ledgerName(config), schema: quote(o.Schema), schemaName: o.Schema,
		channel: channelPrefix + o.Schema, clock: o.Now, described: &sync.Map{},
		leaseSweeps: sqlstore.Pace{Every: sqlstore.SweepEvery},
	}
	if s.clock != nil {
		s.described = nil // its SQL is another each time
	} else {
		s.prepared = s.hotStatements()
	}
	s.shared = sqlstore.New(sharedDB{s})
	s.ending, s.end = context.WithCancel(context.Background())
	return s, o, nil
}

// enter begins a call that Close waits for.
func (s *Store) enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	s.running.Add(1)
	return s.running.Done, nil
}

// Busy is how often, since the ledger was opened here, a transaction was run once more because the server
// had undone it (deadlock, serialization) or the connection was lost before it was committed.
func (s *Store) Busy() int64 { return s.repeated.Load() }

// Close implements ledger.Store: it ends Watch, waits for running calls, and closes the pool if
// Connect made it.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.end()
	s.running.Wait()
	if s.owned {
		s.pool.Close()
		s.hot.Close() // may be the same
	}
	return nil
}
