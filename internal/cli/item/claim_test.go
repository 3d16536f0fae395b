package item

import (
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// TestTakeAlone: items that a worker claims alone do not end the claim of a person.
func TestTakeAlone(t *testing.T) {
	ctx, now := t.Context(), time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	l := ledger.New(memory.New(memory.Options{Now: func() time.Time { return now }}), ledger.Options{})
	must.Do(t)(l.Add(ctx, ledger.NewItem{Kind: "k", Key: "a"}, ledger.NewItem{Kind: "k", Key: "b"},
		ledger.NewItem{Kind: "k", Key: "c"}))
	claim := ledger.Claim{Agent: "ann", Kind: "k", Limit: 3, TTL: time.Minute}
	for range 3 { // each time the leases are lost
		must.Do(t)(l.Claim(ctx, claim))
		now = now.Add(time.Hour)
		must.Do(t)(l.Expire(ctx, upkeepLimit))
		must.Do(t)(l.Promote(ctx, upkeepLimit))
	}
	got, err := take(ctx, l, claim, ledger.Kind{})
	if err != nil || len(got) != 3 || !got[0].Alone {
		t.Errorf("claimed %d items: %v", len(got), err)
	}
}
