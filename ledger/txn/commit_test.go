package txn_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// The connection breaks at COMMIT, so Run cannot know whether the money was moved: the error matches ErrUncertain. The
// function is not called again, as that could pay twice. The money is all there.
func TestCommitWithoutAnswer(t *testing.T) {
	for _, kind := range []string{"postgres", "pgx"} {
		t.Run(kind, func(t *testing.T) {
			p := newBank(t, kind)
			p.exec(t, notesTable)
			for where, landed := range map[int32]bool{pgtest.CutLanded: true, pgtest.CutBefore: false} {
				cutter := pgtest.NewCutter(t)
				q := reopen(t, kind, through(t, p.url, cutter))
				id := fmt.Sprint("transfer ", where)
				calls, tries := 0, 0
				run := q.with(txn.Config{OnTry: func(txn.Try) { tries++ }})
				cutter.Cut(where)
				err := run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					calls++
					if err := txn.Lock(ctx, account(1), account(2)); err != nil {
						return err
					}
					return errors.Join(move(ctx, c, 1, 2, 10), note(ctx, c, id))
				})
				if !errors.Is(err, txn.ErrUncertain) || calls != 1 || tries != 1 {
					t.Errorf("%s: %d calls, %d tries, %v", id, calls, tries, err)
				}
				// The server may not have executed the COMMIT yet. It releases the lock of the account when it has.
				if err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, _ ledger.Conn) error {
					return txn.Lock(ctx, account(1))
				}); err != nil {
					t.Error(err)
				}
				if got := mustValue[int](t, p, "SELECT count(*) FROM notes WHERE text = $1", id) == 1; got != landed {
					t.Errorf("%s: landed: %v", id, got)
				}
				sound(t, p)
				if err := run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					return note(ctx, c, "next")
				}); err != nil {
					t.Errorf("%s: the next transaction: %v", id, err)
				}
			}
		})
	}
}

// The end of ctx does not interrupt a COMMIT that is under way: here it ends while the server waits
// within it, in a deferred trigger.
func TestCommitIsNotInterrupted(t *testing.T) {
	for _, kind := range []string{"postgres", "pgx"} {
		t.Run(kind, func(t *testing.T) {
			p := newPlace(t, kind)
			p.exec(t, notesTable,
				"CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN "+
					"NULL; END'",
				"CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON notes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE "+
					"FUNCTION slow()")
			holder := reopen(t, kind, p.url)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error)
			err := holder.with(txn.Config{})(t.Context(), func(held context.Context, c ledger.Conn) error {
				if _, err := c.Exec(held, "SELECT pg_advisory_xact_lock(1)"); err != nil {
					return err
				}
				go func() {
					done <- p.with(txn.Config{})(ctx, func(ctx context.Context, c ledger.Conn) error { return note(ctx, c, "a") })
				}()
				for mustValue[int](t, holder, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND "+
					"objid = 1 AND classid = 0") == 0 {
					select {
					case <-held.Done():
						return held.Err()
					case <-time.After(time.Millisecond):
					}
				}
				cancel()
				return nil
			})
			if err := errors.Join(err, <-done); err != nil || notes(t, p) != "a" {
				t.Errorf("%v, %q", err, notes(t, p))
			}
		})
	}
}

// A constraint that is checked at COMMIT fails it: that is certain, and not repeated.
func TestCommitRefused(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		if !p.postgres() {
			p.exec(t, "PRAGMA foreign_keys = 1") // of this connection: the pool keeps it
		}
		p.exec(t, "CREATE TABLE parent (id INT PRIMARY KEY)",
			"CREATE TABLE child (id INT REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)")
		calls := 0
		err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
			calls++
			_, err := c.Exec(ctx, "INSERT INTO child VALUES (1)")
			return err
		})
		if err == nil || errors.Is(err, txn.ErrUncertain) || errors.As(err, new(*txn.TriesError)) || calls != 1 {
			t.Errorf("%d calls, %v", calls, err)
		}
		if n := mustValue[int](t, p, "SELECT count(*) FROM child"); n != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

// SQLite can undo a whole transaction when a statement fails. That is not taken for a commit.
func TestUndoneBySQLite(t *testing.T) {
	p := newPlace(t, "sqlite")
	p.exec(t, "CREATE TABLE once (id INT PRIMARY KEY)")
	err := p.with(txn.Config{})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
		for range 2 {
			_, _ = c.Exec(ctx, "INSERT OR ROLLBACK INTO once VALUES (1)")
		}
		return nil
	})
	if n := mustValue[int](t, p, "SELECT count(*) FROM once"); n != 0 || !errors.Is(err, txn.ErrRolledBack) {
		t.Errorf("%d rows, %v", n, err)
	}
}

// On SQLite a transaction that reads first and writes later fails at once if another one has written in between, with
// any busy_timeout. So Run begins with the write lock.
func TestReadFirstWriteLater(t *testing.T) {
	p := newPlace(t, "sqlite")
	p.exec(t, notesTable)
	readThenWrite := func(ctx context.Context, c ledger.Conn, meanwhile func()) error {
		if _, err := value[int](ctx, c, "SELECT count(*) FROM notes"); err != nil {
			return err
		}
		meanwhile()
		return note(ctx, c, "later")
	}
	other := make(chan error)
	err := p.with(txn.Config{OnTry: func(x txn.Try) {
		if x.Err != nil {
			t.Errorf("try %d: %v", x.N, x.Err)
		}
	}})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
		return readThenWrite(ctx, c, func() {
			go func() { other <- note(t.Context(), p.conn, "waits") }()
		})
	})
	if err := errors.Join(err, <-other); err != nil || notes(t, p) != "later waits" {
		t.Errorf("%v, %q", err, notes(t, p))
	}
}

// refusing is a DB that gives up on every transaction.
type refusing struct{ txn.DB[ledger.Conn] }

var errRefused = errors.New("refused")

func (refusing) Pool() any { return nil }
func (refusing) Begin(ctx context.Context, _ txn.Isolation) (ledger.Conn, error) {
	return nil, cmp.Or(ctx.Err(), errRefused)
}
func (refusing) Transient(err error) bool { return errors.Is(err, errRefused) }

// If MaxTime ends during the pause after a try, the error has the cause of that try, and no other try is counted.
func TestMaxTimeInPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tries := 0
		r := txn.New(refusing{}, txn.Config{MaxTime: 1, OnTry: func(txn.Try) { tries++ }})
		err := r.Run(t.Context(), func(context.Context, ledger.Conn) error { return nil })
		if !errors.Is(err, errRefused) || !errors.Is(err, context.DeadlineExceeded) || tries != 1 {
			t.Errorf("%v, after %d tries", err, tries)
		}
	})
}
