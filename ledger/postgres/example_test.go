package postgres_test

import (
	"context"
	"fmt"
	"log"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// lab stands for the test that package pgtest wants.
type lab struct {
	testing.TB
	cleanups []func()
}

func (l *lab) Helper()                           {}
func (l *lab) Cleanup(f func())                  { l.cleanups = append(l.cleanups, f) }
func (l *lab) Fatalf(format string, args ...any) { log.Fatalf(format, args...) }
func (l *lab) end() {
	for _, f := range slices.Backward(l.cleanups) {
		f()
	}
}

// examplePool is a pool, a schema of its own, and what ends both.
func examplePool() (pool *pgxpool.Pool, schema string, end func()) {
	l := &lab{}
	schema = pgtest.Schema(l)
	return pgtest.Pool(l), schema, l.end
}

// The ledger lies in a schema of the program's own database. An item that is added in a transaction exists if and only
// if that commits.
func ExampleWrap() {
	ctx := context.Background()
	pool, schema, end := examplePool()
	defer end()
	store, err := postgres.Open(ctx, pool, postgres.Options{Schema: schema})
	if err != nil {
		log.Fatal(err)
	}
	l := ledger.New(store, ledger.Options{})
	defer l.Close()
	tx, err := pool.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	added, err := l.AddTx(ctx, postgres.Wrap(tx), ledger.NewItem{Kind: "mail", Key: "ada"})
	fmt.Println(added[0].Verdict, err)
	if err := tx.Rollback(ctx); err != nil {
		log.Fatal(err)
	}
	n, err := l.Count(ctx, ledger.Filter{})
	fmt.Println(n, err)
	// Output:
	// added <nil>
	// 0 <nil>
}
