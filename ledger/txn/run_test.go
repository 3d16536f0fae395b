package txn_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

var errOops = errors.New("oops")

// note writes a row, by which a test sees what was committed.
func note(ctx context.Context, c ledger.Conn, text string) error {
	_, err := c.Exec(ctx, "INSERT INTO notes VALUES ($1)", text)
	return err
}

// notes are the rows that are committed, in order.
func notes(t testing.TB, p *place) string {
	t.Helper()
	rows, err := p.conn.Query(t.Context(), "SELECT text FROM notes ORDER BY text")
	must.OK(t, err)
	defer rows.Close()
	var all []string
	for rows.Next() {
		var s string
		must.OK(t, rows.Scan(&s))
		all = append(all, s)
	}
	must.OK(t, rows.Err())
	return strings.Join(all, " ")
}

const notesTable = "CREATE TABLE notes (text TEXT NOT NULL)"

// The end of a transaction, by how its function and the functions that it calls end.
func TestOutcome(t *testing.T) {
	type fn = func(context.Context, ledger.Conn) error
	tests := map[string]struct {
		fn      func(run runner, cancel func()) fn
		notes   string
		is      error // nil: none
		exact   bool  // the error itself, not wrapped
		message string
	}{
		"returns nil": {notes: "a", fn: func(runner, func()) fn {
			return func(ctx context.Context, c ledger.Conn) error { return note(ctx, c, "a") }
		}},
		"returns an error": {is: errOops, exact: true, fn: func(runner, func()) fn {
			return func(ctx context.Context, c ledger.Conn) error {
				if err := note(ctx, c, "a"); err != nil {
					return err
				}
				return errOops
			}
		}},
		"ctx ends unnoticed": {is: context.Canceled, fn: func(_ runner, cancel func()) fn {
			return func(ctx context.Context, c ledger.Conn) error { err := note(ctx, c, "a"); cancel(); return err }
		}},
		"ctx ends before a statement": {is: context.Canceled, fn: func(_ runner, cancel func()) fn {
			return func(ctx context.Context, c ledger.Conn) error { cancel(); return note(ctx, c, "a") }
		}},
		"a joined call commits with it": {notes: "a b c", fn: func(run runner, _ func()) fn {
			return func(ctx context.Context, c ledger.Conn) error {
				err := note(ctx, c, "a")
				return errors.Join(err, run(ctx, func(ctx context.Context, c ledger.Conn) error {
					if n, err := value[int](ctx, c, "SELECT count(*) FROM notes"); n != 1 || err != nil {
						return fmt.Errorf("it sees %d notes, %v", n, err)
					}
					return errors.Join(note(ctx, c, "b"), run(ctx, func(ctx context.Context, c ledger.Conn) error {
						return note(ctx, c, "c")
					}))
				}))
			}
		}},
		"a joined call is rolled back with it": {is: errOops, exact: true, fn: func(run runner, _ func()) fn {
			return func(ctx context.Context, c ledger.Conn) error {
				if err := run(ctx, func(ctx context.Context, c ledger.Conn) error { return note(ctx, c, "b") }); err != nil {
					return err
				}
				return errOops
			}
		}},
		"the error of a joined call is swallowed": {is: txn.ErrRolledBack, message: "oops", fn: func(run runner, _ func()) fn {
			return func(ctx context.Context, c ledger.Conn) error {
				_ = run(ctx, func(ctx context.Context, c ledger.Conn) error { return errOops })
				return note(ctx, c, "a")
			}
		}},
		"the first error is the cause": {is: errOops, fn: func(run runner, _ func()) fn {
			return func(ctx context.Context, c ledger.Conn) error {
				for _, err := range []error{errOops, errors.New("later")} {
					_ = run(ctx, func(ctx context.Context, c ledger.Conn) error { return err })
				}
				return note(ctx, c, "a")
			}
		}},
		"the panic of a joined call is recovered": {is: txn.ErrRolledBack, message: "panicked",
			fn: func(run runner, _ func()) fn {
				return func(ctx context.Context, c ledger.Conn) error {
					func() {
						defer func() { _ = recover() }()
						_ = run(ctx, func(context.Context, ledger.Conn) error { panic("oops") })
					}()
					return note(ctx, c, "a")
				}
			}},
		"a call after a failed one is not made": {is: errOops, fn: func(run runner, _ func()) fn {
			return func(ctx context.Context, c ledger.Conn) error {
				_ = run(ctx, func(ctx context.Context, c ledger.Conn) error { return errOops })
				return run(ctx, func(ctx context.Context, c ledger.Conn) error { panic("it was made") })
			}
		}},
		"a lock after a failed call is refused": {is: errOops, fn: func(run runner, _ func()) fn {
			return func(ctx context.Context, c ledger.Conn) error {
				_ = run(ctx, func(ctx context.Context, c ledger.Conn) error { return errOops })
				return txn.Lock(ctx, "x")
			}
		}},
		"the error of Lock is swallowed": {is: txn.ErrRolledBack, message: "at most 1000", fn: func(runner, func()) fn {
			return func(ctx context.Context, c ledger.Conn) error {
				_ = txn.Lock(ctx, numbered(txn.MaxKeys+1)...)
				return note(ctx, c, "a")
			}
		}},
	}
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				p.exec(t, "DELETE FROM notes")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				run := p.with(txn.Config{})
				err := run(ctx, tt.fn(p.with(txn.Config{}), cancel)) // runners on one pool join
				if !errors.Is(err, tt.is) || tt.exact && err != tt.is || err != nil && !strings.Contains(err.Error(), tt.message) {
					t.Errorf("%v", err)
				}
				if got := notes(t, p); got != tt.notes {
					t.Errorf("committed: %q, want %q", got, tt.notes)
				}
				if err := run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					return note(ctx, c, "z")
				}); err != nil {
					t.Errorf("afterwards: %v", err)
				}
			})
		}
	})
}

