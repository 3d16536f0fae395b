package txn_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

const (
	accounts = 8
	opening  = 100 // what each account has at first
)

// newBank makes a place with accounts in it.
func newBank(t *testing.T, kind string) *place {
	t.Helper()
	p := newPlace(t, kind)
	p.exec(t, "CREATE TABLE account (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)")
	for id := range accounts {
		p.exec(t, fmt.Sprintf("INSERT INTO account VALUES (%d, %d)", id, opening))
	}
	return p
}

var errPoor = errors.New("not enough money")

// move transfers money without a lock of the rows: it reads both balances, then writes both.
func move(ctx context.Context, c ledger.Conn, from, to, cents int64) error {
	var balances [2]int64
	for i, id := range []int64{from, to} {
		var err error
		if balances[i], err = value[int64](ctx, c, "SELECT cents FROM account WHERE id = $1", id); err != nil {
			return err
		}
	}
	if balances[0] < cents {
		return errPoor
	}
	if _, err := c.Exec(ctx, "UPDATE account SET cents = $1 WHERE id = $2", balances[0]-cents, from); err != nil {
		return err
	}
	_, err := c.Exec(ctx, "UPDATE account SET cents = $1 WHERE id = $2", balances[1]+cents, to)
	return err
}

func account(id int64) string { return fmt.Sprint("account:", id) }

// sound checks, at one moment of the database, that all the money is there and no account is overdrawn.
func sound(t *testing.T, p *place) {
	state, err := value[string](t.Context(), p.conn, "SELECT CAST(sum(cents) AS TEXT) || ' ' || CAST(min(cents) >= 0 "+
		"AS TEXT) FROM account")
	want := fmt.Sprint(accounts*opening, " ", map[bool]string{true: "true", false: "1"}[p.postgres()])
	if err != nil || state != want {
		t.Errorf("sum and whether none is overdrawn: %q, want %q; %v", state, want, err)
	}
}

func init() { childtest.Runs["withdraw"] = withdrawChild }

// withdrawChild withdraws 1 from account 0 again and again, three at a time, and prints a line each time,
// until its input ends.
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
	run := p.with(txn.Config{})
	withdraw := func(ctx context.Context, c ledger.Conn) error {
		if err := txn.Lock(ctx, account(0)); err != nil {
			return err
		}
		cents, err := value[int64](ctx, c, "SELECT cents FROM account WHERE id = 0")
		if err != nil {
			return err
		}
		_, err = c.Exec(ctx, "UPDATE account SET cents = $1 WHERE id = 0", cents-1)
		return err
	}
	errs := make([]error, 3)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			for !stop.Load() && errs[g] == nil {
				if errs[g] = run(ctx, withdraw); errs[g] == nil {
					fmt.Println("withdrawn")
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Two processes that write to one file as fast as they can get at it take turns.
func TestEveryCallerIsServed(t *testing.T) {
	p := newBank(t, "sqlite")
	var done, turns [2]int // turns: since both have begun
	var all []*childtest.Child
	lines := make(chan int)
	var ended sync.WaitGroup
	for i := range done {
		c := childtest.Start(t, "withdraw", "sqlite", p.url)
		all = append(all, c)
		ended.Go(func() {
			for c.Lines.Scan() {
				lines <- i
			}
		})
	}
	go func() {
		ended.Wait()
		close(lines)
	}()
	for i := range lines {
		if done[i]++; done[0] > 0 && done[1] > 0 {
			turns[i]++
		}
		if turns[0]+turns[1] == 1000 {
			for _, c := range all {
				c.In.Close()
			}
		}
	}
	for _, c := range all {
		c.Done(t)
	}
	t.Logf("turns: %v", turns)
	if min(turns[0], turns[1])*10 < turns[0]+turns[1] {
		t.Errorf("of %d turns the two had %v", turns[0]+turns[1], turns)
	}
}
