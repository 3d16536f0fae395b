package locks_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// A job starts on every instance at the same time, and one of them does it.
func ExampleManager_Do() {
	m := locks.New(ledger.New(memory.New(memory.Options{}), ledger.Options{}))
	job := func(instance string, work func(ctx context.Context, l *locks.Lock) error) {
		err := m.Do(context.Background(), "nightly-mail", locks.Options{Holder: instance}, work)
		if held := (*locks.HeldError)(nil); errors.As(err, &held) {
			fmt.Println(instance, "leaves it to", held.Holder)
		} else if err != nil {
			log.Fatal(err)
		}
	}
	job("a", func(ctx context.Context, l *locks.Lock) error {
		fmt.Println("a has it, fence", l.Fence)
		job("b", nil)
		return ctx.Err() // ctx has ended if the lock was lost
	})
	// Output:
	// a has it, fence 1
	// b leaves it to a
}

// InTx commits its writes only if the lock is still held.
func ExampleInTx() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "app.db") // it holds the program's own tables and the ledger
	store, err := sqlite.Open(ctx, path, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE report (day TEXT PRIMARY KEY, sum INTEGER)`); err != nil {
		log.Fatal(err)
	}
	m, r := locks.New(ledger.New(store, ledger.Options{})), txn.New(sqlite.DB(db), txn.Config{})
	err = locks.InTx(ctx, m, r, "report", locks.Options{}, func(ctx context.Context, tx *sql.Tx, _ *locks.Lock) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO report VALUES ('2026-11-20', 60)`)
		return err
	})
	fmt.Println(err)
	// Output: <nil>
}