func numbered(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprint(i)
	}
	return keys
}

// A panic, or the end of the goroutine, rolls back and goes its way.
func TestPanic(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		run := p.with(txn.Config{})
		for name, end := range map[string]func(){"panic": func() { panic("oops") }, "exit": runtime.Goexit} {
			ended := make(chan any)
			go func() {
				returned := false
				defer func() {
					ended <- recover()
					if returned {
						t.Errorf("%s: Run returned", name)
					}
				}()
				_ = run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					if err := note(ctx, c, name); err != nil {
						t.Error(err)
					}
					end()
					return nil
				})
				returned = true
			}()
			if got, want := <-ended, map[string]any{"panic": "oops"}[name]; got != want {
				t.Errorf("%s: recovered %v", name, got)
			}
		}
		if got := notes(t, p); got != "" {
			t.Errorf("committed: %s", got)
		}
	})
}

// A statement fails and the function goes on. Postgres has undone everything by then, and reports it.
func TestSwallowedStatement(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
			if _, err := c.Exec(ctx, "INSERT INTO notes VALUES (NULL)"); err == nil {
				t.Error("no error")
			}
			return nil
		})
		if p.postgres() != errors.Is(err, txn.ErrRolledBack) {
			t.Errorf("%v", err)
		}
	})
}

// A transaction on another database is one of its own.
func TestOtherDatabase(t *testing.T) {
	for _, kinds := range [][2]string{{"sqlite", "sqlite"}, {"sqlite", "pgx"}, {"postgres", "sqlite"},
		{"pgx", "postgres"}} {
		t.Run(fmt.Sprint(kinds), func(t *testing.T) {
			outer, inner := newPlace(t, kinds[0]), newPlace(t, kinds[1])
			outer.exec(t, notesTable)
			inner.exec(t, notesTable)
			runOuter, runInner := outer.with(txn.Config{}), inner.with(txn.Config{})
			err := runOuter(t.Context(), func(ctx context.Context, _ ledger.Conn) error {
				err := runInner(ctx, func(ctx context.Context, c ledger.Conn) error {
					err := runOuter(ctx, func(ctx context.Context, c ledger.Conn) error { return note(ctx, c, "joined") })
					return errors.Join(err, note(ctx, c, "inner"))
				})
				if err != nil {
					t.Error(err)
				}
				if got := notes(t, inner); got != "inner" {
					t.Errorf("inner: %q", got)
				}
				return errOops
			})
			if err != errOops {
				t.Error(err)
			}
			if got := notes(t, outer); got != "" {
				t.Errorf("outer: %q", got)
			}
		})
	}
}

