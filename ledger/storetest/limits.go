package storetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

var limitCases = []storeCase{
	{"LimitsRunning", limitsRunning},
	{"LimitsAreFreed", limitsAreFreed},
	{"LimitsPerShardKey", limitsPerShardKey},
	{"LimitsTakeTurns", limitsTakeTurns},
	{"LimitsRate", limitsRate},
	{"LimitsRateGoesOn", limitsRateGoesOn},
	{"LimitsRatePerShardKey", limitsRatePerShardKey},
	{"LimitsComeAndGo", limitsComeAndGo},
	{"LimitsClockBack", limitsClockBack},
	{"LimitsAreChecked", limitsAreChecked},
	{"LimitsNamed", limitsNamed},
	{"LimitsClaimAlone", limitsClaimAlone},
	{"LimitsResume", limitsResume},
	{"LimitsAreExplained", limitsAreExplained},
}

// limit gives kind "k" limits.
func (h *harness) limit(l scheduler.Limits) {
	h.t.Helper()
	h.policy(ledger.Kind{Name: "k", MaxLost: 1000, MaxCrashes: 1000,
		Backoff: ledger.Backoff{Base: time.Hour, Cap: time.Hour}, Limits: l})
}

// of adds n items of kind "k" with a shard key. Their keys are the shard key and a number.
func (h *harness) of(shardKey string, n int) {
	h.t.Helper()
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprintf("%s%d", shardKey, i+1), ShardKey: shardKey}
	}
	h.add(items...)
}

// within claims and checks the claimed keys or, if there are none, what is held back.
func (h *harness) within(n int, want string, held scheduler.HeldBack) []*ledger.Lease {
	h.t.Helper()
	ls, got, err := h.l.ClaimWithin(h.ctx, ledger.Claim{Kind: "k", Agent: "a", Limit: n})
	h.ok(err)
	equal(h.t, "claimed", strings.Join(keys(ls), " "), want)
	if want == "" {
		equal(h.t, "held back", got, held)
	}
	return ls
}

var none, full = scheduler.HeldBack{}, scheduler.HeldBack{Full: true}

func limitsRunning(t *testing.T, h *harness) {
	h.limit(scheduler.Limits{MaxRunning: 3})
	h.of("x", 9)
	first := h.within(2, "x1 x2", none)
	h.within(10, "x3", none)
	h.within(10, "", full)
	h.end(first[0], ledger.Done(nil))
	h.within(10, "x4", none)
	h.add(ledger.NewItem{Kind: "k", Key: "urgent", Priority: -1})
	h.end(first[1], ledger.Done([]byte("{}")))
	h.within(10, "urgent", none)
	h.within(10, "", full)
	h.limit(scheduler.Limits{MaxRunning: 5})
	h.within(1, "x5", none)
	h.within(9, "x6", none)
	h.limit(scheduler.Limits{MaxRunning: 1}) // running items go on
	h.within(9, "", full)
	h.limit(scheduler.Limits{})
	h.within(9, "x7 x8 x9", none)
	h.within(9, "", none)
	h.limit(scheduler.Limits{MaxRunning: 3})
	h.within(9, "", none) // nothing is ready
}

