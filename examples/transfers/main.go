// Command transfers moves money between accounts at random, from as many processes as you start.
// One way makes the sum of all accounts wrong, two do not. See README.md.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/ledgerd/ledgerd/ledger/postgres"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

const (
	accounts = 8
	opening  = 100_00 // cents in each account at first
)

func main() {
	db := flag.String("db", "sqlite:bank.db", "sqlite:PATH or postgres://…")
	way := flag.String("way", "locks", "how transfers are kept apart: locks, rows (Postgres only) or naive")
	n := flag.Int("n", 1000, "transfers of each worker")
	workers := flag.Int("workers", 4, "workers of this process")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), "usage: transfers [flags] open|work|show\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, flag.Arg(0), *db, *way, *workers, *n); err != nil {
		fmt.Fprintln(os.Stderr, "transfers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, command, url, way string, workers, n int) error {
	b, err := openBank(url)
	if err != nil {
		return err
	}
	defer b.db.Close()
	switch command {
	case "open":
		return b.open(ctx)
	case "work":
		if !slices.Contains([]string{"locks", "rows", "naive"}, way) {
			return fmt.Errorf("-way is locks, rows or naive, not %q", way)
		}
		if way == "rows" && strings.HasPrefix(url, "sqlite:") {
			return errors.New("-way rows is for Postgres: SQLite has no row locks, and one transaction at a time that writes")
		}
		return b.work(ctx, way, workers, n)
	case "show":
		return b.show(ctx)
	}
	return fmt.Errorf("what to do? open, work or show, not %q", command)
}

// bank is an open database. The code below is the same on SQLite and Postgres.
type bank struct {
	db      *sql.DB
	tx      *txn.Runner[*sql.Tx]
	repeats atomic.Int64 // of transactions that failed
}

func openBank(url string) (b *bank, err error) {
	b = &bank{}
	config := txn.Config{OnTry: func(t txn.Try) {
		if t.Repeat {
			b.repeats.Add(1)
		}
	}}
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		b.db, err = sql.Open("sqlite", "file:"+path+"?_pragma=journal_mode(wal)&_pragma=busy_timeout(60000)")
		b.tx = txn.New(sqlite.DB(b.db), config)
	} else {
		b.db, err = sql.Open("pgx", url)
		b.tx = txn.New(postgres.SQLDB(b.db), config)
	}
	return b, err
}

// open makes the accounts, or sets them to their opening balance.
func (b *bank) open(ctx context.Context) error {
	return b.tx.Run(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx,
			"CREATE TABLE IF NOT EXISTS account (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)"); err != nil {
			return err
		}
		for id := range accounts {
			if _, err := tx.ExecContext(ctx, "INSERT INTO account VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET cents = "+
				"excluded.cents", id, opening); err != nil {
				return err
			}
		}
		return nil
	})
}

var errPoor = errors.New("not enough money")

// querier is a *sql.DB or a *sql.Tx.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// move reads, decides, and writes the result, as most services do.
func move(ctx context.Context, q querier, from, to, cents int64) error {
	var a, b int64
	if err := q.QueryRowContext(ctx, "SELECT cents FROM account WHERE id = $1", from).Scan(&a); err != nil {
		return err
	}
	if err := q.QueryRowContext(ctx, "SELECT cents FROM account WHERE id = $1", to).Scan(&b); err != nil {
		return err
	}
	if a < cents {
		return errPoor
	}
	if _, err := q.ExecContext(ctx, "UPDATE account SET cents = $1 WHERE id = $2", a-cents, from); err != nil {
		return err
	}
	_, err := q.ExecContext(ctx, "UPDATE account SET cents = $1 WHERE id = $2", b+cents, to)
	return err
}

// transfer moves money in one of the ways.
func (b *bank) transfer(ctx context.Context, way string, from, to, cents int64) error {
	switch way {
	case "naive": // other processes write between the reading and the writing
		return move(ctx, b.db, from, to, cents)
	case "locks": // works if all code that changes accounts takes these locks
		return b.tx.Run(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := txn.Lock(ctx, fmt.Sprint("account:", from), fmt.Sprint("account:", to)); err != nil {
				return err
			}
			return move(ctx, tx, from, to, cents)
		})
	default: // rows: works if all code that changes accounts locks the rows
		return b.tx.Run(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "SELECT FROM account WHERE id = ANY($1) ORDER BY id FOR UPDATE",
				[]int64{from, to}); err != nil {
				return err
			}
			return move(ctx, tx, from, to, cents)
		})
	}
}

// work makes n random transfers in each of some goroutines.
func (b *bank) work(ctx context.Context, way string, workers, n int) error {
	var done, refused atomic.Int64
	errs := make([]error, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for range n {
				from := rand.Int64N(accounts)
				to := (from + 1 + rand.Int64N(accounts-1)) % accounts
				switch err := b.transfer(ctx, way, from, to, 1+rand.Int64N(80_00)); {
				case err == nil:
					done.Add(1)
				case errors.Is(err, errPoor):
					refused.Add(1)
				default:
					errs[w] = err
					return
				}
			}
		})
	}
	wg.Wait()
	fmt.Printf("%d transfers, %d refused, %d repeated\n", done.Load(), refused.Load(), b.repeats.Load())
	return errors.Join(errs...)
}

// show prints the sum and the least of the balances.
func (b *bank) show(ctx context.Context) error {
	var total, least int64
	err := b.db.QueryRowContext(ctx, "SELECT CAST(sum(cents) AS BIGINT), min(cents) FROM account").Scan(&total, &least)
	if err != nil {
		return err
	}
	fmt.Printf("%.2f in all accounts, of %.2f; %.2f in the poorest\n", float64(total)/100, accounts*opening/100.,
		float64(least)/100)
	return nil
}
