package txn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/internal/childtest"
	"github.com/ledgerd/ledgerd/internal/stracetest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

func init() { childtest.Runs["insert"] = insertChild }

// insertChild writes one row and describes what became of it.
func insertChild(ctx context.Context, args []string) error {
	p, err := open(ctx, "sqlite", args[0])
	if err != nil {
		return err
	}
	defer p.close()
	calls := 0
	err = p.with(txn.Config{})(ctx, func(ctx context.Context, c ledger.Conn) error {
		calls++
		return note(ctx, c, "a")
	})
	fmt.Println(calls, errors.Is(err, txn.ErrUncertain))
	return nil
}

// The disk fails while SQLite commits: its content is unknown.
func TestDiskFailsAtCommit(t *testing.T) {
	p := newPlace(t, "sqlite")
	p.exec(t, notesTable)
	c := childtest.New(t, "insert", p.url)
	trace := stracetest.Wrap(t, c.Cmd, "-e", "trace=fdatasync,fsync", "-e", "inject=fdatasync,fsync:error=EIO")
	c.Begin(t).Expect(t, "1 true") // calls, and whether it is uncertain
	c.Done(t)
	failed := 0
	for _, call := range trace.Calls(t) {
		if call.Injected() {
			failed++
		}
	}
	if failed == 0 {
		t.Error("no sync failed")
	}
	if n := mustValue[int](t, p, "SELECT count(*) FROM notes"); n > 1 {
		t.Errorf("%d rows", n)
	}
}