// Every way to end a lease makes room for the next item.
func limitsAreFreed(t *testing.T, h *harness) {
	finish := func(r ledger.Result) func(*ledger.Lease) { return func(ls *ledger.Lease) { h.end(ls, r) } }
	for i, c := range []struct {
		name string
		end  func(*ledger.Lease)
	}{
		{"done", finish(ledger.Done(nil))},
		{"done with a child", finish(ledger.Done(nil, ledger.NewItem{Kind: "other", Key: "child"}))},
		{"skipped", finish(ledger.Skip("nothing"))},
		{"failed", finish(ledger.Fail(errTest))},
		{"permanent", finish(ledger.Permanent(errTest))},
		{"snoozed", finish(ledger.Snooze(time.Hour, ""))},
		{"doubt", finish(ledger.Doubt(errTest))},
		{"crashed", finish(ledger.Crashed("x"))},
		{"released", finish(ledger.Release())},
		{"expired", func(*ledger.Lease) { h.pass(2 * time.Minute) }},
		{"released by force", func(ls *ledger.Lease) {
			_, err := h.l.ForceRelease(h.ctx, "op", ledger.IDs(ls.ID))
			h.ok(err)
		}},
		{"cancelled", func(ls *ledger.Lease) {
			_, err := h.l.Cancel(h.ctx, "op", ledger.IDs(ls.ID))
			h.ok(err)
			h.within(10, "", full)
			h.end(ls, ledger.Fail(errTest))
		}},
		{"of an older version", func(ls *ledger.Lease) {
			h.add(ledger.NewItem{Kind: "k", Key: ls.Key, Fingerprint: "2"})
			h.within(10, "", full)
			h.end(ls, ledger.Done(nil))
		}},
	} {
		for _, limits := range []scheduler.Limits{{MaxRunning: 1}, {MaxRunningPerShardKey: 1}} {
			h.limit(limits)
			key := fmt.Sprint(c.name, i, limits.MaxRunning)
			h.add(ledger.NewItem{Kind: "k", Key: key + " first", ShardKey: "s", Fingerprint: "1"})
			ls := h.claimOne("k")
			h.add(ledger.NewItem{Kind: "k", Key: key + " second", ShardKey: "s", Priority: -2})
			h.within(10, "", full)
			h.ok(errors.Join(h.extend(ls)...))
			h.ok(errors.Join(h.l.Start(h.ctx, time.Minute, ls)...))
			h.within(10, "", full)
			c.end(ls)
			h.verify()
			h.end(h.within(10, key+" second", none)[0], ledger.Done(nil))
			_, err := h.l.Cancel(h.ctx, "op", ledger.Filter{Kinds: []string{"k"}, States: []ledger.State{ledger.StateReady,
				ledger.StateWaiting, ledger.StateDead, ledger.StateDoubt}})
			h.ok(err)
		}
	}
}

func limitsPerShardKey(t *testing.T, h *harness) {
	h.limit(scheduler.Limits{MaxRunningPerShardKey: 2})
	h.of("b", 4)
	h.of("a", 4)
	h.add(ledger.NewItem{Kind: "k", Key: "c"}, ledger.NewItem{Kind: "k", Key: "a0", ShardKey: "a", Priority: -1},
		ledger.NewItem{Kind: "k", Key: "é", Priority: 2})
	ls := h.within(10, "a0 b1 b2 a1 c é", none)
	h.within(10, "", full)
	h.end(ls[2], ledger.Done(nil)) // b2
	h.within(10, "b3", none)
	h.end(ls[0], ledger.Done(nil)) // a0
	h.end(ls[3], ledger.Done(nil)) // a1
	h.add(ledger.NewItem{Kind: "k", Key: "a9", ShardKey: "a", Priority: -2})
	h.within(10, "a9 a2", none)
	h.limit(scheduler.Limits{MaxRunningPerShardKey: 2, MaxRunning: 7}) // 6 are leased
	h.of("d", 3)
	h.within(10, "d1", none)
	h.within(10, "", full)
}

// Shard keys are served in rotation, so that no key waits for ever.
func limitsTakeTurns(t *testing.T, h *harness) {
	h.limit(scheduler.Limits{MaxRunningPerShardKey: 100})
	for _, key := range []string{"a", "b", "c"} {
		h.of(key, 4)
	}
	for _, want := range []string{"a1", "b1", "c1", "a2", "b2"} {
		h.within(1, want, none)
	}
	h.within(4, "a3 c2 c3 c4", none)
	h.within(3, "a4 b3 b4", none)
	// Each shard of workers rotates by itself and sees only its own keys.
	h.limit(scheduler.Limits{MaxRunningPerShardKey: 1})
	for i := range 8 {
		h.of(fmt.Sprint("s", i), 2)
	}
	seen := 0
	for part := range 2 {
		shard := scheduler.Shard{Index: part, Count: 2}
		ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: "b", Limit: 100, Shard: shard})
		h.ok(err)
		for _, ls := range ls {
			if seen++; ls.Slot%2 != part {
				t.Errorf("shard %d got %s, slot %d", part, ls.Key, ls.Slot)
			}
		}
	}
	equal(t, "of eight keys", seen, 8)
}

