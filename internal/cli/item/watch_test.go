package item

import (
	"context"
	"iter"
	"strconv"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// TestWaiter: all items that end are counted, even if the first one stays open.
func TestWaiter(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	const items = 3*waitPage + 7
	var all []ledger.NewItem
	for i := range items {
		all = append(all, ledger.NewItem{Kind: "k", Key: strconv.Itoa(i)})
	}
	added, err := l.Add(t.Context(), all...)
	must.OK(t, err)
	w := &waiter{ledger: l, waited: waited{Items: items}}
	for _, a := range added {
		w.open = append(w.open, a.ID)
	}
	if late, err := w.until(t.Context(), time.Nanosecond); !late || err != nil || len(w.open) != items {
		t.Fatalf("%v, %v, %d open", late, err, len(w.open))
	}
	if n, err := l.Cancel(t.Context(), "ann", ledger.Filter{Above: added[0].ID}); n != items-1 || err != nil {
		t.Fatal(n, err)
	}
	must.OK(t, w.look(t.Context(), w.allPages()))
	if p := w.progress(); p.Total != items || p.Ended != items-1 || p.Attempts != items-1 || len(w.open) != 1 {
		t.Errorf("%+v, %d open", p, len(w.open))
	}
	w.ledger = &cancelling{Any: l}
	if late, err := w.until(t.Context(), time.Nanosecond); late || err != nil || w.waited.Cancelled != items {
		t.Errorf("%v, %v, %+v", late, err, &w.waited)
	}
}

// cancelling is a ledger whose items are cancelled before the second list.
type cancelling struct {
	ledgers.Any
	lists int
}

func (c *cancelling) List(ctx context.Context, f ledger.Filter, after int64) iter.Seq2[ledger.Item, error] {
	if c.lists++; c.lists == 2 {
		if _, err := c.Cancel(ctx, "ann", ledger.Filter{}); err != nil {
			panic(err)
		}
	}
	return c.Any.List(ctx, f, after)
}
