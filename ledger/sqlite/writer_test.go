package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

func testStore(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"), o)
	must.OK(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// hold takes the file's write lock as another process would; release releases it.
func hold(t *testing.T, s *Store) (release func()) {
	t.Helper()
	h, err := open(t.Context(), s.file.uri())
	must.OK(t, err)
	must.Do(t)(h.exec(t.Context(), "BEGIN IMMEDIATE", nil))
	once := sync.OnceFunc(func() {
		if _, err := h.exec(context.Background(), "COMMIT", nil); err != nil {
			t.Error(err)
		}
		h.close()
	})
	t.Cleanup(once)
	return once
}

// awaitTurns waits until n turns wait for the lock.
func awaitTurns(t *testing.T, s *Store, n int) {
	t.Helper()
	must.Eventually(t, fmt.Sprint(n, " turns are in the queue"), func() bool {
		s.w.mu.Lock()
		defer s.w.mu.Unlock()
		return len(s.w.queue)+len(s.w.pending) >= n
	})
}

// counting is a connection that counts the statements that begin with a given word.
type counting struct {
	driver.Conn
	word string
	n    atomic.Int32
}

type countingStmt struct {
	driver.Stmt
	n *atomic.Int32
}

func (c *counting) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	if err != nil || !strings.HasPrefix(query, c.word) {
		return s, err
	}
	return countingStmt{s, &c.n}, nil
}

func (s countingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.n.Add(1)
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// countCommits counts commits from now on. The writer must be idle and not have committed yet.
func countCommits(s *Store) *atomic.Int32 {
	c := &counting{Conn: s.w.h.conn, word: "COMMIT"}
	s.w.h.conn = c
	return &c.n
}

func put(s *Store, ctx context.Context, key string, fail error) error {
	return s.Update(ctx, nil, func(tx ledger.Tx) error {
		if _, _, err := tx.Kind("k"); err != nil {
			return err
		}
		r := ledger.Record{Identity: ledger.Identity{Kind: "k", Key: key},
			Stored: ledger.Stored{Slot: scheduler.Slot(key)}, Epoch: 1,
			Work: &ledger.Work{State: ledger.StateReady, Epoch: 1}}
		if _, err := tx.Insert([]ledger.Record{r}); err != nil {
			return err
		}
		return fail
	})
}

func has(t *testing.T, s *Store, key string) bool {
	t.Helper()
	n, err := s.Count(t.Context(), ledger.Filter{Key: key})
	must.OK(t, err)
	return n == 1
}

// Queued operations are committed together, and one that fails does not affect the others.
func TestGroupCommit(t *testing.T) {
	s := testStore(t, Options{})
	s.w.slice = time.Hour // so that a slow machine does not end the tick
	commits := countCommits(s)
	release := hold(t, s)
	broken := errors.New("broken")
	var wg sync.WaitGroup
	errs := make([]error, 9)
	for i := range errs {
		wg.Go(func() {
			var fail error
			if i%3 == 1 {
				fail = broken
			}
			errs[i] = put(s, t.Context(), fmt.Sprint(i), fail)
		})
	}
	awaitTurns(t, s, len(errs))
	release()
	wg.Wait()
	for i, err := range errs {
		want := i%3 != 1
		if want != (err == nil) || !want && err != broken {
			t.Errorf("operation %d: %v", i, err)
		}
		if has(t, s, fmt.Sprint(i)) != want {
			t.Errorf("operation %d: item is there: %v", i, !want)
		}
	}
	if n := commits.Load(); n != 1 {
		t.Errorf("%d commits for operations that waited together", n)
	}
}

// A tick ends in time; turns that still wait are in the next one.
func TestTickEnds(t *testing.T) {
	s := testStore(t, Options{})
	s.w.slice = 1
	commits := countCommits(s)
	release := hold(t, s)
	errs := make(chan error)
	for i := range 5 {
		go func() { errs <- put(s, t.Context(), fmt.Sprint(i), nil) }()
	}
	awaitTurns(t, s, 5)
	release()
	for range 5 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := commits.Load(); n != 5 {
		t.Errorf("%d commits, want one for each of 5", n)
	}
}

// When a commit fails, or SQLite rolls back the transaction because of one operation, all operations of the transaction
// fail. The next transaction works.
func TestLostTransaction(t *testing.T) {
	for name, tt := range map[string]struct {
		refused string
		fail    error // of the last operation
	}{"commit": {"COMMIT", nil}, "rollback to savepoint": {"ROLLBACK TO turn", errors.New("broken")}} {
		t.Run(name, func(t *testing.T) {
			s := testStore(t, Options{})
			s.w.slice = time.Hour
			s.w.h.conn = &refusing{Conn: s.w.h.conn, query: tt.refused, left: 1}
			release := hold(t, s)
			var wg sync.WaitGroup
			errs := make([]error, 3)
			for i := range errs {
				wg.Go(func() {
					var fail error
					if i == len(errs)-1 {
						fail = tt.fail
					}
					errs[i] = put(s, t.Context(), fmt.Sprint(i), fail)
				})
				awaitTurns(t, s, i+1)
			}
			release()
			wg.Wait()
			for i, err := range errs {
				if !errors.Is(err, ledger.ErrUnavailable) && (tt.fail == nil || err != tt.fail || i < len(errs)-1) ||
					has(t, s, fmt.Sprint(i)) {
					t.Errorf("operation %d: %v", i, err)
				}
			}
			if err := put(s, t.Context(), "later", nil); err != nil || !has(t, s, "later") {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// refusing is a connection on which a statement fails at first.
type refusing struct {
	driver.Conn
	query string
	left  int
}

type refusingStmt struct {
	driver.Stmt
	c *refusing
}

func (c *refusing) Prepare(query string) (driver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	if query == c.query {
		s = refusingStmt{s, c}
	}
	return s, err
}

func (s refusingStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	if s.c.left > 0 {
		s.c.left--
		return nil, errors.New("the cable fell out")
	}
	return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args)
}

// Claims run after the operations of their tick that free work.
func TestOrderInTick(t *testing.T) {
	s := testStore(t, Options{})
	s.w.slice = time.Hour
	if err := put(s, t.Context(), "first", nil); err != nil { // so that the read before the claim finds an item
		t.Fatal(err)
	}
	release := hold(t, s)
	var claimed ledger.Claimed
	var wg sync.WaitGroup
	var claimErr, putErr error
	wg.Go(func() {
		claimed, claimErr = s.Claim(t.Context(), ledger.Grant{Claim: ledger.Claim{Kind: "k", Agent: "a", Limit: 10,
			TTL: time.Minute}, LockID: [16]byte{1}})
	})
	awaitTurns(t, s, 1)
	wg.Go(func() { putErr = put(s, t.Context(), "second", nil) })
	awaitTurns(t, s, 2)
	release()
	wg.Wait()
	if claimErr != nil || putErr != nil || len(claimed.Records) != 2 {
		t.Errorf("claimed %d items, want 2; %v, %v", len(claimed.Records), claimErr, putErr)
	}
}

// An operation whose ctx ends while it waits is not executed; an operation that has begun is completed.
func TestCancel(t *testing.T) {
	s := testStore(t, Options{})
	release := hold(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error)
	go func() { result <- put(s, ctx, "waits", nil) }()
	awaitTurns(t, s, 1)
	must.Eventually(t, "the store counts one wait", func() bool { return s.Busy() == 1 })
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("while it waits: %v", err)
	}
	release()
	if err := put(s, ctx, "too late", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("before it asks: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	err := s.Update(ctx, nil, func(tx ledger.Tx) error {
		if _, _, err := tx.Kind("k"); err != nil {
			return err
		}
		cancel()
		_, err := tx.Insert([]ledger.Record{{Identity: ledger.Identity{Kind: "k", Key: "runs"}, Epoch: 1,
			Work: &ledger.Work{State: ledger.StateReady, Epoch: 1}}})
		return err
	})
	if err != nil {
		t.Errorf("while it runs: %v", err)
	}
	for key, want := range map[string]bool{"waits": false, "too late": false, "runs": true} {
		if has(t, s, key) != want {
			t.Errorf("item %q is there: %v", key, !want)
		}
	}
}

// The changes of a rule that panics are rolled back, and the store continues.
func TestPanic(t *testing.T) {
	s := testStore(t, Options{})
	for name, fn := range map[string]func(tx ledger.Tx) error{
		"before its turn": func(ledger.Tx) error { panic("x") },
		"in its turn": func(tx ledger.Tx) error {
			if _, _, err := tx.Kind("gone"); err != nil {
				return err
			}
			panic("x")
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			s.Update(t.Context(), nil, fn)
		}()
	}
	must.OK(t, put(s, t.Context(), "after", nil))
	kinds, err := s.Kinds(t.Context())
	if err != nil || len(kinds) != 1 {
		t.Errorf("%v, %v", kinds, err)
	}
}

// A process that waited long for the lock leaves expired leases to their holders for a while.
func TestGrace(t *testing.T) {
	now := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	s := testStore(t, Options{Now: func() time.Time { return now }})
	s.w.longWait, s.w.grace = 20*time.Millisecond, time.Hour
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}))
	if ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1}); err != nil || len(ls) != 1 {
		t.Fatal(ls, err)
	}
	now = now.Add(time.Hour)
	release := hold(t, s)
	result := make(chan error)
	go func() { result <- put(s, t.Context(), "waits", nil) }()
	awaitTurns(t, s, 1)
	time.Sleep(2 * s.w.longWait) // the test is about waiting
	release()
	must.OK(t, <-result)
	if n, err := l.Expire(t.Context(), 10); n != 0 || err != nil {
		t.Errorf("%d leases expired right after the lock was held, %v", n, err)
	}
	s.w.spare.Store(0)
	if n, err := l.Expire(t.Context(), 10); n != 1 || err != nil {
		t.Errorf("%d leases expired later, %v", n, err)
	}
}