func limitsRate(t *testing.T, h *harness) {
	h.limit(scheduler.Limits{Rate: scheduler.Rate{Count: 2, Per: time.Second}})
	h.of("x", 9)
	held := func(d time.Duration) scheduler.HeldBack { return scheduler.HeldBack{Wait: d} }
	h.within(10, "x1", none)
	h.within(10, "", held(500*time.Millisecond))
	h.clock.advance(499 * time.Millisecond)
	h.within(10, "", held(time.Millisecond))
	h.clock.advance(time.Millisecond)
	ls := h.within(10, "x2", none)
	h.end(ls[0], ledger.Release()) // a release does not refund the rate
	h.within(10, "", held(500*time.Millisecond))
	h.clock.advance(time.Hour)
	h.within(10, "x2", none)
	h.limit(scheduler.Limits{Rate: scheduler.Rate{Count: 2, Per: time.Second}, Burst: 3})
	h.clock.advance(time.Hour)
	h.within(2, "x3 x4", none)
	h.within(2, "x5", none)
	h.within(2, "", held(500*time.Millisecond))
	h.clock.advance(time.Second)
	h.within(9, "x6 x7", none)
	h.limit(scheduler.Limits{Rate: scheduler.Rate{Count: 1, Per: time.Hour}, MaxRunning: 1})
	h.within(9, "", full)
	h.limit(scheduler.Limits{})
	h.within(1, "x8", none)
}

// A rate continues after one interval, whatever the rate was before and however the clock was set back.
func limitsRateGoesOn(t *testing.T, h *harness) {
	day, second := scheduler.Rate{Count: 1, Per: 24 * time.Hour}, scheduler.Rate{Count: 1, Per: time.Second}
	for i, limits := range []func(r scheduler.Rate, burst int) scheduler.Limits{
		func(r scheduler.Rate, burst int) scheduler.Limits { return scheduler.Limits{Rate: r, Burst: burst} },
		func(r scheduler.Rate, burst int) scheduler.Limits {
			return scheduler.Limits{RatePerShardKey: r, Burst: burst}
		},
	} {
		x, n := string("xy"[i]), 0
		next := func() { // exactly one second later
			t.Helper()
			n++
			h.within(9, "", scheduler.HeldBack{Wait: time.Second})
			h.clock.advance(time.Second - time.Microsecond)
			h.within(9, "", scheduler.HeldBack{Wait: time.Microsecond})
			h.clock.advance(time.Microsecond)
			h.within(9, fmt.Sprint(x, n), none)
		}
		h.limit(limits(day, 0))
		h.of(x, 9)
		n++
		h.within(9, x+"1", none)
		h.limit(limits(second, 0)) // faster
		next()
		h.clock.advance(-time.Hour)
		next()
		next()
		h.limit(limits(second, 3))
		h.clock.advance(time.Hour)
		n += 3
		h.within(9, fmt.Sprintf("%[1]s5 %[1]s6 %[1]s7", x), none)
		h.limit(limits(second, 0)) // a lower burst
		next()
		next()
		h.limit(scheduler.Limits{})
	}
}

func limitsRatePerShardKey(t *testing.T, h *harness) {
	h.limit(scheduler.Limits{RatePerShardKey: scheduler.Rate{Count: 1, Per: time.Second}, Burst: 2,
		Rate: scheduler.Rate{Count: 100, Per: 10 * time.Second}})
	h.of("a", 9)
	h.of("b", 1)
	h.within(1, "a1", none)
	h.clock.advance(time.Second / 2)
	h.within(9, "a2 b1", none)
	h.clock.advance(time.Second / 4)
	h.within(9, "", scheduler.HeldBack{Wait: time.Second / 4})
	h.clock.advance(time.Second / 4)
	h.within(9, "a3", none)
	h.of("c", 9)
	h.clock.advance(time.Second / 4)
	h.within(9, "c1 c2", none)
	h.clock.advance(time.Hour)
	h.within(9, "a4 a5", none)
	h.within(9, "", scheduler.HeldBack{Wait: time.Second / 10})
}

