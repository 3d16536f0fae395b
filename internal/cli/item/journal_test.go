package item

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// TestJournalInParts: every act is listed once in whatever parts the journal is read, also one that began before Since.
func TestJournalInParts(t *testing.T) {
	ctx, now := t.Context(), time.Now()
	l := ledger.New(memory.New(memory.Options{Now: func() time.Time { return now }}), ledger.Options{})
	since := now.Add(time.Hour)
	acts := []context.Context{ledger.OneAct(ctx, "first"), ledger.OneAct(ctx, "second")}
	for part := range 2 {
		for i, act := range acts {
			added, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: fmt.Sprint(part, i)})
			must.OK(t, err)
			must.Do(t)(l.Cancel(act, "ann", ledger.IDs(added[0].ID)))
		}
		if now = now.Add(2 * time.Hour); part == 0 {
			must.Do(t)(l.EditKind(ctx, "ann", "k", func(k *ledger.Kind, _ bool) { k.MaxFailures = 7 }))
		}
	}
	for limit := 1; limit <= 3; limit++ {
		for _, all := range []bool{true, false} {
			want, got := []string{"set-kind", "second", "first"}, []string(nil)
			if !all {
				want = want[:limit]
			}
			for e, err := range journalRows(ctx, l, ledger.JournalQuery{Since: since, Limit: limit}, all) {
				must.OK(t, err)
				if got = append(got, e.Detail); e.Action == "set-kind" {
					got[len(got)-1] = e.Action
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("in parts of %d, all: %t: %q, want %q", limit, all, got, want)
			}
		}
	}
}
