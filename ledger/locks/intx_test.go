//go:build unix

package locks_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

const (
	makeEffects = `CREATE TABLE effects (name varchar(100) NOT NULL, fence bigint NOT NULL)`
	effects     = `SELECT count(*) FROM effects`
)

// effect writes a row as the work of a holder.
func effect(ctx context.Context, tx ledger.Conn, l *locks.Lock) error {
	_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO effects VALUES ('%s', %d)`, l.Name, l.Fence))
	return err
}

func TestInTx(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		p.exec(t, makeEffects)
		must.OK(t, p.inTx(ctx, "l", locks.Options{Holder: "a"}, func(ctx context.Context, tx ledger.Conn,
			l *locks.Lock) error {
			if h := p.held(t, "l"); h == nil || h.Holder != "a" || h.Fence != l.Fence {
				t.Errorf("held: %+v", h)
			}
			err := p.inTx(context.WithoutCancel(t.Context()), "l", locks.Options{}, nil)
			if held := (*locks.HeldError)(nil); !errors.As(err, &held) {
				t.Errorf("somebody else: %v", err)
			}
			return effect(ctx, tx, l)
		}))
		if p.number(t, effects) != 1 || p.held(t, "l") != nil {
			t.Fatalf("%d effects, held by %+v", p.number(t, effects), p.held(t, "l"))
		}
		err := p.run(ctx, func(ctx context.Context, _ ledger.Conn) error {
			return p.inTx(ctx, "l", locks.Options{}, nil)
		})
		if !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("inside of a transaction: %v", err)
		}
	})
}

// TestInTxRollsBackThenFrees: a failed transaction is rolled back before the lock is released. The next holder sees
// nothing of it, and nothing of it comes later.
func TestInTxRollsBackThenFrees(t *testing.T) {
	oops := errors.New("oops")
	for name, end := range map[string]func() error{
		"error": func() error { return oops },
		"panic": func() error { panic(oops) },
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, p *place) {
				ctx := t.Context()
				p.exec(t, makeEffects)
				inside, next := make(chan struct{}), make(chan error)
				go func() {
					<-inside
					next <- p.locks.Do(ctx, "l", locks.Options{Wait: patience}, func(ctx context.Context, l *locks.Lock) error {
						if n, err := number(ctx, p.conn, effects); n > 0 || err != nil {
							return fmt.Errorf("%d effects of the holder before, %v", n, err)
						}
						return nil
					})
				}()
				err := func() (err error) {
					defer func() {
						if r := recover(); r != nil {
							err = r.(error)
						}
					}()
					return p.inTx(ctx, "l", locks.Options{}, func(ctx context.Context, tx ledger.Conn, l *locks.Lock) error {
						if err := effect(ctx, tx, l); err != nil {
							return err
						}
						close(inside)
						return end()
					})
				}()
				if !errors.Is(err, oops) || errors.Is(err, locks.ErrLost) {
					t.Errorf("got %v", err)
				}
				if err := <-next; err != nil {
					t.Error(err)
				}
				if p.number(t, effects) != 0 || p.held(t, "l") != nil {
					t.Errorf("%d effects, held by %+v", p.number(t, effects), p.held(t, "l"))
				}
			})
		})
	}
}

// TestInTxLost: if the lock was lost while the function ran, the transaction does not commit, even if the function did
// not notice.
func TestInTxLost(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		p.exec(t, makeEffects)
		if p.kind == "sqlite" { // no other process can write meanwhile: only time can end the lock
			err := p.inTx(ctx, "l", locks.Options{TTL: time.Second}, func(ctx context.Context, tx ledger.Conn,
				l *locks.Lock) error {
				if err := effect(ctx, tx, l); err != nil {
					return err
				}
				<-ctx.Done()
				if context.Cause(ctx) != locks.ErrLost {
					t.Errorf("it ended because of %v", context.Cause(ctx))
				}
				return nil
			})
			if !errors.Is(err, locks.ErrLost) {
				t.Errorf("got %v", err)
			}
		} else {
			err := p.inTx(ctx, "l", locks.Options{}, func(ctx context.Context, tx ledger.Conn, l *locks.Lock) error {
				if from, err := p.locks.ForceRelease(t.Context(), "op", "l"); err != nil || from == nil {
					return fmt.Errorf("taken from %v, %v", from, err)
				}
				return effect(ctx, tx, l)
			})
			if !errors.Is(err, locks.ErrLost) {
				t.Errorf("got %v", err)
			}
		}
		if n := p.number(t, effects); n != 0 {
			t.Errorf("%d effects", n)
		}
	})
}

// TestInTxRepeats: the function is repeated under the same lock when the database aborts the transaction.
func TestInTxRepeats(t *testing.T) {
	p := newPlace(t, "pgx", "")
	p.exec(t, makeEffects)
	var fences []int64
	err := p.inTx(t.Context(), "l", locks.Options{}, func(ctx context.Context, tx ledger.Conn, l *locks.Lock) error {
		if fences = append(fences, l.Fence); len(fences) < 3 {
			return &pgconn.PgError{Code: "40001"}
		}
		return effect(ctx, tx, l)
	})
	if err != nil || len(fences) != 3 || fences[0] != fences[2] || p.number(t, effects) != 1 {
		t.Errorf("%v: fences %v, %d effects", err, fences, p.number(t, effects))
	}
}

// TestInTxElsewhere: a transaction on a database that is not the ledger's commits nothing.
func TestInTxElsewhere(t *testing.T) {
	for _, c := range []struct {
		kind  string
		other func() string
	}{
		{"sqlite", func() string { return filepath.Join(t.TempDir(), "other.db") }},
		{"pgx", func() string { return pgtest.Database(t) + "&search_path=other" }},
	} {
		t.Run(c.kind, func(t *testing.T) {
			p, other := newPlace(t, c.kind, ""), openPlace(t, c.kind, c.other())
			p.exec(t, makeEffects)
			p.locks, other.locks = other.locks, p.locks
			err := p.inTx(t.Context(), "l", locks.Options{}, effect)
			if !errors.Is(err, ledger.ErrInvalid) || p.number(t, effects) != 0 {
				t.Errorf("%d effects, %v", p.number(t, effects), err)
			}
		})
	}
}

// TestLockHoldsUntilCommit: after Check no other caller gets the lock before the commit, even if it has expired.
func TestLockHoldsUntilCommit(t *testing.T) {
	onBoth(t, func(t *testing.T, p *place) {
		ctx := t.Context()
		p.exec(t, makeEffects)
		_, l, err := p.locks.Acquire(ctx, "l", locks.Options{TTL: time.Second})
		must.OK(t, err)
		err = p.run(ctx, func(ctx context.Context, tx ledger.Conn) error {
			if err := effect(ctx, tx, l); err != nil {
				return err
			}
			if err := p.locks.Check(ctx, tx, l); err != nil {
				return err
			}
			short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if from, err := p.locks.ForceRelease(short, "op", "l"); !errors.Is(err, context.DeadlineExceeded) {
				return fmt.Errorf("somebody else took it from %v, %v", from, err)
			}
			must.Eventually(t, "its time is over", func() bool { return p.held(t, "l") == nil })
			short, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			_, other, err := p.locks.Acquire(short, "l", locks.Options{Wait: patience})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("somebody else: %+v, %v", other, err)
			}
			return nil
		})
		must.OK(t, err)
		_, next, err := p.locks.Acquire(ctx, "l", locks.Options{Wait: patience})
		if err != nil || next.Fence <= l.Fence || p.number(t, effects) != 1 {
			t.Fatalf("the next holder: %+v, %v", next, err)
		}
		for _, l := range []*locks.Lock{l, next} {
			if err := p.locks.Release(ctx, l); err != nil {
				t.Error(err)
			}
		}
	})
}

// committer writes in a transaction under a lock, and tries to commit when it is told to.
func committer(ctx context.Context, p *place, _ []string) error {
	err := p.inTx(ctx, "l", locks.Options{TTL: 5 * time.Second}, func(ctx context.Context, tx ledger.Conn,
		l *locks.Lock) error {
		if err := effect(ctx, tx, l); err != nil {
			return err
		}
		childtest.Ask("written")
		return nil
	})
	if !errors.Is(err, locks.ErrLost) {
		return fmt.Errorf("a frozen holder: %v", err)
	}
	childtest.Ask("lost")
	return nil
}

// TestFrozenHolderCannotCommit: a holder that was frozen for longer than its TTL cannot commit, whether another
// process got the lock meanwhile or not. (On SQLite no other process gets it, because the transaction is open.)
func TestFrozenHolderCannotCommit(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprint("taken ", taken), func(t *testing.T) {
			onBoth(t, func(t *testing.T, p *place) {
				p.exec(t, makeEffects)
				c := p.spawn(t, "committer")
				c.Expect(t, "written")
				before := p.held(t, "l")
				must.OK(t, c.Process.Signal(syscall.SIGSTOP))
				must.Eventually(t, "its time is over", func() bool { return p.held(t, "l") == nil })
				var l *locks.Lock
				if taken && p.kind != "sqlite" {
					var err error
					if _, l, err = p.locks.Acquire(t.Context(), "l", locks.Options{}); err != nil || before == nil ||
						l.Fence <= before.Fence {
						t.Fatalf("the next holder after %+v: %+v, %v", before, l, err)
					}
				}
				c.Tell(t, "commit")
				must.OK(t, c.Process.Signal(syscall.SIGCONT))
				c.Expect(t, "lost")
				if n := p.number(t, effects); n != 0 {
					t.Errorf("%d effects", n)
				}
				if l != nil {
					if h := p.held(t, "l"); h == nil || h.Fence != l.Fence {
						t.Errorf("the next holder has lost it to the one before: %+v", h)
					}
					if err := p.locks.Release(t.Context(), l); err != nil {
						t.Error(err)
					}
				}
				c.Tell(t, "end")
				c.Done(t)
			})
		})
	}
}