// A new limit counts the items that are leased already. A removed limit frees the items that it held back.
func limitsComeAndGo(t *testing.T, h *harness) {
	const n = 2500 // more than one transaction files
	items := make([]ledger.NewItem, n)
	for i := range items {
		items[i] = ledger.NewItem{Kind: "k", Key: fmt.Sprintf("%05d", i), ShardKey: fmt.Sprint(i % 5)}
	}
	h.add(items...)
	equal(t, "before", len(h.claim("k", 20)), 20)
	perKey := map[string]int{}
	count := func(ls []*ledger.Lease) int {
		for _, ls := range ls {
			perKey[ls.ShardKey]++
		}
		return len(ls)
	}
	h.limit(scheduler.Limits{MaxRunningPerShardKey: 6})
	equal(t, "4 of each key are leased", count(h.claim("k", 1000)), 10)
	equal(t, "each key", perKey, map[string]int{"0": 2, "1": 2, "2": 2, "3": 2, "4": 2})
	h.limit(scheduler.Limits{MaxRunning: 40})
	equal(t, "30 are leased", len(h.claim("k", 1000)), 10)
	h.limit(scheduler.Limits{MaxRunning: 45, MaxRunningPerShardKey: 100})
	equal(t, "40 are leased", len(h.claim("k", 1000)), 5)
	h.limit(scheduler.Limits{Rate: scheduler.Rate{Count: 1, Per: time.Second}, Burst: 7})
	equal(t, "at once", len(h.claim("k", 1000)), 7)
	counts, err := h.l.Counts(h.ctx, start)
	h.ok(err)
	i := slices.IndexFunc(counts, func(c stats.Counts) bool { return c.Kind == "k" })
	equal(t, "leased and ready", [2]int64{counts[i].Leased, counts[i].Ready}, [2]int64{52, n - 52})
	st, err := h.l.Standing(h.ctx, "k")
	h.ok(err)
	equal(t, "standing", st.Ready, n-52)
	h.limit(scheduler.Limits{})
	equal(t, "free", len(h.claim("k", 1000)), 1000)
	h.clock.advance(2 * time.Second)
	left := 0
	for range 5 {
		left += len(h.claim("k", 1000))
	}
	equal(t, "the rest", left, n-1052)
	h.within(9, "", none)
	h.limit(scheduler.Limits{MaxRunningPerShardKey: 1}) // at once
	h.of("again", 2)
	h.within(9, "again1", none)
}

// limitsClockBack: more may be leased than a new limit allows, also after the clock was set back.
func limitsClockBack(t *testing.T, h *harness) {
	h.addMany(3)
	ls := h.claim("k", 2)
	h.clock.advance(-time.Hour)
	h.limit(scheduler.Limits{MaxRunning: 1})
	h.verify()
	h.end(ls[0], ledger.Done(nil))
	equal(t, "claimed", len(h.claim("k", 1)), 0)
	h.end(ls[1], ledger.Done(nil))
	equal(t, "claimed", len(h.claim("k", 1)), 1)
}

