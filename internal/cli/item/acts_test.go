package item

import (
	"context"
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// TestActOnMovingItems: an act also changes items that change their state, or are added, while it runs. Each is counted
// once.
func TestActOnMovingItems(t *testing.T) {
	ctx := t.Context()
	for _, adds := range []int{0, 3, 1000} {
		t.Run(fmt.Sprint(adds), func(t *testing.T) {
			l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
			add := func(key string) {
				must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: key, Every: "day"}))
			}
			for i := range 10 {
				add(fmt.Sprint(i))
			}
			leases, err := l.Claim(ctx, ledger.Claim{Agent: "a", Kind: "k", Limit: 4})
			if err != nil || len(leases) != 4 {
				t.Fatal(leases, err)
			}
			passes := 0
			x := bulk{name: "cancel", repeat: true, changes: map[ledger.State]eligible{ledger.StateWaiting: {},
				ledger.StateReady: {}, ledger.StateLeased: {}}}
			x.change = func(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.ActOption) error {
				if passes++; passes == 1 { // one that is leased now is ready before the act gets to it
					if err := l.Finish(ctx, ledger.Ending{Lease: leases[0], Result: ledger.Release()})[0]; err != nil {
						return err
					}
				}
				_, err := l.Cancel(ctx, app.Actor(), f, tell)
				if passes <= adds {
					add(fmt.Sprint("late ", passes))
				}
				return err
			}
			f := ledger.Filter{Kinds: []string{"k"}}
			res := Acted{}
			res.ids, err = x.run(ctx, l, f)
			counts, would, countErr := x.count(ctx, l, f, res.noteLeft)
			must.OK(t, countErr)
			if adds > maxPasses {
				if err == nil || passes != maxPasses || would != 1 || counts[ledger.StateReady].matched != 1 {
					t.Errorf("%d passes, %d left: %v", passes, would, err)
				}
				return
			}
			if err != nil || len(res.ids) != 10+adds || would != 0 || len(counts) != 0 || res.leased != 3 {
				t.Errorf("%+v, left %v: %v", res, counts, err)
			}
		})
	}
}
