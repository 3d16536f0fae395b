package storetest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

func retryAndReopen(t *testing.T, h *harness) {
	a := h.addMany(4)
	ls := h.claim("k", 4)
	h.end(ls[0], ledger.Permanent(errTest))
	h.end(ls[1], ledger.RetryAfter(time.Hour, errTest))
	h.end(ls[2], ledger.Done([]byte("x")))
	all := ledger.Filter{Kinds: []string{"k"}}
	n, err := h.l.Retry(h.ctx, "ann", all)
	h.ok(err)
	equal(t, "retried", n, 2)
	for i, want := range []ledger.State{ledger.StateReady, ledger.StateReady, ledger.StateDone, ledger.StateLeased} {
		if it := h.wantState(a[i].ID, want); it.Failures != 0 || it.Round != "1" {
			t.Fatalf("%+v", it)
		}
	}
	n, err = h.l.Retry(h.ctx, "ann", all)
	h.ok(err)
	equal(t, "again", n, 0)
	n, err = h.l.Reopen(h.ctx, "ann", all)
	h.ok(err)
	equal(t, "reopened", n, 1)
	if it := h.wantState(a[2].ID, ledger.StateReady); it.Round != "2" {
		t.Fatalf("%+v", it)
	}
	equal(t, "claimable", len(h.claim("k", 10)), 3)
}

// retryFirst: items that are opened again with a priority precede all others, and the caller gets their ids.
func retryFirst(t *testing.T, h *harness) {
	a := h.addMany(2)
	ls := h.claim("k", 2)
	h.end(ls[0], ledger.Permanent(errTest))
	h.end(ls[1], ledger.Done(nil))
	h.add(ledger.NewItem{Kind: "k", Key: "urgent", Priority: -1})
	var told []int64
	tell := ledger.OnChanged(func(ids []int64) { told = append(told, ids...) })
	_, err := h.l.Retry(h.ctx, "ann", ledger.IDs(a[0].ID), ledger.WithPriority(bounds.MinPriority-1))
	h.is(err, ledger.ErrInvalid)
	_, err = h.l.Retry(h.ctx, "ann", ledger.Filter{Kinds: []string{"k"}}, ledger.WithPriority(bounds.MinPriority), tell)
	h.ok(err)
	_, err = h.l.Reopen(h.ctx, "ann", ledger.Filter{Kinds: []string{"k"}}, ledger.WithPriority(bounds.MaxPriority), tell)
	h.ok(err)
	equal(t, "told", fmt.Sprint(told), fmt.Sprint([]int64{a[0].ID, a[1].ID}))
	var order []string
	for _, l := range h.claim("k", 3) {
		order = append(order, l.Key)
	}
	equal(t, "order", strings.Join(order, " "), "key-00000 urgent key-00001")
}

// place: Place changes the priority of ready and waiting items, but not their due time. Failed, leased and ended
// items stay as they are.
func place(t *testing.T, h *harness) {
	a := h.addMany(4)
	ls := h.claim("k", 3)
	h.end(ls[0], ledger.RetryAfter(time.Hour, errTest))
	h.end(ls[1], ledger.Done(nil))
	later := h.add(ledger.NewItem{Kind: "k", Key: "later", Due: time.Now().Add(time.Hour)})[0].ID
	h.addOne("other")
	due := h.wantState(later, ledger.StateWaiting).Due
	_, err := h.l.Place(h.ctx, "ann", ledger.Filter{}, bounds.MaxPriority+1)
	h.is(err, ledger.ErrInvalid)
	var told []int64
	n, err := h.l.Place(h.ctx, "ann", ledger.IDs(a[0].ID, a[1].ID, a[2].ID, a[3].ID, later), bounds.MinPriority,
		ledger.OnChanged(func(ids []int64) { told = append(told, ids...) }))
	h.ok(err)
	equal(t, "placed", n, 2)
	equal(t, "told", fmt.Sprint(told), fmt.Sprint([]int64{a[3].ID, later}))
	it := h.wantState(later, ledger.StateWaiting)
	equal(t, "priority", it.Priority, int16(bounds.MinPriority))
	equal(t, "due", it.Due, due)
	equal(t, "failed", h.wantState(a[0].ID, ledger.StateWaiting).Priority, int16(0))
	equal(t, "held", h.wantState(a[2].ID, ledger.StateLeased).Priority, int16(0))
	equal(t, "first", h.claimOne("k").ID, a[3].ID)
}

