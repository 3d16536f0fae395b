package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// journal: what operators did is read newest first, and tells which items an act has changed.
func journal(t *testing.T, h *harness) {
	var ids []int64
	for _, added := range h.many(5) {
		ids = append(ids, added.ID)
	}
	h.ok(h.l.SetKind(h.ctx, "operator:ann", ledger.Kind{Name: "k", MaxFailures: 7}))
	h.clock.advance(time.Hour)
	_, err := h.l.Cancel(h.ctx, "operator:ben", ledger.IDs(ids[0], ids[1], ids[3]))
	h.ok(err)
	h.clock.advance(time.Hour)
	_, err = h.l.Reopen(h.ctx, "operator:ann", ledger.IDs(ids[1]))
	h.ok(err)

	read := func(q ledger.JournalQuery) (actions []string) {
		t.Helper()
		q.Limit = max(q.Limit, 1)
		for {
			page, err := h.l.Journal(h.ctx, q)
			h.ok(err)
			for _, e := range page {
				actions = append(actions, e.Action)
			}
			if len(page) < q.Limit {
				return actions
			}
			q.Before = page[len(page)-1].ID
		}
	}
	for _, test := range []struct {
		name string
		q    ledger.JournalQuery
		want []string
	}{
		{"all, in pages of one", ledger.JournalQuery{}, []string{"reopen", "cancel", "set-kind"}},
		{"in pages of two", ledger.JournalQuery{Limit: 2}, []string{"reopen", "cancel", "set-kind"}},
		{"since", ledger.JournalQuery{Since: start.Add(time.Hour)}, []string{"reopen", "cancel"}},
		{"by actor", ledger.JournalQuery{Actor: "operator:ann"}, []string{"reopen", "set-kind"}},
		{"by action", ledger.JournalQuery{Action: "cancel"}, []string{"cancel"}},
		{"about a kind", ledger.JournalQuery{About: "k"}, []string{"set-kind"}},
		{"of an item", ledger.JournalQuery{Item: ids[1]}, []string{"reopen", "cancel"}},
		{"of one in a span that was left out", ledger.JournalQuery{Item: ids[2]}, nil},
		{"of one at the end of it", ledger.JournalQuery{Item: ids[3]}, []string{"cancel"}},
	} {
		if got := read(test.q); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	newest, err := h.l.Journal(h.ctx, ledger.JournalQuery{Limit: 1})
	h.ok(err)
	if e := newest[0]; !e.At.Equal(start.Add(2*time.Hour)) || e.Actor != "operator:ann" || e.Changed != 1 || e.ID == 0 {
		t.Errorf("%+v", e)
	}
}
