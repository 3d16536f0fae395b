package txn_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/must"
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

// move moves money in the way of one who has learned of no locks: it reads, reckons and writes.
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

// ways to keep transfers apart.
var ways = map[string]func(ctx context.Context, run runner, from, to, cents int64) error{
	// The entity locks of both accounts in one call.
	"entity locks": func(ctx context.Context, run runner, from, to, cents int64) error {
		return run(ctx, func(ctx context.Context, c ledger.Conn) error {
			if err := txn.Lock(ctx, account(from), account(to)); err != nil {
				return err
			}
			return move(ctx, c, from, to, cents)
		})
	},
	// Nested services: each locks what it knows, in any order.
	"one by one": func(ctx context.Context, run runner, from, to, cents int64) error {
		return run(ctx, func(ctx context.Context, c ledger.Conn) error {
			if err := txn.Lock(ctx, account(from)); err != nil {
				return err
			}
			return run(ctx, func(ctx context.Context, c ledger.Conn) error {
				if err := txn.Lock(ctx, account(to)); err != nil {
					return err
				}
				return move(ctx, c, from, to, cents)
			})
		})
	},
	// The rows themselves, in the order of their ids: excludes also those who know nothing of it.
	"row locks": func(ctx context.Context, run runner, from, to, cents int64) error {
		return run(ctx, func(ctx context.Context, c ledger.Conn) error {
			if _, err := c.Exec(ctx, "SELECT FROM account WHERE id = ANY($1) ORDER BY id FOR UPDATE",
				[]int64{from, to}); err != nil {
				return err
			}
			return move(ctx, c, from, to, cents)
		})
	},
	// No locks; the database finds out afterwards.
	"serializable": func(ctx context.Context, run runner, from, to, cents int64) error {
		return run(ctx, func(ctx context.Context, c ledger.Conn) error { return move(ctx, c, from, to, cents) })
	},
}

// report is what a process did.
type report struct {
	Committed, Refused int
	Wasted             map[string]int // tries by the error for which they were repeated
}

func init() { childtest.Runs["bank"] = bankChild }

// bankChild makes args[4] random transfers in each of four goroutines, in the way args[2].
func bankChild(ctx context.Context, args []string) error {
	p, err := open(ctx, args[0], args[1])
	if err != nil {
		return err
	}
	defer p.close()
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	var mu sync.Mutex
	did := report{Wasted: map[string]int{}}
	config := txn.Config{MaxTries: 200, OnTry: func(x txn.Try) {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case x.Repeat:
			did.Wasted[codeOf(x.Err)]++
		case errors.Is(x.Err, errPoor):
			did.Refused++
		case x.Err == nil:
			did.Committed++
		}
	}}
	if args[2] == "serializable" {
		config.Isolation = txn.Serializable
	}
	run := p.with(config)
	errs := make([]error, 4)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			for range n {
				from := rand.Int64N(accounts)
				to := (from + 1 + rand.Int64N(accounts-1)) % accounts
				if err := ways[args[2]](ctx, run, from, to, 1+rand.Int64N(80)); err != nil && !errors.Is(err, errPoor) {
					errs[g] = err
					return
				}
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(did)
}

func codeOf(err error) string {
	if answer := new(pgconn.PgError); errors.As(err, &answer) {
		return answer.Code
	}
	return err.Error()
}

// Sixteen workers in four processes move money at random. Nothing is lost or made, no account is ever
// overdrawn, and what reads without a lock is not kept from it.
func TestTransfers(t *testing.T) {
	for _, tt := range []struct {
		kind, way string
		each      int
		wasted    string // errors for which tries may be repeated
	}{
		{"sqlite", "entity locks", 50, ""},
		{"pgx", "entity locks", 100, ""},
		{"pgx", "row locks", 50, ""},
		{"pgx", "one by one", 20, "40P01"},
		{"sqlite", "one by one", 20, ""},
		{"pgx", "serializable", 50, "40001 40P01"},
	} {
		t.Run(tt.kind+" "+tt.way, func(t *testing.T) {
			p := newBank(t, tt.kind)
			var all []*childtest.Child
			for range 4 {
				all = append(all, childtest.Start(t, "bank", tt.kind, p.url, tt.way, fmt.Sprint(tt.each)))
			}
			looked := make(chan int)
			ended := make(chan struct{})
			go func() { looked <- watch(t, p, ended) }()
			sum := report{Wasted: map[string]int{}}
			for _, c := range all {
				var r report
				if !c.Lines.Scan() {
					c.Done(t)
					t.Fatal("a process said nothing")
				}
				must.OK(t, json.Unmarshal(c.Lines.Bytes(), &r))
				c.Done(t)
				sum.Committed += r.Committed
				sum.Refused += r.Refused
				for code, n := range r.Wasted {
					sum.Wasted[code] += n
				}
			}
			close(ended)
			t.Logf("%d transfers, %d refused, tries in vain: %v; looked %d times", sum.Committed, sum.Refused, sum.Wasted,
				<-looked)
			if sum.Committed+sum.Refused != 16*tt.each {
				t.Errorf("%d transfers were answered, not %d", sum.Committed+sum.Refused, 16*tt.each)
			}
			for code, n := range sum.Wasted {
				if !strings.Contains(tt.wasted, code) {
					t.Errorf("%d tries in vain: %s", n, code)
				}
			}
			sound(t, p)
		})
	}
}

// watch looks at the accounts, without a lock, until ended.
func watch(t *testing.T, p *place, ended <-chan struct{}) (times int) {
	for tick := time.NewTicker(50 * time.Millisecond); ; times++ {
		sound(t, p)
		select {
		case <-ended:
			tick.Stop()
			return times
		case <-tick.C:
		}
	}
}

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