func forceRelease(t *testing.T, h *harness) {
	id := h.addOne("x")
	ls := h.claimOne("k")
	n, err := h.l.ForceRelease(h.ctx, "ann", ledger.Filter{Agents: []string{"a"}})
	h.ok(err)
	equal(t, "released", n, 1)
	h.wantState(id, ledger.StateReady)
	h.is(h.finish(ls, ledger.Done(nil)), ledger.ErrLeaseLost)
	next := h.claimOne("k")
	h.is(h.finish(ls, ledger.Done(nil)), ledger.ErrLeaseLost)
	h.end(next, ledger.Done(nil))
	// ForceRelease does not repeat work that may have taken effect: the item is in doubt.
	mails := h.mails(2)
	h.start(mails[0])
	n, err = h.l.ForceRelease(h.ctx, "ann", ledger.Filter{Agents: []string{"a"}})
	h.ok(err)
	equal(t, "released", n, 2)
	h.wantState(mails[0].ID, ledger.StateDoubt)
	h.wantState(mails[1].ID, ledger.StateReady)
	h.end(mails[0], ledger.Done(nil))
	h.wantState(mails[0].ID, ledger.StateDone)
}

// actsAreChecked: an invalid actor or argument is refused before anything changes.
func actsAreChecked(t *testing.T, h *harness) {
	id := h.addOne("x")
	for _, actor := range []string{"", "a\x00b", strings.Repeat("x", bounds.MaxAgent+1)} {
		_, err := h.l.Cancel(h.ctx, actor, ledger.IDs(id))
		h.is(err, ledger.ErrInvalid)
	}
	none, err := h.l.Cancel(h.ctx, "ann", ledger.IDs())
	h.ok(err)
	equal(t, "cancelled of no ids", none, 0)
	_, err = h.l.Find(h.ctx, "k", "", "")
	h.is(err, ledger.ErrNotFound)
	_, err = h.l.Expire(h.ctx, -1)
	h.is(err, ledger.ErrInvalid)
	_, err = h.l.Promote(h.ctx, 0)
	h.is(err, ledger.ErrInvalid)
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	h.is(h.l.Decide(h.ctx, id, "ann", ledger.Done(nil, ledger.NewItem{Kind: "k", Key: "y"})), ledger.ErrInvalid)
	h.is(h.l.Beat(h.ctx, ledger.Agent{Name: "a", Host: "\x00"}, time.Minute), ledger.ErrInvalid)
	far := time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -12*60*60)) // the year 10000 in UTC
	h.is(h.l.Beat(h.ctx, ledger.Agent{Name: "a", Stalled: map[string]time.Time{"k": far}}, time.Minute), ledger.ErrInvalid)
	h.is(h.l.SetKind(h.ctx, "test", ledger.Kind{Name: "k", Backoff: ledger.Backoff{Base: 500}}), ledger.ErrInvalid)
	h.is(h.l.SetKind(h.ctx, "test",
		ledger.Kind{Name: "k", Backoff: ledger.Backoff{Base: time.Minute, Cap: time.Second}}), ledger.ErrInvalid)
	h.is(h.l.SetKind(h.ctx, "test",
		ledger.Kind{Name: "k", Input: ledger.Input{Match: []string{strings.Repeat("\"", 3000)}}}), ledger.ErrInvalid)
}

func forgetScope(t *testing.T, h *harness) {
	add := func(key string) int64 { return h.add(ledger.NewItem{Kind: "k", Scope: "push", Key: key})[0].ID }
	first, second := add("1"), add("2")
	keep := h.addOne("1")
	h.end(h.claimOne("k"), ledger.Done(nil))
	n, left, err := h.l.Forget(h.ctx, "ann", ledger.Filter{Scopes: []string{"push"}})
	h.ok(err)
	equal(t, "forgotten and left", [2]int64{n, left}, [2]int64{1, 1})
	_, err = h.l.Get(h.ctx, first)
	h.is(err, ledger.ErrNotFound)
	h.wantState(second, ledger.StateReady)
	h.wantState(keep, ledger.StateReady)
	if again := add("1"); again == first {
		t.Fatalf("id %d was used again", again)
	}
}

// pruneClockBack: items that end while the clock is behind are pruned, too. Prune must not look only after the place
// where it stopped.
func pruneClockBack(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", Keep: time.Minute})
	h.clock.advance(time.Hour)
	prune := func() int {
		n, err := h.l.Prune(h.ctx, 100)
		h.ok(err)
		return n
	}
	equal(t, "pruned of nothing", prune(), 0)
	h.clock.advance(-30 * time.Minute)
	h.add(ledger.NewItem{Kind: "k", Key: "x", Payload: []byte("p")})
	h.end(h.claimOne("k"), ledger.Done(nil))
	h.clock.advance(2 * time.Minute)
	equal(t, "pruned", prune(), 1)
}

