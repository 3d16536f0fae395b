package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"modernc.org/sqlite"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/internal/sqlstore"
)

// Options of Open; the zero value is for production.
type Options struct {
	// Unsafe trades durability over power loss (not over kill -9) for speed: synchronous=NORMAL.
	Unsafe bool
	// MustExist makes Open fail with ledger.ErrNoLedger instead of making a ledger.
	MustExist bool
	// NoMigrate makes Open refuse a ledger of an older schema with ledger.ErrSchema instead of bringing it up to date.
	NoMigrate bool
	// Copy makes Open write a copy of an older ledger that has items beside it before it brings it up to date:
	// PATH.schema-15.bak. If the copy cannot be written, the ledger stays as it is.
	Copy bool
	// Migrated is called after an older ledger was migrated. copy is the path of the copy; "" if there is none.
	Migrated func(from, to int, copy string)
	// Wait is how long a call that writes waits for the file's write lock, and Open for another program that
	// makes or migrates the ledger, before it fails with ledger.ErrUnavailable; 0 means 30 s.
	Wait time.Duration
	// Now replaces the clock, for tests only.
	Now func() time.Time
}

// ofdLocking is nil if SQLite uses locks of open file descriptions in this process. Locks of POSIX are
// lost when anything in the process opens and closes the file, and then two writers can damage it
// (https://sqlite.org/howtocorrupt.html, "POSIX advisory locks canceled by a separate thread doing close()"). It can
// be chosen only before the process uses SQLite for the first time, so it is when the package is initialised.
var _, ofdLocking = sqlite.OFDLocking(true)

const defaultWait = 30 * time.Second

// Store is a ledger.Store on an SQLite file. It is safe for concurrent use.
type Store struct {
	file    *file
	id      string        // of the ledger
	opened  ledger.Schema // at the time of opening
	clock   func() time.Time
	w       *writer
	readers *readPool // for what may take long
	probes  *readPool // for short reads of the hot path: they do not wait for those

	mu      sync.RWMutex // held for reading by every call
	closed  bool
	closing chan struct{}

	shared

	pruned     sync.Map      // kind → time up to which nothing is left to prune
	laneSweeps sqlstore.Pace // when to remove lanes that hold nothing back
	cursors    sqlstore.Cursors
}

var _ ledger.Store = (*Store)(nil)

// Open opens or creates the file, for its owner only, and migrates its schema if the options allow it. All tables are
// named ledger_…, so the file may be the program's own. Open switches the file to write-ahead logging.
//
// Errors: ledger.ErrInvalid for a path that cannot hold a ledger, above all on a network file system;
// ledger.ErrNoLedger with MustExist; ledger.ErrSchema for a newer ledger, for a file that is no ledger, and with
// NoMigrate for an older one; ledger.ErrDenied; ledger.ErrUnavailable when the file stays locked or the disk is full.
// Open does not change a file that it refuses.
func Open(ctx context.Context, path string, o Options) (*Store, error) {
	o.Wait = cmp.Or(o.Wait, defaultWait)
	clock := o.Now
	if clock == nil {
		clock = time.Now
	}
	if errors.Is(ofdLocking, sqlite.ErrOFDLockingTooLate) {
		return nil, &ledger.Error{Kind: ledger.ErrInvalid, Message: "SQLite was used in this program before package ledger/sqlite " +
			"was initialised, so its locks would be lost when anything here closes the file",
			Hint: "do not use SQLite in an init function or in a package variable, or import ledger/sqlite there"}
	}
	f, err := locate(path, o.MustExist)
	if err != nil {
		return nil, err
	}
	if err := ensure(ctx, f, o); err != nil {
		return nil, explain(f.name, err)
	}
	s := &Store{file: f, closing: make(chan struct{}),
		laneSweeps: sqlstore.Pace{Every: sqlstore.SweepEvery},
		clock:      func() time.Time { return clock().UTC().Truncate(time.Microsecond) }}
	s.shared = sqlstore.New(sharedDB{s})
	if err := s.connect(ctx, o); err != nil {
		return nil, explain(f.name, err)
	}
	go s.w.run()
	return s, nil
}