func limitsAreChecked(t *testing.T, h *harness) {
	second := scheduler.Rate{Count: 1, Per: time.Second}
	for field, bad := range map[string]scheduler.Limits{
		"max_running":               {MaxRunning: -1},
		"max_running_per_shard_key": {MaxRunningPerShardKey: 100_001},
		"rate":                      {Rate: scheduler.Rate{Count: 1}},
		"rate_per_shard_key":        {RatePerShardKey: scheduler.Rate{Count: -1, Per: time.Second}},
		"burst":                     {Burst: 2},
	} {
		err := h.l.SetKind(h.ctx, "op", ledger.Kind{Name: "k", Limits: bad})
		var invalid *ledger.InvalidError
		if !errors.As(err, &invalid) || invalid.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for _, bad := range []scheduler.Limits{
		{Rate: scheduler.Rate{Count: 1, Per: 367 * 24 * time.Hour}}, {Rate: scheduler.Rate{Count: 1, Per: time.Microsecond}},
		{Rate: scheduler.Rate{Count: 1_000_001, Per: time.Second}}, {MaxRunning: 1, Burst: 1}, {Rate: second, Burst: -1},
		{Rate: scheduler.Rate{Count: 1, Per: 24 * time.Hour}, Burst: 100_000},
	} {
		h.is(h.l.SetKind(h.ctx, "op", ledger.Kind{Name: "k", Limits: bad}), ledger.ErrInvalid)
	}
	want := scheduler.Limits{MaxRunning: 100_000, MaxRunningPerShardKey: 1, RatePerShardKey: second, Burst: 100_000,
		Rate: scheduler.Rate{Count: 1_000_000, Per: 366 * 24 * time.Hour}}
	h.limit(want)
	k, err := h.l.Kind(h.ctx, "k")
	h.ok(err)
	equal(t, "limits", k.Limits, want)
	equal(t, "as text", want.String(), "max_running 100000, max_running_per_shard_key 1, burst 100000, rate "+
		"1000000/366d, rate_per_shard_key 1/s")
}

func limitsClaimAlone(t *testing.T, h *harness) {
	h.limit(scheduler.Limits{MaxRunningPerShardKey: 2})
	h.of("b", 1)
	for range 2 { // after two crashes it is claimed alone
		h.end(h.claimOne("k"), ledger.Crashed("x"))
		h.pass(2 * time.Hour)
	}
	h.of("a", 3)
	h.of("c", 1)
	h.within(9, "a1 a2 c1", none) // b was served last
	if ls := h.within(9, "b1", none); !ls[0].Alone {
		t.Error("it is not alone")
	}
	h.within(9, "", full)
}

// A resumed claim returns what the agent holds, and no more than the limit in all.
func limitsResume(t *testing.T, h *harness) {
	h.limit(scheduler.Limits{MaxRunning: 3})
	h.of("x", 9)
	resume := func(agent string, n, want int) {
		t.Helper()
		ls, err := h.l.Claim(h.ctx, ledger.Claim{Kind: "k", Agent: agent, Limit: n, Resume: true})
		h.ok(err)
		equal(t, "leases of "+agent, len(ls), want)
	}
	resume("ann", 2, 2)
	resume("ann", 2, 2)
	resume("bob", 5, 1)
	resume("ann", 5, 2)
	resume("cay", 5, 0)
	h.policy(ledger.Kind{Name: "k", Paused: true, Limits: scheduler.Limits{MaxRunning: 9}})
	resume("ann", 5, 2)
	resume("cay", 5, 0)
}

func limitsAreExplained(t *testing.T, h *harness) {
	h.limit(scheduler.Limits{MaxRunning: 3, MaxRunningPerShardKey: 2})
	h.of("a", 4)
	h.of("b", 4)
	h.ok(h.l.Beat(h.ctx, ledger.Agent{Name: "w", Kinds: map[string]string{"k": ""}}, time.Hour))
	why := func(key, code, text string) {
		t.Helper()
		found, err := h.l.Find(h.ctx, "k", "", key)
		h.ok(err)
		w, err := h.l.Why(h.ctx, found.ID)
		h.ok(err)
		if w.Code != code || !strings.Contains(w.Text, text) {
			t.Errorf("%s: %s: %s", key, w.Code, w.Text)
		}
	}
	why("a1", "behind", "the next of its kind")
	why("a3", "behind", "behind 2 others")
	h.within(2, "a1 a2", none)
	why("a3", "max_running", "2 items of kind k are leased for its shard key a and no more than 2 may be")
	why("b2", "behind", "behind 1 other")
	h.within(9, "b1", none)
	why("b2", "max_running", "3 items of kind k are leased and no more than 3 may be")
	h.limit(scheduler.Limits{Rate: scheduler.Rate{Count: 1, Per: time.Minute}})
	h.within(9, "a3", none)
	why("b2", "rate", "the rate of kind k is 1/m")
	h.limit(scheduler.Limits{RatePerShardKey: scheduler.Rate{Count: 1, Per: time.Minute}})
	h.clock.advance(time.Minute)
	h.within(9, "a4 b2", none)
	why("b3", "rate", "the rate of kind k for its shard key b is 1/m; the next one may begin at "+
		h.clock.now().Add(time.Minute).UTC().Format("2006-01-02 15:04:05.000 MST"))
	// Items that the earlier limits filed keep their places.
	h.limit(scheduler.Limits{MaxRunning: 99})
	why("b4", "behind", "behind 1 other")
	h.limit(scheduler.Limits{})
	why("b4", "behind", "behind 1 other")
}