func pruneKeepsIdentity(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", Keep: 24 * time.Hour})
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Payload: []byte("p"), Fingerprint: "1"})[0].ID
	h.end(h.claimOne("k"), ledger.Fail(errTest))
	h.pass(time.Hour)
	h.end(h.claimOne("k"), ledger.Result{Outcome: ledger.OutcomeDone, Output: []byte("o"), Log: "l"})
	dead := h.addOne("dead")
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	h.clock.advance(23 * time.Hour)
	n, err := h.l.Prune(h.ctx, 100)
	h.ok(err)
	equal(t, "too early", n, 0)
	h.clock.advance(2 * time.Hour)
	n, err = h.l.Prune(h.ctx, 100)
	h.ok(err)
	equal(t, "pruned", n, 1)
	it := h.wantState(id, ledger.StateDone)
	if it.Payload != nil || it.Attempt != 2 || it.Fingerprint != "1" {
		t.Fatalf("%+v", it)
	}
	as, err := h.l.Attempts(h.ctx, id)
	h.ok(err)
	if len(as) != 1 || as[0].Attempt != 2 || as[0].Output != nil || as[0].Log != "" ||
		as[0].Outcome != ledger.OutcomeDone {
		t.Fatalf("%+v", as)
	}
	h.wantState(dead, ledger.StateDead)
	equal(t, "dead ones keep theirs", len(h.outcomes(dead)), 1)
	equal(t, "known for ever", h.add(ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1",
		Payload: []byte("p")})[0].Verdict, ledger.VerdictKnown)
	n, err = h.l.Prune(h.ctx, 100)
	h.ok(err)
	equal(t, "nothing more to prune", n, 0)
	equal(t, "changed", h.add(ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "2", Payload: []byte("p2")})[0].Verdict,
		ledger.VerdictChanged)
	if ls := h.claimOne("k"); ls.Attempt != 3 || string(ls.Payload) != "p2" {
		t.Fatalf("%+v", ls.Item)
	}
}

// reopenPruned: Reopen refuses a pruned item, since its payload is gone, unless it never had one. Add opens it again
// with a new payload.
func reopenPruned(t *testing.T, h *harness) {
	with := h.add(ledger.NewItem{Kind: "k", Key: "with", Payload: []byte("p")})[0].ID
	h.end(h.claimOne("k"), ledger.Done([]byte("o")))
	told := h.add(ledger.NewItem{Kind: "k", Key: "told", Payload: []byte("p")})[0].ID
	h.end(h.claimOne("k"), ledger.Done(nil))
	bare := h.addOne("bare")
	h.end(h.claimOne("k"), ledger.Done([]byte("o")))
	reopen := func(want int64, ids ...int64) {
		t.Helper()
		n, err := h.l.Reopen(h.ctx, "op", ledger.IDs(ids...))
		h.ok(err)
		equal(t, "reopened", n, want)
	}
	h.clock.advance(time.Hour)
	n, err := h.l.PruneOlder(h.ctx, "op", time.Minute)
	h.ok(err)
	equal(t, "pruned", n, 3)
	// The first fingerprint of an item is adopted, so this Add brings no payload.
	equal(t, "known", h.add(ledger.NewItem{Kind: "k", Key: "told", Fingerprint: "1"})[0].Verdict, ledger.VerdictKnown)
	reopen(0, with, told)
	if it := h.wantState(with, ledger.StateDone); !it.Pruned || it.Payload != nil || it.Attempt != 1 {
		t.Fatalf("%+v", it)
	}
	if it := h.wantState(bare, ledger.StateDone); it.Pruned {
		t.Fatalf("%+v", it)
	}
	reopen(1, bare)
	if ls := h.claimOne("k"); ls.ID != bare || ls.Payload != nil {
		t.Fatalf("%+v", ls.Item)
	}
	again := ledger.Again{DoneBefore: h.clock.now()}
	equal(t, "again", h.add(ledger.NewItem{Kind: "k", Key: "with", Payload: []byte("p"), Again: again})[0].Verdict,
		ledger.VerdictReopened)
	if ls := h.claimOne("k"); ls.ID != with || string(ls.Payload) != "p" || ls.Pruned {
		t.Fatalf("%+v", ls.Item)
	}
	equal(t, "again", h.add(ledger.NewItem{Kind: "k", Key: "told", Again: again})[0].Verdict, ledger.VerdictReopened)
	if ls := h.claimOne("k"); ls.ID != told || ls.Payload != nil || ls.Pruned {
		t.Fatalf("%+v", ls.Item)
	}
}

