package recorder

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/history"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// repeating is a store whose transactions conflict once, and are repeated.
type repeating struct{ ledger.Store }

func (repeating) Update(_ context.Context, _ ledger.Conn, fn func(ledger.Tx) error) error {
	for n := range 2 {
		if err := fn(&expired{items: 1 - n}); err != nil {
			return err
		}
	}
	return nil
}

// expired is a transaction that finds some expired leases.
type expired struct {
	ledger.Tx
	items int
}

func (e *expired) LoadExpired(int) ([]ledger.Record, error) {
	recs := make([]ledger.Record, e.items)
	for i := range recs {
		recs[i].ID = 567
	}
	return recs, nil
}

func (e *expired) Now() time.Time { return time.Unix(1, 0) }

// A repeated transaction that finds nothing more to do replaces what its first try decided.
func TestRepeatedTransaction(t *testing.T) {
	path := filepath.Join(t.TempDir(), "history")
	log, err := history.Open(path)
	must.OK(t, err)
	defer log.Close()
	err = New(repeating{}, log).Update(t.Context(), nil, func(tx ledger.Tx) error {
		_, err := tx.LoadExpired(10)
		return err
	})
	must.OK(t, err)
	lines, err := history.Read(path)
	must.OK(t, err)
	if len(lines) != 3 || len(lines[0].Items) != 1 || lines[1].Phase != history.Begin || len(lines[1].Items) != 0 ||
		lines[2].Phase != history.End {
		t.Errorf("the history is %+v, not two tries of which the last decided nothing", lines)
	}
}