// A function whose transaction the database gives up is called again, however often that is, up to the limit.
func TestTries(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		for _, fails := range []int{0, 1, 3, 4} {
			var seen []string
			calls := 0
			run := p.with(txn.Config{MaxTries: 4, OnTry: func(x txn.Try) {
				seen = append(seen, fmt.Sprint(x.N, x.Err != nil, x.Repeat))
				if x.Took <= 0 {
					t.Errorf("%+v", x)
				}
			}})
			err := run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
				calls++
				if err := note(ctx, c, fmt.Sprint(fails, ".", calls)); err != nil || calls > fails {
					return err
				}
				return run(ctx, func(ctx context.Context, c ledger.Conn) error { return giveUp(ctx, p, c) })
			})
			want := []string{"1 true true", "2 true true", "3 true true"}[:min(fails, 3)]
			var tries *txn.TriesError
			if fails == 4 {
				want = append(want, "4 true false")
				if !errors.As(err, &tries) || tries.Tries != 4 || !strings.Contains(err.Error(), "gave up after 4 tries") ||
					tries.Err == nil {
					t.Errorf("%v", err)
				}
			} else {
				want = append(want, fmt.Sprint(fails+1, " false false"))
				if err != nil {
					t.Errorf("%v", err)
				}
			}
			if fmt.Sprint(seen) != fmt.Sprint(want) {
				t.Errorf("%d failures: %q, want %q", fails, seen, want)
			}
		}
		if got := notes(t, p); got != "0.1 1.2 3.4" {
			t.Errorf("committed: %q", got)
		}
	})
}

// giveUp returns an error with which the database gives up on a transaction.
func giveUp(ctx context.Context, p *place, c ledger.Conn) error {
	if p.postgres() {
		return raise(ctx, c, "40001")
	}
	other, err := open(ctx, "sqlite", strings.Replace(p.url, "busy_timeout(60000)", "busy_timeout(0)", 1))
	if err != nil {
		return err
	}
	defer other.close()
	return note(ctx, other.conn, "from elsewhere") // while c has the write lock
}

// raise lets Postgres return an error.
func raise(ctx context.Context, c ledger.Conn, code string) error {
	_, err := c.Exec(ctx, "DO $$BEGIN RAISE EXCEPTION 'as told' USING ERRCODE = '"+code+"'; END$$")
	return err
}

// A transient error is repeated though a layer above it returned another one, or none.
func TestTransientIsSwallowed(t *testing.T) {
	for name, answer := range map[string]error{"none": nil, "another": errOops} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, p *place) {
				p.exec(t, notesTable)
				calls := 0
				run := p.with(txn.Config{})
				err := run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					if calls++; calls > 1 {
						return note(ctx, c, "once")
					}
					_ = run(ctx, func(ctx context.Context, c ledger.Conn) error { return giveUp(ctx, p, c) })
					return answer
				})
				if err != nil || calls != 2 || notes(t, p) != "once" {
					t.Errorf("%d calls, %v, %q", calls, err, notes(t, p))
				}
			})
		})
	}
}

// The errors of Postgres after which a transaction is repeated.
func TestClasses(t *testing.T) {
	for _, kind := range []string{"postgres", "pgx"} {
		p := newPlace(t, kind)
		for code, want := range map[string]int{
			"40001": 2, "40P01": 2, "55P03": 2,
			"08006": 1, "57P01": 1, // the session is still there
			"23505": 1, "25P02": 1, "42601": 1, "57014": 1, "P0001": 1, "53200": 1,
		} {
			calls := 0
			err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
				if calls++; calls > 1 {
					return nil
				}
				return raise(ctx, c, code)
			})
			if calls != want || (err == nil) != (want == 2) {
				t.Errorf("%s: %d calls, %v", code, calls, err)
			}
		}
	}
}