func pruneRecurring(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "k", Keep: 36 * time.Hour})
	id := h.add(ledger.NewItem{Kind: "k", Key: "x", Payload: []byte("p"), Every: "day"})[0].ID
	for range 4 {
		h.end(h.claimOne("k"), ledger.Fail(errTest))
		h.pass(time.Hour)
		h.end(h.claimOne("k"), ledger.Done(nil))
		h.pass(23 * time.Hour)
	}
	h.end(h.claimOne("k"), ledger.Fail(errTest))
	n, err := h.l.Prune(h.ctx, 10)
	h.ok(err)
	equal(t, "pruned while it recurs", n, 1)
	equal(t, "kept from the newest completion that is old enough", h.outcomes(id), []ledger.Outcome{ledger.OutcomeDone,
		ledger.OutcomeFailed, ledger.OutcomeDone, ledger.OutcomeFailed})
	h.pass(48 * time.Hour)
	n, err = h.l.Prune(h.ctx, 10)
	h.ok(err)
	equal(t, "pruned", n, 1)
	equal(t, "kept", h.outcomes(id), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeFailed})
	if it := h.wantState(id, ledger.StateReady); string(it.Payload) != "p" {
		t.Fatalf("%+v", it)
	}
	h.end(h.claimOne("k"), ledger.Done(nil))
	// A cancelled and reopened item is pruned, too: the same week is completed in another opening.
	h.policy(ledger.Kind{Name: "w", Keep: time.Hour})
	week := h.add(ledger.NewItem{Kind: "w", Key: "x", Every: "week"})[0].ID
	h.end(h.claimOne("w"), ledger.Done(nil))
	_, err = h.l.Cancel(h.ctx, "ann", ledger.IDs(week))
	h.ok(err)
	h.clock.advance(2 * time.Hour)
	_, err = h.l.Prune(h.ctx, 10)
	h.ok(err)
	_, err = h.l.Reopen(h.ctx, "ann", ledger.IDs(week))
	h.ok(err)
	h.end(h.claimOne("w"), ledger.Done(nil))
	equal(t, "outcomes", h.outcomes(week), []ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeCancelled,
		ledger.OutcomeDone})
}

func kindPolicy(t *testing.T, h *harness) {
	want := ledger.Kind{Name: "k", Plugin: "exec", Input: ledger.Input{Type: "file", Field: "path",
		Match: []string{"*.csv", "*.tsv"}, Secret: []string{"code"}},
		OnLost: ledger.OnLostDoubt, MaxFailures: 1, MaxCrashes: 2, MaxLost: 3,
		Backoff: ledger.Backoff{Base: time.Second, Cap: time.Minute},
		Timeout: time.Hour, Keep: 24 * time.Hour, Paused: true}
	h.policy(want)
	got, err := h.l.Kind(h.ctx, "k")
	h.ok(err)
	equal(t, "policy", got, want)
	_, err = h.l.Kind(h.ctx, "j")
	h.is(err, ledger.ErrNotFound)
	h.addOne("x")                              // Add keeps the policy
	h.add(ledger.NewItem{Kind: "j", Key: "x"}) // Add creates a new kind
	kinds, err := h.l.Kinds(h.ctx)
	h.ok(err)
	equal(t, "kinds", kinds, []ledger.Kind{{Name: "j"}, want})
	got, err = h.l.EditKind(h.ctx, "test", "k", func(k *ledger.Kind, known bool) {
		if !known {
			t.Error("the kind is known")
		}
		k.MaxFailures = 9
	})
	h.ok(err)
	equal(t, "edited", got.MaxFailures, 9)
	_, err = h.l.EditKind(h.ctx, "test", "k", func(k *ledger.Kind, _ bool) { k.Name = "other" })
	h.is(err, ledger.ErrInvalid)
	for _, bad := range []ledger.Kind{{Name: ""}, {Name: "k", MaxFailures: -1}, {Name: "k", OnLost: "never"},
		{Name: "k", Keep: -1}, {Name: "k", Input: ledger.Input{Type: "tape"}}} {
		h.is(h.l.SetKind(h.ctx, "test", bad), ledger.ErrInvalid)
	}
}

