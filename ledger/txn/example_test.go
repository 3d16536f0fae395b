package txn_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// A transfer runs in a transaction of its own, or joins the transaction of its caller. When the database gives up on
// the transaction, all of it is repeated.
func Example() {
	ctx := context.Background()
	db, remove := exampleBank()
	defer remove()
	run := txn.New(sqlite.DB(db), txn.Config{}) // or postgres.DB(pool)

	transfer := func(ctx context.Context, from, to string, cents int64) error {
		return run.Run(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if err := txn.Lock(ctx, "account:"+from, "account:"+to); err != nil {
				return err
			}
			var balance int64
			if err := tx.QueryRowContext(ctx, "SELECT cents FROM account WHERE id = $1", from).Scan(&balance); err != nil {
				return err
			}
			if balance < cents {
				return errors.New("not enough money")
			}
			_, err := tx.ExecContext(ctx, "UPDATE account SET cents = cents + CASE id WHEN $1 THEN -$3 ELSE $3 END WHERE id "+
				"IN ($1, $2)", from, to, cents)
			return err
		})
	}

	fmt.Println(transfer(ctx, "ada", "bob", 30))
	// Both or none: the second one is refused, and takes the first one with it.
	fmt.Println(run.Run(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := transfer(ctx, "ada", "bob", 50); err != nil {
			return err
		}
		return transfer(ctx, "ada", "bob", 50)
	}))
	var cents int64
	fmt.Println(db.QueryRow("SELECT cents FROM account WHERE id = 'ada'").Scan(&cents), cents)
	// Output:
	// <nil>
	// not enough money
	// <nil> 70
}

// An item for work that the database cannot undo, a mail, exists if and only if the transaction
// commits.
func ExampleRunner_Conn() {
	ctx := context.Background()
	db, remove := exampleBank()
	defer remove()
	var file string
	if err := db.QueryRow("SELECT file FROM pragma_database_list").Scan(&file); err != nil {
		log.Fatal(err)
	}
	store, err := sqlite.Open(ctx, file, sqlite.Options{}) // the ledger lies in the same file
	if err != nil {
		log.Fatal(err)
	}
	l := ledger.New(store, ledger.Options{})
	defer l.Close()
	run := txn.New(sqlite.DB(db), txn.Config{})

	err = run.Run(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, "UPDATE account SET cents = 0 WHERE id = 'ada'"); err != nil {
			return err
		}
		_, err := l.AddTx(ctx, run.Conn(tx), ledger.NewItem{Kind: "mail", Scope: "account-closed", Key: "ada"})
		return err
	})
	item, missing := l.Find(ctx, "mail", "account-closed", "ada")
	fmt.Println(err, missing, item.State)
	// Output: <nil> <nil> ready
}

// OnTry counts the tries that are repeated. Many of them mean that transactions meet too often, or that their locks are
// taken one by one.
func ExampleConfig() {
	db, remove := exampleBank()
	defer remove()
	tries, repeated := 0, 0
	run := txn.New(sqlite.DB(db), txn.Config{OnTry: func(t txn.Try) {
		tries++
		if t.Repeat {
			repeated++
		}
	}})
	err := run.Run(context.Background(), func(ctx context.Context, tx *sql.Tx) error { return nil })
	fmt.Println(err, tries, repeated)
	// Output: <nil> 1 0
}

// Where others write to the same rows without entity locks, lock the rows: in the order of their
// ids, so that there is no deadlock.
func ExampleRunner_Run_rowLocks() {
	transfer := func(ctx context.Context, run *txn.Runner[pgx.Tx], from, to, cents int64) error {
		return run.Run(ctx, func(ctx context.Context, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "SELECT cents FROM account WHERE id = ANY($1) ORDER BY id FOR UPDATE", []int64{from, to})
			if err != nil {
				return err
			}
			balances, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				return err
			}
			fmt.Println(balances) // decide, then write
			return nil
		})
	}
	_ = transfer // on Postgres: SQLite has no row locks and needs none
}

// exampleBank is an SQLite file with two accounts.
func exampleBank() (db *sql.DB, remove func()) {
	dir, err := os.MkdirTemp("", "txn")
	if err != nil {
		log.Fatal(err)
	}
	db, err = sql.Open("sqlite", filepath.Join(dir, "bank.db"))
	if err != nil {
		log.Fatal(err)
	}
	if _, err := db.Exec("CREATE TABLE account (id TEXT PRIMARY KEY, cents INTEGER NOT NULL); INSERT INTO account " +
		"VALUES ('ada', 100), ('bob', 0)"); err != nil {
		log.Fatal(err)
	}
	return db, func() {
		db.Close()
		os.RemoveAll(dir)
	}
}
