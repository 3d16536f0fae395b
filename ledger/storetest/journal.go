package storetest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/payload"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

var journalCases = []storeCase{
	{"Journal", journal},
	{"JournalOneAct", journalOneAct},
	{"JournalAdd", journalAdd},
	{"JournalCauses", journalCauses},
	{"JournalPolicy", journalPolicy},
}

// journal: acts of operators are read newest first, and each knows the items that it changed.
func journal(t *testing.T, h *harness) {
	var ids []int64
	for _, added := range h.addMany(5) {
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
		{"until", ledger.JournalQuery{Until: start.Add(2 * time.Hour)}, []string{"cancel", "set-kind"}},
		{"between", ledger.JournalQuery{Since: start.Add(time.Hour), Until: start.Add(2 * time.Hour)}, []string{"cancel"}},
		{"by actor", ledger.JournalQuery{Actor: "operator:ann"}, []string{"reopen", "set-kind"}},
		{"by action", ledger.JournalQuery{Action: "cancel"}, []string{"cancel"}},
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

// journalOneAct: an act on many items is one entry, over all its transactions and calls. It has what was asked for,
// the number of changed items and the first removed keys, and every changed item finds it. Entries are the same in
// pages of any size, also if two acts overlap.
func journalOneAct(t *testing.T, h *harness) {
	const many = 1200
	items := make([]ledger.NewItem, many)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprintf("key %04d", i)}
	}
	added := h.add(items...)
	first, last := added[0].ID, added[many-1].ID
	h.add(ledger.NewItem{Kind: "other", Key: "x"})
	ben := ledger.OneAct(h.ctx, "--where kind:k")
	half := ledger.Filter{Kinds: []string{"k"}, UpTo: first + 599}
	n, err := h.l.Cancel(ben, "operator:ben", half)
	h.ok(err)
	equal(t, "cancelled", n, 600)
	h.clock.advance(time.Hour)
	ann := ledger.OneAct(h.ctx, "other")
	n, err = h.l.Cancel(ann, "operator:ann", ledger.Filter{Kinds: []string{"other"}}) // between the two calls of ben
	h.ok(err)
	equal(t, "cancelled", n, 1)
	n, err = h.l.Cancel(ben, "operator:ben", ledger.Filter{Kinds: []string{"k"}})
	h.ok(err)
	equal(t, "cancelled", n, 600)
	forgotten, _, err := h.l.Forget(ledger.OneAct(h.ctx, "--scope ''"), "operator:ann", ledger.Filter{})
	h.ok(err)
	equal(t, "forgotten", forgotten, many+1)

	all, err := h.l.Journal(h.ctx, ledger.JournalQuery{Limit: 10})
	h.ok(err)
	for i := range all {
		if e := &all[i]; e.Action == "forget" {
			bytes := 0
			for _, key := range e.Keys {
				bytes += len(key)
			}
			if len(e.Keys) < 500 || bytes > 8<<10 || e.Keys[0] != "key 0000" || e.Keys[499] != "key 0499" {
				t.Errorf("%d keys of %d bytes: %v", len(e.Keys), bytes, e.Keys)
			}
			e.Keys = nil
		}
		all[i].ID, all[i].At = 0, all[i].At.UTC()
	}
	span := func(a, b int64) string { return fmt.Sprintf("items %d … %d", a, b) }
	equal(t, "journal", all, []ledger.JournalEntry{
		{At: start.Add(time.Hour), Actor: "operator:ann", Action: "forget", Subject: span(first, last+1),
			Detail: "--scope ''", Changed: many + 1, IDs: all[0].IDs},
		{At: start.Add(time.Hour), Actor: "operator:ann", Action: "cancel", Subject: fmt.Sprint("item ", last+1),
			Detail: "other", Changed: 1, IDs: fmt.Sprint(last + 1)},
		{At: start, Actor: "operator:ben", Action: "cancel", Subject: span(first, last), Detail: "--where kind:k",
			Changed: many, IDs: all[2].IDs},
	})
	var one []ledger.JournalEntry
	for q := (ledger.JournalQuery{Limit: 1}); ; {
		page, err := h.l.Journal(h.ctx, q)
		h.ok(err)
		if len(page) == 0 {
			break
		}
		q.Before = page[0].ID
		page[0].ID, page[0].At = 0, page[0].At.UTC()
		if page[0].Action == "forget" {
			page[0].Keys = nil
		}
		one = append(one, page[0])
	}
	equal(t, "one by one", one, all)
	for _, id := range []int64{first, first + 599, first + 600, last} {
		acts, err := h.l.Journal(h.ctx, ledger.JournalQuery{Item: id, Limit: 10})
		h.ok(err)
		if len(acts) != 2 || acts[0].Action != "forget" || acts[1].Actor != "operator:ben" {
			t.Errorf("acts on item %d: %+v", id, acts)
		}
	}
	acts, err := h.l.Journal(h.ctx, ledger.JournalQuery{Since: start.Add(time.Minute), Action: "cancel", Limit: 10})
	h.ok(err)
	if len(acts) != 2 || acts[1].Changed != 600 { // of an act that began before, only what it changed since
		t.Errorf("since: %+v", acts)
	}
}

