package txn_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/txn"
)

// Two that read before one has written would leave 80 of 100 − 20 − 20.
func TestLostUpdate(t *testing.T) {
	onEach(t, func(t *testing.T, p *place) {
		p.exec(t, "CREATE TABLE account (id BIGINT PRIMARY KEY, cents BIGINT NOT NULL)",
			"INSERT INTO account VALUES (1, 100)")
		read := func(ctx context.Context, c ledger.Conn) (int64, error) {
			return value[int64](ctx, c, "SELECT cents FROM account WHERE id = 1")
		}
		write := func(ctx context.Context, c ledger.Conn, cents int64) error {
			_, err := c.Exec(ctx, "UPDATE account SET cents = $1 WHERE id = 1", cents)
			return err
		}
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