// An operation that waits too long is told whether another process has the lock, or this one's own writes take long.
func TestWaitsTooLong(t *testing.T) {
	s := testStore(t, Options{})
	s.w.wait = 500 * time.Millisecond // the writer has tried to get the lock by then
	release := hold(t, s)
	if err := put(s, t.Context(), "other", nil); !strings.Contains(fmt.Sprint(err), "by another process") {
		t.Errorf("behind another's: %v", err)
	}
	release()
	begun, end := make(chan struct{}), make(chan struct{})
	go s.Update(t.Context(), nil, func(tx ledger.Tx) error {
		_, _, err := tx.Kind("k")
		close(begun)
		<-end
		return err
	})
	<-begun
	if err := put(s, t.Context(), "own", nil); !errors.Is(err, ledger.ErrUnavailable) ||
		!strings.Contains(err.Error(), "own writes") {
		t.Errorf("behind an own write: %v", err)
	}
	close(end)
}

// A call that finds nothing does not take the write lock.
func TestIdleTakesNoLock(t *testing.T) {
	s := testStore(t, Options{})
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x", Due: time.Now().Add(time.Hour)}))
	hold(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for _, resume := range []bool{false, true} {
		if ls, err := l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: 5, Resume: resume}); err != nil ||
			len(ls) != 0 {
			t.Errorf("claim: %v, %v", ls, err)
		}
	}
	if n, err := l.Expire(ctx, 5); err != nil || n != 0 {
		t.Errorf("expire: %v, %v", n, err)
	}
	if next, err := l.Promote(ctx, 5); err != nil || next.IsZero() {
		t.Errorf("promote: %v, %v", next, err)
	}
	if n, err := l.Prune(ctx, 5); err != nil || n != 0 {
		t.Errorf("prune: %v, %v", n, err)
	}
}

