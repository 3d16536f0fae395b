package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// groups: Groups counts items by a common value, also if payloads are no JSON, or hold JSON that only some databases
// can read.
func groups(t *testing.T, h *harness) {
	payloads := []string{
		`{"template":"A"}`, `{"template":"\u0041","x":1}`, ` { "template" : "A" } `, // three spellings of one value
		`{"template":"B\u0000"}`, `{"template":{"a": [1, 2]}}`, `{"template":1.50}`,
		`{"template":null}`, `{}`, ``, `not JSON`, `["template"]`, "\xff", `{"template":"\ud800"}`,
		strings.Repeat("[", 20_000),
	}
	var items []ledger.NewItem
	for i, p := range payloads {
		items = append(items, ledger.NewItem{Kind: "k", Scope: "s", Key: fmt.Sprintf("%02d", i), Payload: []byte(p)})
	}
	h.add(append(items, ledger.NewItem{Kind: "j", Scope: "s", Key: "j"},
		ledger.NewItem{Kind: "k", Scope: "s", Key: "later", Due: start.Add(1e12),
			Payload: []byte(`{"template":"B\u0000"}`)})...)
	for _, o := range []ledger.Result{ledger.Done(nil), ledger.Permanent(errors.New("no")),
		ledger.Doubt(errors.New("who knows"))} {
		h.end(h.claimOne("k"), o) // the three with "A"
	}
	h.add(ledger.NewItem{Kind: "k", Key: "other", ShardKey: "host", Payload: []byte(`{"template":"A"}`)})
	_, err := h.l.Cancel(h.ctx, "test", ledger.Filter{Kinds: []string{"k"}, Scopes: []string{"s"}, Key: "03"})
	h.ok(err)
	type group = stats.Group
	by := func(f ledger.Filter, what string) []group {
		t.Helper()
		got, _, err := h.l.Groups(h.ctx, f, what, 0)
		h.ok(err)
		inTime, whole, err := h.l.Groups(h.ctx, f, what, time.Hour)
		h.ok(err)
		equal(t, "all of them are counted in an hour", whole, true)
		equal(t, "counted in windows", inTime, got)
		return got
	}
	value := func(s string) json.RawMessage { return json.RawMessage(s) }
	equal(t, "by template", by(ledger.Filter{Kinds: []string{"k"}, Scopes: []string{"s"}}, "template"), []group{
		{Value: value(`"A"`), Done: 1, Failed: 1, Doubt: 1}, {Value: value(`"B\u0000"`), Left: 1, Cancelled: 1},
		{Value: value("\"\uFFFD\""), Left: 1}, {Value: value(`1.50`), Left: 1}, {Value: value(`{"a":[1,2]}`), Left: 1},
		{Left: 7}})
	ready := []ledger.State{ledger.StateReady}
	equal(t, "by a field below", by(ledger.Filter{Scopes: []string{"s"}, States: ready}, "template.a"),
		[]group{{Value: value(`[1,2]`), Left: 1}, {Left: 10}})
	equal(t, "by kind", by(ledger.Filter{}, "kind"), []group{{Value: value(`"j"`), Left: 1},
		{Value: value(`"k"`), Done: 1, Failed: 1, Doubt: 1, Left: 12, Cancelled: 1}})
	equal(t, "by scope", by(ledger.Filter{Kinds: []string{"k"}}, "scope"), []group{{Value: value(`""`), Left: 1},
		{Value: value(`"s"`), Done: 1, Failed: 1, Doubt: 1, Left: 11, Cancelled: 1}})
	equal(t, "by shard key", by(ledger.Filter{States: ready, ShardKeys: []string{"host", "j"}}, "shard_key"),
		[]group{{Value: value(`"host"`), Left: 1}, {Value: value(`"j"`), Left: 1}})
	equal(t, "none", len(by(ledger.Filter{Kinds: []string{"unknown"}}, "kind")), 0)
}

// sources: filters find items by their source, and Known by their identity.
func sources(t *testing.T, h *harness) {
	h.add(ledger.NewItem{Kind: "k", Key: "a", Source: "list, sample 1"},
		ledger.NewItem{Kind: "k", Key: "b", Source: "list, sample 2"}, ledger.NewItem{Kind: "k", Key: "c"},
		ledger.NewItem{Kind: "j", Key: "a", Source: "list, sample 1"},
		ledger.NewItem{Kind: "l", Key: "a", Source: "links:7"}, ledger.NewItem{Kind: "l", Key: "b", Source: "links:17"},
		ledger.NewItem{Kind: "l", Key: "c", Source: "links"}, ledger.NewItem{Kind: "l", Key: "d", Source: "links2"},
		ledger.NewItem{Kind: "l", Key: "e", Source: "links:x:1"})
	for _, c := range []struct {
		f    ledger.Filter
		want int64
	}{
		{ledger.Filter{Sources: []string{"list, sample 1"}}, 2},
		{ledger.Filter{Sources: []string{"list, sample 1"}, Kinds: []string{"k"}, Scopes: []string{""}}, 1},
		{ledger.Filter{Sources: []string{"list, sample 2", ""}}, 2}, {ledger.Filter{Sources: []string{"nowhere", "\xff"}}, 0},
		{ledger.Filter{Sources: []string{"links"}}, 3}, {ledger.Filter{Sources: []string{"links:7"}}, 1},
		{ledger.Filter{Sources: []string{"links:x", "links2"}}, 2},
	} {
		n, err := h.l.Count(h.ctx, c.f)
		h.ok(err)
		equal(t, fmt.Sprintf("%+v", c.f), n, c.want)
	}
	known, err := h.l.Known(h.ctx, ledger.Identity{Kind: "k", Key: "c"}, ledger.Identity{Kind: "j", Key: "c"},
		ledger.Identity{Kind: "k", Key: "x"}, ledger.Identity{Kind: "k", Key: "a"},
		ledger.Identity{Kind: "k", Key: "a\x00"}, ledger.Identity{Kind: "k", Scope: "s", Key: "a"},
		ledger.Identity{Kind: "k", Key: "\xff"}, ledger.Identity{Kind: "k", Key: "c"})
	h.ok(err)
	equal(t, "known", known, []bool{true, false, false, true, false, false, false, true})
	known, err = h.l.Known(h.ctx)
	h.ok(err)
	equal(t, "of none", len(known), 0)
}
