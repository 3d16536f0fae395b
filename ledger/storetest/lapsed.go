package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// lapsed: a program that did not take its heartbeat back is remembered for a day, and as long as it holds leases.
// Only the newest are kept.
func lapsed(t *testing.T, h *harness) {
	beat := func(name string, ttl time.Duration) {
		t.Helper()
		h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: name, Host: "host", Kinds: map[string]string{"k": ""}}, ttl))
	}
	names := func(what string, want ...string) {
		t.Helper()
		got := []string{}
		all, err := h.l.Lapsed(h.ctx)
		h.ok(err)
		for _, a := range all {
			got = append(got, a.Name)
		}
		equal(t, what, got, append([]string{}, want...))
	}
	beat("left", time.Minute)
	beat("killed", time.Minute)
	beat("holds", time.Minute)
	h.addMany(1)
	_, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "holds", Limit: 1, TTL: 24 * time.Hour})
	h.ok(err)
	beat("left", 0)
	names("all are alive")
	h.clock.advance(2 * time.Minute)
	beat("other", time.Minute)
	names("two are gone", "holds", "killed")
	all, err := h.l.Lapsed(h.ctx)
	h.ok(err)
	equal(t, "last seen", all[1].SeenAt, start)
	beat("killed", time.Minute) // it is back
	names("one is back", "holds")
	h.clock.advance(bounds.LapsedKept - time.Minute)
	beat("other", time.Hour)
	names("another one", "killed")
	held, err := h.l.Heartbeats(h.ctx)
	h.ok(err)
	equal(t, "heartbeats of those that live or hold", len(held), 2)
	for i := range bounds.LapsedMost + 3 {
		beat(fmt.Sprintf("short-%03d", i), time.Second)
		h.clock.advance(time.Millisecond)
	}
	h.clock.advance(time.Minute)
	beat("other", time.Hour)
	all, err = h.l.Lapsed(h.ctx)
	h.ok(err)
	equal(t, "kept", []string{fmt.Sprint(len(all)), all[0].Name}, []string{fmt.Sprint(bounds.LapsedMost), "short-003"})
}
