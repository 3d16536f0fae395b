package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// needs adds an item of kind "k" that needs resources, and returns its id.
func (h *harness) needs(key string, resources ...string) int64 {
	h.t.Helper()
	return h.add(ledger.NewItem{Kind: "k", Key: key, Resources: resources})[0].ID
}

func resourcesAreKept(t *testing.T, h *harness) {
	id := h.needs("1", "b", "a", "b", "é \"x\"")
	equal(t, "resources", h.item(id).Resources, []string{"a", "b", "é \"x\""})
	equal(t, "resources of a lease", h.take("k").Resources, []string{"a", "b", "é \"x\""})
	plain := h.one("plain")
	equal(t, "no resources", h.item(plain).Resources, nil)
	equal(t, "no resources of a lease", h.take("k").Resources, nil)
	long := strings.Repeat("x", bounds.MaxResource)
	many := make([]string, bounds.MaxResources)
	for i := range many {
		many[i] = fmt.Sprint(i) + long[5:]
	}
	h.needs("at the limit", append(many[1:], long)...)
	for name, bad := range map[string][]string{"empty": {"a", ""}, "long": {long + "x"}, "many": append(many, "y"),
		"NUL": {"a\x00"}, "no UTF-8": {"\xff"}} {
		_, err := h.l.Add(h.ctx, ledger.NewItem{Kind: "k", Key: "bad", Resources: bad})
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != "resources" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each end of a lease frees what it held, and nothing else does.
func resourcesAreFreed(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", Backoff: ledger.Backoff{Base: time.Hour, Cap: time.Hour}})
	finish := func(r ledger.Result) func(*ledger.Lease) { return func(ls *ledger.Lease) { h.end(ls, r) } }
	force := func(name string, act func(ledger.Filter) (int64, error)) func(*ledger.Lease) {
		return func(ls *ledger.Lease) {
			n, err := act(ledger.IDs(ls.ID))
			if h.ok(err); n != 1 {
				t.Fatalf("%s: %d", name, n)
			}
		}
	}
	release := force("release", func(f ledger.Filter) (int64, error) { return h.l.ForceRelease(h.ctx, "op", f) })
	cancel := force("cancel", func(f ledger.Filter) (int64, error) { return h.l.Cancel(h.ctx, "op", f) })
	for i, c := range []struct {
		name string
		end  func(*ledger.Lease)
	}{
		{"done", finish(ledger.Done(nil))},
		{"done by who does not know what it needs", func(ls *ledger.Lease) {
			unaware := *ls
			unaware.Resources = nil
			h.end(&unaware, ledger.Done(nil))
		}},
		{"done with output", finish(ledger.Done([]byte("{}")))},
		{"done with a child", finish(ledger.Done(nil, ledger.NewItem{Kind: "other", Key: "child"}))},
		{"skipped", finish(ledger.Skip("nothing"))},
		{"failed", finish(ledger.Fail(errTest))},
		{"permanent", finish(ledger.Permanent(errTest))},
		{"snoozed", finish(ledger.Snooze(time.Hour, ""))},
		{"doubt", finish(ledger.Doubt(errTest))},
		{"crashed", finish(ledger.Crashed("x"))},
		{"cancelled", func(ls *ledger.Lease) { cancel(ls); h.end(ls, ledger.Fail(errTest)) }},
		{"done though cancelled", func(ls *ledger.Lease) { cancel(ls); h.end(ls, ledger.Done(nil)) }},
		{"expired", func(*ledger.Lease) { h.pass(2 * time.Minute) }},
		{"released", func(ls *ledger.Lease) { h.end(ls, ledger.Release()); h.clock.advance(time.Second) }},
		{"released by force", release},
		{"of an older version", func(ls *ledger.Lease) {
			h.add(ledger.NewItem{Kind: "k", Key: ls.Key, Fingerprint: "2", Resources: []string{"z"}})
			h.pass(0)
			h.end(ls, ledger.Done(nil))
			h.clock.advance(time.Second) // its resources are not known any more
		}},
	} {
		resources := []string{fmt.Sprint("a", i), fmt.Sprint("b", i)}
		first := h.add(ledger.NewItem{Kind: "k", Key: "first " + c.name, Fingerprint: "1", Resources: resources})[0].ID
		ls := h.take("k")
		second := h.add(ledger.NewItem{Kind: "k", Key: "second " + c.name, Priority: -1, Resources: resources[1:]})[0].ID
		if ls.ID != first || len(h.claim("k", 10)) > 0 {
			t.Fatalf("%s: what another item holds was claimed", c.name)
		}
		h.ok(errors.Join(h.l.Renew(h.ctx, time.Minute, ls)...))
		h.ok(errors.Join(h.l.Start(h.ctx, time.Minute, ls)...))
		if got := h.claim("k", 10); len(got) > 0 {
			t.Fatalf("%s: claimed %v while it is renewed and started", c.name, keys(got))
		}
		c.end(ls)
		h.verify()
		next := h.soon("k", 1)
		if slices.Equal(next[0].Resources, []string{"z"}) { // the newer version, which needs nothing that was held
			h.end(next[0], ledger.Done(nil))
			next = h.soon("k", 1)
		}
		if next[0].ID != second {
			t.Fatalf("%s: then %v is claimed", c.name, keys(next))
		}
		h.end(next[0], ledger.Done(nil))
		for _, ls := range h.claim("k", 10) { // what became ready again
			h.end(ls, ledger.Done(nil))
		}
		if holds, err := h.l.Holds(h.ctx, append(resources, "z")...); err != nil || len(holds) > 0 {
			t.Fatalf("%s: %v are held in the end, %v", c.name, holds, err)
		}
	}
}

// soon claims, at once or when the ledger sweeps for items that were not woken.
func (h *harness) soon(kind string, n int) []*ledger.Lease {
	h.t.Helper()
	for range 5 { // a second, or more where that took long
		if ls := h.claim(kind, n); len(ls) > 0 {
			return ls
		}
		h.clock.advance(2 * time.Second)
	}
	h.t.Fatalf("nothing of %s is claimed", kind)
	return nil
}

func resourcesAllOrNone(t *testing.T, h *harness) {
	h.needs("1", "a")
	h.needs("2", "a", "b", "c")
	h.needs("3", "c")
	h.needs("4", "b", "d")
	h.one("5")
	h.needs("6", "c")
	h.add(ledger.NewItem{Kind: "other", Key: "7", Resources: []string{"d"}}, ledger.NewItem{Kind: "other", Key: "8",
		Resources: []string{"e"}})
	got := h.claim("k", 10)
	equal(t, "what goes together", keys(got), []string{"1", "3", "4", "5"})
	equal(t, "across kinds", keys(h.claim("other", 10)), []string{"8"})
	h.end(got[0], ledger.Done(nil))
	equal(t, "with some of its resources", len(h.claim("k", 10)), 0)
	h.end(got[2], ledger.Done(nil))
	equal(t, "with all but one", len(h.claim("k", 10)), 0)
	h.end(got[1], ledger.Done(nil))
	equal(t, "with all", keys(h.claim("k", 10)), []string{"2"})
}

// Items with and without resources are claimed in one order.
func resourcesInOrder(t *testing.T, h *harness) {
	h.add(ledger.NewItem{Kind: "k", Key: "1", Priority: 1}, ledger.NewItem{Kind: "k", Key: "2", Resources: []string{"a"}},
		ledger.NewItem{Kind: "k", Key: "3"}, ledger.NewItem{Kind: "k", Key: "4", Priority: -1, Resources: []string{"b"}},
		ledger.NewItem{Kind: "k", Key: "5", Resources: []string{"b"}}, ledger.NewItem{Kind: "k", Key: "6", Priority: 2,
			Resources: []string{"c"}},
		ledger.NewItem{Kind: "k", Key: "7", Due: start.Add(time.Hour), Resources: []string{"d"}})
	for _, want := range [][]string{{"4", "2"}, {"3", "1"}, {"6"}} {
		equal(t, "claimed", keys(h.claim("k", 2)), want)
	}
	equal(t, "the rest", len(h.claim("k", 2)), 0)
	h.pass(time.Hour) // all leases expired, too
	equal(t, "once more", keys(h.claim("k", 10)), []string{"4", "2", "3", "7", "1", "6"})
	st, err := h.l.Standing(h.ctx, "k")
	if h.ok(err); st.Ready != 1 {
		t.Errorf("%d are ready, one waits for a resource", st.Ready)
	}
	counts, err := h.l.Counts(h.ctx, start)
	if h.ok(err); counts[0].Ready != 1 || !counts[0].OldestReady.Equal(start) {
		t.Errorf("%+v", counts[0])
	}
}

func resourcesAlone(t *testing.T, h *harness) {
	h.needs("1", "a")
	for range 3 { // lost leases
		h.take("k")
		h.pass(2 * time.Minute)
	}
	h.needs("2", "b")
	h.one("3")
	if got := h.claim("k", 10); len(got) != 1 || got[0].Key != "1" || !got[0].Alone {
		t.Fatalf("claimed %v", keys(got))
	}
	equal(t, "then", keys(h.claim("k", 10)), []string{"2", "3"})
}

func resourcesChange(t *testing.T, h *harness) {
	add := func(fingerprint string, again bool, resources ...string) {
		t.Helper()
		h.add(ledger.NewItem{Kind: "k", Key: "1", Fingerprint: fingerprint, Resources: resources,
			Again: ledger.Again{Cancelled: again}})
	}
	add("1", false)
	id := h.add(ledger.NewItem{Kind: "k", Key: "1"})[0].ID
	add("1", false, "a")
	equal(t, "the same version", h.item(id).Resources, nil)
	add("2", false, "a")
	equal(t, "another version", h.item(id).Resources, []string{"a"})
	ls := h.take("k")
	add("3", false, "b", "c")
	h.needs("of a", "a")
	h.needs("of b", "b")
	equal(t, "while it is leased it has those of before", keys(h.claim("k", 10)), []string{"of b"})
	h.end(ls, ledger.Done(nil))
	equal(t, "its resources are free", keys(h.soon("k", 10)), []string{"of a"})
	equal(t, "the next round needs others", h.item(id).Resources, []string{"b", "c"})
	h.state(id, ledger.StateReady)
	add("4", false)
	equal(t, "none are given", h.item(id).Resources, []string{"b", "c"})
	add("5", false, "d")
	equal(t, "what waited for a resource needs another", keys(h.claim("k", 10)), []string{"1"})
}

// wanting is a ledger in which single items come for a and b all the time: one of each is leased,
// and "both" needs the two.
func wanting(h *harness) (both int64, leases []*ledger.Lease) {
	h.t.Helper()
	h.needs("a0", "a")
	h.needs("b0", "b")
	leases = h.claim("k", 10)
	both = h.needs("both", "b", "a")
	equal(h.t, "what is held", len(h.claim("k", 10)), 0)
	for i := range 20 {
		h.needs(fmt.Sprint("a", i+1), "a")
		h.needs(fmt.Sprint("b", i+1), "b")
	}
	return both, leases
}

// An item that needs several resources is not overtaken for ever, wherever it stands in the order.
func reserverIsServed(t *testing.T, h *harness) {
	both, leases := wanting(h)
	h.add(ledger.NewItem{Kind: "k", Key: "urgent", Priority: -2, Resources: []string{"a"}})
	turns := 0
	for ; turns < 10 && h.item(both).State == ledger.StateReady; turns++ {
		h.clock.advance(time.Second)
		h.end(leases[turns%2], ledger.Done(nil))
		if got := h.claim("k", 10); len(got) > 0 {
			leases[turns%2] = got[0]
		}
	}
	if h.state(both, ledger.StateLeased); turns > 4 {
		t.Errorf("leased after %d turns", turns)
	}
	h.end(leases[(turns+1)%2], ledger.Done(nil))
	equal(t, "then the others go on", len(h.soon("k", 10)), 2)
}

// reserved is wanting, with resources reserved for "both", of which a is free.
func reserved(h *harness) (both int64, b *ledger.Lease) {
	h.t.Helper()
	both, leases := wanting(h)
	h.clock.advance(time.Second)
	equal(h.t, "all is held", len(h.claim("k", 10)), 0)
	h.end(leases[0], ledger.Done(nil))
	equal(h.t, "a is kept free", len(h.claim("k", 10)), 0)
	holds, err := h.l.Holds(h.ctx, "b", "a", "c")
	if h.ok(err); len(holds) != 2 || holds[0].ItemID != both || holds[0].Agent != "" || holds[1].ItemID != leases[1].ID ||
		holds[1].Agent != "a" {
		h.t.Fatalf("holds: %+v", holds)
	}
	return both, leases[1]
}

func reserverIsExplained(t *testing.T, h *harness) {
	both, b := reserved(h)
	for id, want := range map[int64]string{
		both:       fmt.Sprintf("It waits for resource b, held by item %d (a).", b.ID),
		h.id("b1"): fmt.Sprintf("It waits for resource b, held by item %d (a).", b.ID),
		h.id("a10"): fmt.Sprintf("It waits for resource a, which is kept free for item %d: that one needs several and has "+
			"waited longest.", both),
	} {
		why, err := h.l.Why(h.ctx, id)
		if h.ok(err); why.Code != "resource" || why.Text != want {
			t.Errorf("%s: %s", why.Code, why.Text)
		}
	}
}

func (h *harness) id(key string) int64 {
	h.t.Helper()
	it, err := h.l.Find(h.ctx, "k", "", key)
	h.ok(err)
	return it.ID
}

// A reservation ends with its item, with its kind, and with those who could claim it.
func reserverVanishes(t *testing.T, h *harness) {
	both, _ := reserved(h)
	n, err := h.l.Cancel(h.ctx, "op", ledger.IDs(both))
	if h.ok(err); n != 1 {
		t.Fatal(n)
	}
	equal(t, "a is free", keys(h.claim("k", 10)), []string{"a1"})
}

func reserverIsPaused(t *testing.T, h *harness) {
	reserved(h)
	h.add(ledger.NewItem{Kind: "other", Key: "1", Resources: []string{"a"}})
	equal(t, "reserved across kinds", len(h.claim("other", 10)), 0)
	h.policy(ledger.Kind{Name: "k", Paused: true})
	equal(t, "of a paused kind", len(h.soon("other", 10)), 1)
}

func reserverIsForgotten(t *testing.T, h *harness) {
	reserved(h)
	h.add(ledger.NewItem{Kind: "other", Key: "1", Resources: []string{"a"}})
	h.clock.advance(50 * time.Second)
	equal(t, "somebody still asks for it", len(h.claim("k", 10)), 0)
	h.clock.advance(50 * time.Second)
	equal(t, "reserved across kinds", len(h.claim("other", 10)), 0)
	h.clock.advance(time.Minute)
	equal(t, "there is no reserver", len(h.soon("other", 10)), 1)
}

// Of several that need several each has its turn, those first who were passed over first; and kinds
// take turns.
func reserversTakeTurns(t *testing.T, h *harness) {
	h.needs("x", "a", "b", "c")
	ls := h.take("k")
	var want []string
	for i := range 6 {
		key := fmt.Sprint("set ", i)
		h.add(ledger.NewItem{Kind: []string{"k", "other"}[i/3], Key: key, Priority: int16(2 - i%3),
			Resources: []string{"a", "b", "c"}})
		equal(t, "while all is held", len(h.claim("k", 10))+len(h.claim("other", 10)), 0)
		want = append(want, key)
		h.clock.advance(time.Second)
	}
	h.clock.advance(time.Second)
	var got []string
	for range want {
		h.claim("k", 10) // appoints
		h.claim("other", 10)
		h.end(ls, ledger.Done(nil))
		first := h.claim("k", 10)
		if len(first) == 0 {
			first = h.soon("other", 10)
		}
		ls = first[0]
		got = append(got, ls.Key)
		h.clock.advance(time.Second / 2)
	}
	slices.Sort(want)
	for _, kind := range []int{0, 3} { // of one kind in the order in which they were passed over
		if slices.Index(got, want[kind]) > slices.Index(got, want[kind+1]) ||
			slices.Index(got, want[kind+1]) > slices.Index(got, want[kind+2]) {
			t.Errorf("in the order %q", got)
		}
	}
	if slices.Index(got, "set 3") > 2 {
		t.Errorf("the other kind has no turn: %q", got)
	}
}
