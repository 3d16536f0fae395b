package sqlite_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/sqlite"
)

// A handler's writes and the end of its item commit together, in the file that both share.
func ExampleWrap() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "app.db")
	store, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		log.Fatal(err)
	}
	l := ledger.New(store, ledger.Options{})
	defer l.Close()
	db, err := sql.Open("sqlite", file)
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	added, err := l.Add(ctx, ledger.NewItem{Kind: "photo", Key: "tram.jpg"})
	if err != nil {
		log.Fatal(err)
	}
	leases, err := l.Claim(ctx, ledger.Claim{Kind: "photo", Agent: "ann", Limit: 1})
	if err != nil {
		log.Fatal(err)
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, `CREATE TABLE width (photo TEXT, width INTEGER)`); err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.FinishTx(ctx, sqlite.Wrap(tx), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)}), tx.Commit())
	it, err := l.Get(ctx, added[0].ID)
	fmt.Println(it.State, err)
	// Output:
	// <nil> <nil>
	// done <nil>
}