// Errors that are not of this database are not repeated.
func TestNotRepeated(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		other := newPlace(t, p.kind)
		other.exec(t, notesTable)
		for name, fn := range map[string]func(context.Context, ledger.Conn) error{
			"a deadline of the function's own": func(ctx context.Context, c ledger.Conn) error {
				ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
				defer cancel()
				<-ctx.Done()
				return note(ctx, c, "late")
			},
			"a connection of the function's own": func(ctx context.Context, _ ledger.Conn) error {
				return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			},
			"another database that has given up": func(ctx context.Context, _ ledger.Conn) error {
				return other.with(txn.Config{MaxTries: 2})(ctx, func(ctx context.Context, c ledger.Conn) error {
					return giveUp(ctx, other, c)
				})
			},
			"another database that is in doubt": func(ctx context.Context, c ledger.Conn) error {
				return errors.Join(txn.ErrUncertain, giveUp(ctx, p, c))
			},
		} {
			tries := 0
			err := p.with(txn.Config{OnTry: func(txn.Try) { tries++ }})(t.Context(), fn)
			if tries != 1 || err == nil {
				t.Errorf("%s: %d tries, %v", name, tries, err)
			}
		}
	})
}

// A deadline of the function's own cuts a statement off, and the function swallows that: the error names it.
func TestOwnDeadlineIsSwallowed(t *testing.T) {
	err := newPlace(t, "pgx").with(txn.Config{MaxTries: 2})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_, _ = c.Exec(ctx, "SELECT pg_sleep(60)")
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "a ctx of the function's own ended") {
		t.Error(err)
	}
}

// The session is ended within the transaction: nothing was committed, and it is repeated. The answer of the function
// does not matter.
func TestConnectionIsLost(t *testing.T) {
	for _, kind := range []string{"postgres", "pgx"} {
		p := newPlace(t, kind)
		p.exec(t, notesTable)
		for name, answer := range map[string]func(error) error{
			"returned":  func(err error) error { return err },
			"swallowed": func(err error) error { return nil },
			"replaced":  func(err error) error { return errOops },
		} {
			t.Run(kind+" "+name, func(t *testing.T) {
				calls := 0
				err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					if calls++; calls > 1 {
						return note(ctx, c, name)
					}
					pid, err := value[int](ctx, c, "SELECT pg_backend_pid()")
					if err != nil {
						return err
					}
					p.exec(t, fmt.Sprintf("SELECT pg_terminate_backend(%d)", pid))
					return answer(note(ctx, c, name))
				})
				if n := mustValue[int](t, p, "SELECT count(*) FROM notes WHERE text = $1", name); err != nil || calls != 2 ||
					n != 1 {
					t.Errorf("%d calls, %v, %d rows", calls, err, n)
				}
			})
		}
	}
}

// MaxTime ends the wait for a lock of another program.
func TestMaxTime(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, notesTable)
		holder := reopen(t, p.kind, p.url)
		err := holder.with(txn.Config{})(t.Context(), func(ctx context.Context, _ ledger.Conn) error {
			if err := txn.Lock(ctx, "x"); err != nil {
				return err
			}
			soon := p.with(txn.Config{MaxTime: 50 * time.Millisecond})
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() {
					err := soon(t.Context(), func(ctx context.Context, c ledger.Conn) error {
						return errors.Join(txn.Lock(ctx, "x"), errors.New("it got the lock"))
					})
					if !errors.As(err, new(*txn.TriesError)) || !errors.Is(err, context.DeadlineExceeded) ||
						!strings.Contains(err.Error(), "50ms are over") {
						t.Errorf("%v", err)
					}
				})
			}
			all.Wait()
			return nil
		})
		must.OK(t, err)
		err = p.with(txn.Config{})(t.Context(), func(ctx context.Context, c ledger.Conn) error { return txn.Lock(ctx, "x") })
		if err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// A function is not called in a transaction of a weaker level than it asks for.
func TestIsolation(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		levels := []txn.Isolation{txn.ReadCommitted, txn.RepeatableRead, txn.Serializable}
		for _, outer := range levels {
			for _, inner := range levels {
				err := p.with(txn.Config{Isolation: outer})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					if p.postgres() {
						if got, err := value[string](ctx, c, "SHOW transaction_isolation"); got != outer.String() || err != nil {
							t.Errorf("%q, want %v; %v", got, outer, err)
						}
					}
					return p.with(txn.Config{Isolation: inner})(ctx, func(context.Context, ledger.Conn) error { return nil })
				})
				if (err == nil) != (inner <= outer) {
					t.Errorf("%v in %v: %v", inner, outer, err)
				}
			}
			err := p.with(txn.Config{Isolation: outer})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
				return txn.Lock(ctx, "x")
			})
			if (err == nil) != (outer != txn.RepeatableRead) {
				t.Errorf("Lock in %v: %v", outer, err)
			}
		}
	})
}