// journalPolicy: a changed policy is reported with the names and forms that people write, and with defaults that held
// before or hold now.
func journalPolicy(t *testing.T, h *harness) {
	h.ok(h.l.SetKind(h.ctx, "operator:ann", ledger.Kind{Name: "k", MaxFailures: 7, Keep: ledger.KeepForever,
		OnLost: ledger.OnLostDoubt, Backoff: ledger.Backoff{Base: 1500 * time.Millisecond}, Paused: true,
		Limits:   scheduler.Limits{MaxRunning: 3, Rate: scheduler.Rate{Count: 5, Per: time.Second}},
		Input:    ledger.Input{Type: "file", Match: []string{"*.csv"}},
		Defaults: payload.Defaults{"age": {Value: []byte("7")}}}))
	all, err := h.l.Journal(h.ctx, ledger.JournalQuery{Limit: 10})
	h.ok(err)
	equal(t, "entries", len(all), 2)
	equal(t, "detail", all[0].Detail, "backoff_base: 1s → 1.5s, defaults: not set → [age=7], input_match: not set → "+
		"[\"*.csv\"], input_type: not set → file, keep: 30d → forever, "+
		"max_failures: 5 → 7, max_running: not set → 3, on_lost: repeat → doubt, rate: not set → 5/s")
	equal(t, "the pause", [4]string{all[1].Action, all[1].Actor, all[1].Subject, all[1].Detail},
		[4]string{"pause", "operator:ann", "k", ""})

	h.ok(h.l.SetKind(h.ctx, "operator:ann", ledger.Kind{Name: "k", MaxFailures: 5, MaxCrashes: 3, Paused: true}))
	all, err = h.l.Journal(h.ctx, ledger.JournalQuery{Action: "set-kind", Limit: 1})
	h.ok(err)
	equal(t, "what is taken back", all[0].Detail, "backoff_base: 1.5s → 1s, input_match: [\"*.csv\"] → not set, "+
		"input_type: file → not set, keep: forever → 30d, max_crashes: not set → 3, max_failures: 7 → 5, "+
		"max_running: 3 → not set, on_lost: doubt → repeat, rate: 5/s → not set")

	pause := func(actor, kind string, paused bool) {
		_, err := h.l.EditKind(h.ctx, actor, kind, func(k *ledger.Kind, _ bool) { k.Paused = paused })
		h.ok(err)
	}
	by := func(k ledger.Kind) string {
		pauses, err := h.l.Pauses(h.ctx, k)
		h.ok(err)
		return pauses[k.Name].Actor
	}
	k := ledger.Kind{Name: "k", Paused: true}
	equal(t, "paused by", by(k), "operator:ann")
	pause("operator:ben", "k", true)
	equal(t, "paused again", by(k), "operator:ann")
	pause("operator:ben", "k", false)
	pause("operator:cem", "k", true)
	pause("operator:dan", "kk", true)
	equal(t, "paused by, after it was resumed", by(k), "operator:cem")
	equal(t, "of a kind that is not paused", by(ledger.Kind{Name: "k"}), "")
	resumed, err := h.l.Journal(h.ctx, ledger.JournalQuery{Action: "resume", Limit: 10})
	h.ok(err)
	equal(t, "resumed", len(resumed), 1)
	equal(t, "resumed by", resumed[0].Actor, "operator:ben")
}

// journalCauses: an act on the items of a cause has the code of the failures beside the cause, also without a text.
func journalCauses(t *testing.T, h *harness) {
	id := h.addOne("x")
	h.end(h.claimOne("k"), ledger.Result{Outcome: ledger.OutcomeFailed, Code: "http_503", Final: true})
	cause := "cause:" + h.item(id).Cause
	_, err := h.l.Retry(ledger.OneAct(h.ctx, cause), "operator:ann", ledger.IDs(id))
	h.ok(err)
	entries, err := h.l.Journal(h.ctx, ledger.JournalQuery{Limit: 1})
	h.ok(err)
	equal(t, "detail", entries[0].Detail, cause+" code:http_503")
}

// journalAdd: items that Add opens again are one act of the named actor, over all its calls. Without an actor, and
// for Try, nothing is written.
func journalAdd(t *testing.T, h *harness) {
	h.addMany(3)
	for _, ls := range h.claim("k", 3) {
		h.end(ls, ledger.Done(nil))
	}
	again := func(keys ...string) (items []ledger.NewItem) {
		for _, key := range keys {
			items = append(items, ledger.NewItem{Kind: "k", Key: key, Again: ledger.Again{DoneBefore: start.Add(time.Hour)}})
		}
		return items
	}
	act := ledger.AddingAct(h.ctx, "operator:ann", "k --again")
	_, err := h.l.Try(act, again("key-00000")...)
	h.ok(err)
	_, err = h.l.Add(act, again("new", "key-00000")...)
	h.ok(err)
	_, err = h.l.Add(act, again("key-00000", "key-00001")...)
	h.ok(err)
	h.add(again("key-00002")...)
	entries, err := h.l.Journal(h.ctx, ledger.JournalQuery{Limit: 10})
	h.ok(err)
	if len(entries) != 1 || entries[0].Actor != "operator:ann" || entries[0].Action != "reopen" ||
		entries[0].Detail != "k --again" || entries[0].Changed != 2 {
		t.Errorf("%+v", entries)
	}
}
