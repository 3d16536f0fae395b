package txn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// The bug: 100 − 20 − 20 is 80 when two have read before one has written.
func TestLostUpdate(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, "CREATE TABLE account (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)", "INSERT INTO account VALUES (1, 100)")
		read := func(ctx context.Context, c ledger.Conn) (int64, error) {
			return value[int64](ctx, c, "SELECT cents FROM account WHERE id = 1")
		}
		write := func(ctx context.Context, c ledger.Conn, cents int64) error {
			_, err := c.Exec(ctx, "UPDATE account SET cents = $1 WHERE id = 1", cents)
			return err
		}
		a, errA := read(t.Context(), p.conn)
		b, errB := read(t.Context(), p.conn)
		if err := errors.Join(errA, errB, write(t.Context(), p.conn, a-20), write(t.Context(), p.conn, b-20)); err != nil {
			t.Fatal(err)
		}
		if got, err := read(t.Context(), p.conn); got != 80 || err != nil {
			t.Errorf("the naive way gives %d, %v; this test no longer shows what it is about", got, err)
		}
		p.exec(t, "UPDATE account SET cents = 100")
		run := p.with(txn.Config{})
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				err := run(t.Context(), func(ctx context.Context, c ledger.Conn) error {
					if err := txn.Lock(ctx, account(1)); err != nil {
						return err
					}
					cents, err := read(ctx, c)
					return errors.Join(err, write(ctx, c, cents-20))
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if got, err := read(t.Context(), p.conn); got != 60 || err != nil {
			t.Errorf("100 − 20 − 20 is %d, %v", got, err)
		}
	})
}

// The bug on SQLite: a transaction that reads first and writes later fails at once if somebody has
// written in between, whatever its busy_timeout. Run begins with the write lock.
func TestReadFirstWriteLater(t *testing.T) {
	p := newPlace(t, "sqlite")
	p.exec(t, notesTable)
	naive, err := sql.Open("sqlite", p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer naive.Close()
	tx, err := naive.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	readThenWrite := func(ctx context.Context, c ledger.Conn, meanwhile func()) error {
		if _, err := value[int](ctx, c, "SELECT count(*) FROM notes"); err != nil {
			return err
		}
		meanwhile()
		return note(ctx, c, "later")
	}
	err = readThenWrite(t.Context(), sqlite.Wrap(tx), func() { p.exec(t, "INSERT INTO notes VALUES ('meanwhile')") })
	if err == nil || !strings.Contains(err.Error(), "SQLITE_BUSY_SNAPSHOT") && !strings.Contains(err.Error(), "517") {
		t.Errorf("the naive way gives %v; this test no longer shows what it is about", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	other := make(chan error)
	err = p.with(txn.Config{OnTry: func(x txn.Try) {
		if x.Err != nil {
			t.Errorf("try %d: %v", x.N, x.Err)
		}
	}})(t.Context(), func(ctx context.Context, c ledger.Conn) error {
		return readThenWrite(ctx, c, func() {
			go func() { other <- note(t.Context(), p.conn, "waits") }()
		})
	})
	if err := errors.Join(err, <-other); err != nil || notes(t, p) != "later meanwhile waits" {
		t.Errorf("%v, %q", err, notes(t, p))
	}
}

func init() { children["withdraw"] = withdrawChild }

// withdrawChild withdraws 1 from account 0 again and again, as args[2] says: one goroutine of it at a
// time ("mutex"), or in transactions. It says so each time, until its input ends, and then how often
// it did.
func withdrawChild(ctx context.Context, args []string) error {
	p, err := open(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	defer p.close()
	var stop atomic.Bool
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop.Store(true)
	}()
	var mu sync.Mutex
	run := func(ctx context.Context, fn func(context.Context, ledger.Conn) error) error {
		mu.Lock()
		defer mu.Unlock()
		return fn(ctx, p.conn)
	}
	if args[2] != "mutex" {
		run = p.with(txn.Config{})
	}
	var times atomic.Int64
	withdraw := func() error {
		err := run(ctx, func(ctx context.Context, c ledger.Conn) error {
			if err := txn.Lock(ctx, account(0)); err != nil && !errors.Is(err, txn.ErrNoTx) {
				return err
			}
			cents, err := value[int64](ctx, c, "SELECT cents FROM account WHERE id = 0")
			if err != nil {
				return err
			}
			_, err = c.Exec(ctx, "UPDATE account SET cents = $1 WHERE id = 0", cents-1)
			return err
		})
		if err == nil {
			times.Add(1)
			fmt.Println("withdrawn")
		}
		return err
	}
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			for !stop.Load() && errs[g] == nil {
				errs[g] = withdraw()
			}
		})
	}
	wg.Wait()
	fmt.Println(times.Load())
	return errors.Join(errs...)
}

// The bug: a mutex keeps the goroutines of one process apart, and not two processes.
func TestMutexIsNotEnough(t *testing.T) {
	for _, kind := range []string{"sqlite", "pgx"} {
		t.Run(kind, func(t *testing.T) {
			p := newBank(t, kind)
			var all []*child
			var together, ended sync.WaitGroup
			for range 2 {
				c := spawn(t, "withdraw", kind, p.url, "mutex")
				all = append(all, c)
				together.Add(1)
				ended.Go(func() {
					enough := sync.OnceFunc(together.Done)
					defer enough()
					for n := 1; c.lines.Scan() && c.lines.Text() == "withdrawn"; n++ {
						if n == 200 {
							enough()
						}
					}
				})
			}
			together.Wait()
			for _, c := range all {
				c.in.Close()
			}
			ended.Wait()
			withdrawn := int64(0)
			for _, c := range all {
				n, err := strconv.ParseInt(c.lines.Text(), 10, 64)
				if err != nil {
					t.Fatal(err, c.errs.String())
				}
				withdrawn += n
				c.done(t)
			}
			gone := opening - mustValue[int64](t, p, "SELECT cents FROM account WHERE id = 0")
			t.Logf("%d withdrawn, %d gone from the account", withdrawn, gone)
			if gone >= withdrawn {
				t.Error("nothing was lost; this test no longer shows what it is about")
			}
		})
	}
}