// pruneByDefault: the payload of a done item is pruned after 30 days, unless its kind has another time. Dead items
// and items in doubt keep it.
func pruneByDefault(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "kept", Keep: ledger.KeepForever})
	h.policy(ledger.Kind{Name: "k"})
	done := h.add(ledger.NewItem{Kind: "k", Key: "done", Payload: []byte("p")})[0].ID
	h.end(h.claimOne("k"), ledger.Done(nil))
	dead := h.add(ledger.NewItem{Kind: "k", Key: "dead", Payload: []byte("p")})[0].ID
	h.end(h.claimOne("k"), ledger.Permanent(errTest))
	doubt := h.add(ledger.NewItem{Kind: "k", Key: "doubt", Payload: []byte("p")})[0].ID
	h.end(h.claimOne("k"), ledger.Doubt(errTest))
	kept := h.add(ledger.NewItem{Kind: "kept", Key: "done", Payload: []byte("p")})[0].ID
	h.end(h.claimOne("kept"), ledger.Done(nil))
	prune := func(want int) {
		t.Helper()
		n, err := h.l.Prune(h.ctx, 100)
		h.ok(err)
		equal(t, "pruned", n, want)
	}
	h.clock.advance(ledger.Kind{}.WithDefaults().Keep)
	prune(0)
	h.clock.advance(time.Second)
	prune(1)
	h.clock.advance(9 * 365 * 24 * time.Hour)
	prune(0)
	equal(t, "of the item that is done nothing is left", h.item(done).Payload, nil)
	for _, id := range []int64{dead, doubt, kept} {
		equal(t, "payload", string(h.item(id).Payload), "p")
	}
}

// pruneOlder: an operator may prune regardless of the policy of a kind.
func pruneOlder(t *testing.T, h *harness) {
	h.policy(ledger.Kind{Name: "kept", Keep: ledger.KeepForever})
	h.addMany(1203)
	for range 3 {
		for _, ls := range h.claim("k", 500) {
			h.end(ls, ledger.Done([]byte("o")))
		}
	}
	kept := h.add(ledger.NewItem{Kind: "kept", Key: "done", Payload: []byte("p")})[0].ID
	h.end(h.claimOne("kept"), ledger.Done(nil))
	older := func(d time.Duration, want int64, kinds ...string) {
		t.Helper()
		n, err := h.l.PruneOlder(h.ctx, "op", d, kinds...)
		h.ok(err)
		equal(t, "pruned", n, want)
	}
	h.clock.advance(time.Hour)
	older(2*time.Hour, 0)
	older(time.Minute, 0, "other")
	older(time.Minute, 1203, "k")
	older(time.Minute, 0, "k")
	older(time.Minute, 1)
	equal(t, "payload", h.item(kept).Payload, nil)
	_, err := h.l.PruneOlder(h.ctx, "", time.Hour)
	h.is(err, ledger.ErrInvalid)
	_, err = h.l.PruneOlder(h.ctx, "op", -1)
	h.is(err, ledger.ErrInvalid)
}

// noHistory is a store whose transactions may not read the attempts of an item: there may be many, with large outputs.
type noHistory struct {
	ledger.Store
	t *testing.T
}

type noHistoryTx struct {
	ledger.Tx
	t *testing.T
}

func (s noHistory) Update(ctx context.Context, conn ledger.Conn, fn func(ledger.Tx) error) error {
	return s.Store.Update(ctx, conn, func(tx ledger.Tx) error { return fn(noHistoryTx{tx, s.t}) })
}

func (x noHistoryTx) Attempts(id, from int64) ([]ledger.Attempt, error) {
	x.t.Errorf("the attempts of item %d are read", id)
	return x.Tx.Attempts(id, from)
}

// actsByOutput: an act takes the items whose newest output matches, and reads no other.
func actsByOutput(t *testing.T, h *harness) {
	output := func(text string) ledger.Result {
		res := ledger.RetryAfter(time.Minute, errTest)
		res.Output = []byte(text)
		return res
	}
	hit, miss := `{"status":404}`, `{"status":200}`
	outputs := map[string][]string{"before": {hit, miss}, "none": {"", ""}, "last": {miss, hit}, "kept": {hit, ""}}
	for key := range outputs {
		h.addOne(key)
	}
	for i := range 2 {
		for _, ls := range h.claim("k", 4) {
			h.end(ls, output(outputs[ls.Key][i]))
		}
		h.pass(time.Minute)
	}
	f := ledger.Filter{Fields: []ledger.FieldTerm{{Of: "output", Path: []string{"status"}, Op: ":",
		Values: []string{"404"}}}}
	n, err := ledger.New(noHistory{h.store, t}, ledger.Options{}).Cancel(h.ctx, "ann", f)
	h.ok(err)
	equal(t, "cancelled", n, 2)
	for key := range outputs {
		it, err := h.l.Find(h.ctx, "k", "", key)
		h.ok(err)
		equal(t, key+" is cancelled", it.State == ledger.StateCancelled, key == "last" || key == "kept")
	}
}