// connect opens the connections.
func (s *Store) connect(ctx context.Context, o Options) error {
	synchronous := "FULL"
	if o.Unsafe {
		synchronous = "NORMAL"
	}
	// The first process that opens the file repairs it, and the others wait.
	h, err := open(ctx, s.file.uri("busy_timeout(5000)", "synchronous("+synchronous+")", "fullfsync(1)", "foreign_keys(1)",
		"cache_size(-8192)", "temp_store(MEMORY)", "wal_autocheckpoint(4000)", "journal_size_limit(67108864)"))
	if err != nil {
		return err
	}
	s.w = &writer{h: h, file: s.file, clock: s.clock, wait: o.Wait, slice: slice, longWait: longWait, grace: grace,
		watchBusy: watchBusy, watchIdle: watchIdle, signal: make(chan struct{}, 1), written: make(chan struct{}, 1),
		watchers: watchers{wake: map[int]func(string){}}, stop: make(chan struct{}), stopped: make(chan struct{})}
	s.readers, s.probes = newReadPool(s.file, maxReaders), newReadPool(s.file, maxProbes)
	if err := s.settle(ctx, synchronous); err != nil {
		return errors.Join(err, h.close())
	}
	return nil
}

// settle checks the settings of the connection and reads which ledger it is.
func (s *Store) settle(ctx context.Context, synchronous string) error {
	var st state
	err := s.w.h.with(ctx).query("SELECT v FROM ledger_meta WHERE k = 'ledger_id'", func(r row) error {
		s.id = r.text(0)
		return nil
	})
	if err == nil {
		err = st.readNumbers(s.w.h.with(ctx))
	}
	if err == nil {
		s.opened, err = st.floored(s.file)
	}
	if err != nil {
		return err
	}
	if err := s.w.exec("PRAGMA busy_timeout = 0"); err != nil { // from here on the writer itself waits
		return err
	}
	for _, p := range []struct{ name, want string }{
		{"journal_mode", "wal"}, {"synchronous", map[string]string{"FULL": "2", "NORMAL": "1"}[synchronous]},
		{"foreign_keys", "1"}, {"busy_timeout", "0"},
	} {
		if got, err := pragma(ctx, s.w.h, p.name); err != nil {
			return err
		} else if got != p.want {
			return fmt.Errorf("sqlite: %s: PRAGMA %s is %s, must be %s", s.file.name, p.name, got, p.want)
		}
	}
	return s.file.watch()
}

func open(ctx context.Context, uri string) (*handle, error) {
	c, err := sqlite.NewConnector(uri)
	if err != nil {
		return nil, err
	}
	return connect(ctx, c)
}

// pragma reads a setting.
func pragma(ctx context.Context, h *handle, name string) (value string, err error) {
	err = h.with(ctx).query("PRAGMA "+name, func(r row) error {
		value = fmt.Sprint(r[0])
		return nil
	})
	return value, err
}

// Busy counts, since Open, the transactions that waited because another process held the write lock.
func (s *Store) Busy() int64 { return s.w.waits.Load() }

// Close implements ledger.Store.
func (s *Store) Close() error {
	s.mu.Lock() // waits for running calls
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	close(s.closing)
	close(s.w.stop)
	<-s.w.stopped
	return explain(s.file.name, errors.Join(s.readers.close(), s.probes.close(), s.w.h.close()))
}

// write runs fn in a turn of the writer and returns after the commit. late: see turn.
func (s *Store) write(ctx context.Context, late bool, fn func(*turn) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	if err := s.refuseInside(ctx); err != nil {
		return err
	}
	return explain(s.file.name, s.w.do(ctx, late, fn))
}

// read runs fn on a reading connection; with snapshot, in one transaction.
func (s *Store) read(ctx context.Context, snapshot bool, fn func(session) error) error {
	return s.readBy(ctx, s.readers, snapshot, fn)
}

// probe is read for a short read of the hot path.
func (s *Store) probe(ctx context.Context, fn func(session) error) error {
	return s.readBy(ctx, s.probes, false, fn)
}

func (s *Store) readBy(ctx context.Context, p *readPool, snapshot bool, fn func(session) error) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return errClosed
	}
	return s.readInside(ctx, p, snapshot, fn)
}

// readInside is read for a caller that has checked that the store is open, such as a transaction.
func (s *Store) readInside(ctx context.Context, p *readPool, snapshot bool, fn func(session) error) error {
	if err := s.file.check(); err != nil {
		return explain(s.file.name, err)
	}
	return explain(s.file.name, p.use(ctx, snapshot, fn))
}