func TestClosed(t *testing.T) {
	s := testStore(t, Options{})
	watched := make(chan struct{})
	go func() {
		s.Watch(context.Background(), func(string) {})
		close(watched)
	}()
	must.OK(t, s.Close())
	<-watched
	must.OK(t, s.Close())
	if err := put(s, t.Context(), "x", nil); !errors.Is(err, errClosed) {
		t.Error(err)
	}
	if _, err := s.Count(t.Context(), ledger.Filter{}); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

// A file that may not grow stands for a full disk: an operation that does not fit fails, and works when there is room
// again.
func TestPagesFull(t *testing.T) {
	s := testStore(t, Options{})
	l := ledger.New(s, ledger.Options{})
	limit := func(pages int) {
		must.OK(t, s.w.exec(fmt.Sprintf("PRAGMA max_page_count = %d", pages)))
	}
	limit(100)
	n := 0
	var err error
	for ; err == nil; n++ {
		_, err = l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: fmt.Sprint(n), Payload: make([]byte, 10<<10)})
	}
	if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "the disk is full") {
		t.Fatalf("item %d: %v", n, err)
	}
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "small"}); err != nil {
		t.Errorf("what fits: %v", err)
	}
	limit(1 << 20)
	if _, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "large", Payload: make([]byte, 1<<20)}); err != nil {
		t.Errorf("with room: %v", err)
	}
	if there, err := l.Count(t.Context(), ledger.Filter{}); there != int64(n)+1 || err != nil {
		t.Errorf("%d items of %d, %v", there, n+1, err)
	}
	for v, err := range l.Verify(t.Context()) {
		t.Error(v, err)
	}
}

func TestSettings(t *testing.T) {
	for unsafe, synchronous := range map[bool]string{false: "2", true: "1"} {
		s := testStore(t, Options{Unsafe: unsafe})
		for name, want := range map[string]string{"journal_mode": "wal", "synchronous": synchronous, "foreign_keys": "1",
			"busy_timeout": "0"} {
			if got, err := pragma(t.Context(), s.w.h, name); got != want || err != nil {
				t.Errorf("unsafe %v: %s is %s, want %s, %v", unsafe, name, got, want, err)
			}
		}
		err := s.read(t.Context(), false, func(r session) error {
			_, err := r.exec("DELETE FROM ledger_items")
			return err
		})
		if err == nil {
			t.Error("a connection that reads can write")
		}
	}
}

// A read that takes long ends with its ctx, and its connection can be used again.
func TestCancelRead(t *testing.T) {
	s := testStore(t, Options{})
	endless := `WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT `
	for name, query := range map[string]string{"in one row": endless + `count(*) FROM n`, "between rows": endless +
		`i FROM n`} {
		for _, snapshot := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			err := s.read(ctx, snapshot, func(r session) error {
				// SQLite forgets an interrupt that comes before the first step of a statement.
				time.AfterFunc(100*time.Millisecond, cancel)
				return r.query(query, func(row) error { return nil })
			})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	for range 2 * maxReaders {
		if _, err := s.Count(t.Context(), ledger.Filter{}); err != nil {
			t.Error(err)
		}
	}
}
