package storetest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

func addAnswersPerItem(t *testing.T, h *harness) {
	a := h.add(ledger.NewItem{Kind: "k", Key: "b"}, ledger.NewItem{Kind: "k", Key: "a"},
		ledger.NewItem{Kind: "j", Key: "a"}, ledger.NewItem{Kind: "k", Scope: "s", Key: "a"})
	seen := map[int64]bool{}
	for i, x := range a {
		if x.ID == 0 || seen[x.ID] || x.Verdict != ledger.VerdictAdded || x.State != ledger.StateReady {
			t.Fatalf("answer %d: %+v", i, x)
		}
		seen[x.ID] = true
	}
	again := h.add(ledger.NewItem{Kind: "k", Key: "a"}, ledger.NewItem{Kind: "k", Key: "c"},
		ledger.NewItem{Kind: "k", Key: "b"})
	equal(t, "verdicts", []ledger.Verdict{again[0].Verdict, again[1].Verdict, again[2].Verdict},
		[]ledger.Verdict{ledger.VerdictKnown, ledger.VerdictAdded, ledger.VerdictKnown})
	if again[0].ID != a[1].ID || again[2].ID != a[0].ID {
		t.Fatalf("known items got other ids: %v, before %v", again, a)
	}
}

// addKeepsItsPlace: a ready item that changes keeps its place in the queue.
func addKeepsItsPlace(_ *testing.T, h *harness) {
	first := h.add(ledger.NewItem{Kind: "k", Key: "first", Fingerprint: "old"})[0]
	h.clock.advance(time.Minute)
	h.add(ledger.NewItem{Kind: "k", Key: "second"})
	h.add(ledger.NewItem{Kind: "k", Key: "first", Fingerprint: "new"})
	equal(h.t, "the item claimed first", h.claimOne("k").ID, first.ID)
}

func tryLeavesNoTrace(t *testing.T, h *harness) {
	known := h.add(ledger.NewItem{Kind: "k", Key: "a", Fingerprint: "1"})[0]
	tried, err := h.l.Try(h.ctx, ledger.NewItem{Kind: "k", Key: "a", Fingerprint: "2"},
		ledger.NewItem{Kind: "k", Key: "b"}, ledger.NewItem{Kind: "new", Key: "c"},
		ledger.NewItem{Kind: "k", Key: "b"})
	h.ok(err)
	equal(t, "answers", tried, []ledger.Added{{ID: known.ID, Verdict: ledger.VerdictChanged, State: ledger.StateReady},
		{Verdict: ledger.VerdictAdded, State: ledger.StateReady}, {Verdict: ledger.VerdictAdded, State: ledger.StateReady},
		{Verdict: ledger.VerdictKnown, State: ledger.StateReady}})
	it, err := h.l.Get(h.ctx, known.ID)
	h.ok(err)
	n, err := h.l.Count(h.ctx, ledger.Filter{})
	h.ok(err)
	kinds, err := h.l.Kinds(h.ctx)
	h.ok(err)
	if it.Fingerprint != "1" || n != 1 || len(kinds) != 1 {
		t.Errorf("fingerprint %s, %d items, kinds %v", it.Fingerprint, n, kinds)
	}
}

// addNotBefore: an item that Add opens again or changes is not ready before Due, whatever its state was.
func addNotBefore(t *testing.T, h *harness) {
	for _, state := range []ledger.State{ledger.StateWaiting, ledger.StateReady, ledger.StateDead, ledger.StateDone,
		ledger.StateCancelled} {
		n := ledger.NewItem{Kind: "k", Key: string(state), Fingerprint: "1"}
		if state == ledger.StateWaiting {
			n.Due = h.clock.now().Add(time.Minute)
		}
		id := h.add(n)[0].ID
		switch state {
		case ledger.StateDead:
			h.end(h.claimOne("k"), ledger.Permanent(errTest))
		case ledger.StateDone:
			h.end(h.claimOne("k"), ledger.Done(nil))
		case ledger.StateCancelled:
			_, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
			h.ok(err)
		}
		due := h.clock.now().Add(36 * time.Hour)
		n.Due, n.Again = due, ledger.Again{Dead: true, Cancelled: true, DoneBefore: due}
		want := ledger.VerdictReopened
		if state == ledger.StateWaiting || state == ledger.StateReady {
			n.Fingerprint, want = "2", ledger.VerdictChanged
		}
		equal(t, string(state), h.add(n)[0], ledger.Added{ID: id, Verdict: want, State: ledger.StateWaiting})
		equal(t, string(state)+" is due", h.item(id).Due.UTC(), due)
	}
}

// prepared is an item in a given state, of kind "k", key "x", fingerprint "1", payload "p1".
func (h *harness) prepared(state ledger.State) int64 {
	h.t.Helper()
	n := ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1", Payload: []byte("p1")}
	if state == ledger.StateWaiting {
		n.Due = start.Add(time.Hour)
	}
	id := h.add(n)[0].ID
	switch state {
	case ledger.StateLeased:
		h.claimOne("k")
	case ledger.StateDone:
		h.end(h.claimOne("k"), ledger.Done(nil))
	case ledger.StateDead:
		h.end(h.claimOne("k"), ledger.Permanent(errors.New("no")))
	case ledger.StateDoubt:
		h.end(h.claimOne("k"), ledger.Doubt(errors.New("who knows")))
	case ledger.StateCancelled:
		_, err := h.l.Cancel(h.ctx, "test", ledger.IDs(id))
		h.ok(err)
	}
	h.wantState(id, state)
	return id
}

// addTable tests the table of docs/design.md, "What adding a known item does".
func addTable(t *testing.T, h *harness) {
	type want struct {
		Verdict ledger.Verdict
		State   ledger.State
		Round   string
		Payload string
	}
	same := ledger.NewItem{Fingerprint: "1", Payload: []byte("p1")}
	noPrint := ledger.NewItem{}
	other := ledger.NewItem{Fingerprint: "1", Payload: []byte("p2")}
	changed := ledger.NewItem{Fingerprint: "2", Payload: []byte("p2")}
	again := ledger.NewItem{Fingerprint: "1", Payload: []byte("p2"), Again: ledger.Again{Dead: true, Cancelled: true,
		DoneBefore: start.Add(time.Hour)}}
	const (
		known, differs, isChanged, reopened = ledger.VerdictKnown, ledger.VerdictDiffers,
			ledger.VerdictChanged, ledger.VerdictReopened
		waiting, ready, leased, done, dead, dbt, cancelled = ledger.StateWaiting, ledger.StateReady, ledger.StateLeased,
			ledger.StateDone, ledger.StateDead, ledger.StateDoubt, ledger.StateCancelled
	)
	for i, c := range []struct {
		state ledger.State
		give  ledger.NewItem
		want  want
	}{
		{waiting, same, want{known, waiting, "1", "p1"}}, {waiting, noPrint, want{known, waiting, "1", "p1"}},
		{waiting, other, want{differs, waiting, "1", "p1"}}, {waiting, changed, want{isChanged, waiting, "1", "p2"}},
		{ready, same, want{known, ready, "1", "p1"}}, {ready, other, want{differs, ready, "1", "p1"}},
		{ready, changed, want{isChanged, ready, "1", "p2"}}, {ready, again, want{differs, ready, "1", "p1"}},
		{leased, same, want{known, leased, "1", "p1"}}, {leased, changed, want{isChanged, leased, "1", "p2"}},
		{done, same, want{known, done, "1", "p1"}}, {done, other, want{differs, done, "1", "p1"}},
		{done, changed, want{isChanged, ready, "2", "p2"}}, {done, again, want{reopened, ready, "2", "p2"}},
		{dead, same, want{known, dead, "1", "p1"}}, {dead, changed, want{isChanged, ready, "2", "p2"}},
		{dead, again, want{reopened, ready, "1", "p2"}},
		{dbt, same, want{known, dbt, "1", "p1"}}, {dbt, changed, want{known, dbt, "1", "p1"}},
		{dbt, again, want{known, dbt, "1", "p1"}},
		{cancelled, same, want{known, cancelled, "1", "p1"}}, {cancelled, noPrint, want{known, cancelled, "1", "p1"}},
		{cancelled, changed, want{isChanged, ready, "2", "p2"}},
		{cancelled, again, want{reopened, ready, "2", "p2"}},
	} {
		id := h.prepared(c.state)
		c.give.Kind, c.give.Key = "k", "x"
		a := h.add(c.give)[0]
		it := h.item(id)
		equal(t, string(c.state)+" and "+string(c.want.Verdict), want{a.Verdict, it.State, it.Round, string(it.Payload)},
			c.want)
		if a.ID != id || a.State != it.State {
			t.Fatalf("case %d: answered %+v, item is %d %s", i, a, id, it.State)
		}
		h.verify()
		h.remove(id)
	}
}

// remove forgets an item in any state.
func (h *harness) remove(id int64) {
	h.t.Helper()
	f := ledger.IDs(id)
	_, err := h.l.ForceRelease(h.ctx, "test", f)
	h.ok(err)
	_, err = h.l.Cancel(h.ctx, "test", f)
	h.ok(err)
	n, left, err := h.l.Forget(h.ctx, "test", f)
	h.ok(err)
	if n != 1 || left != 0 {
		h.t.Fatalf("forgot %d, left %d", n, left)
	}
}

func addReopens(t *testing.T, h *harness) {
	id := h.prepared(ledger.StateDone)
	// The item was completed at start: that is not before start, but before one second later.
	n := ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1", Again: ledger.Again{DoneBefore: start}}
	equal(t, "not long enough ago", h.add(n)[0].Verdict, ledger.VerdictKnown)
	n.Again.DoneBefore = start.Add(time.Second)
	equal(t, "long enough ago", h.add(n)[0].Verdict, ledger.VerdictReopened)
	it := h.wantState(id, ledger.StateReady)
	if string(it.Payload) != "p1" {
		t.Fatalf("payload %q: an item given without one keeps its own", it.Payload)
	}
	// A new version does not wait for the retry of the old one, and begins another round than the one reopened, 2.
	ls := h.claimOne("k")
	h.end(ls, ledger.RetryAfter(time.Hour, errors.New("later")))
	h.wantState(id, ledger.StateWaiting)
	h.add(ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "2"})
	if it := h.wantState(id, ledger.StateReady); it.Failures != 0 || it.Round != "3" {
		t.Fatalf("%d failures of the old version are left, in round %s", it.Failures, it.Round)
	}
	// The first fingerprint of an item is adopted. It is no change.
	bare := h.addOne("bare")
	equal(t, "adopted", h.add(ledger.NewItem{Kind: "k", Key: "bare", Fingerprint: "7"})[0].Verdict, ledger.VerdictKnown)
	equal(t, "fingerprint", h.item(bare).Fingerprint, "7")
	equal(t, "changed", h.add(ledger.NewItem{Kind: "k", Key: "bare", Fingerprint: "8"})[0].Verdict, ledger.VerdictChanged)
}

func addRecurring(t *testing.T, h *harness) {
	n := ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1", Payload: []byte("p1"), Every: "day"}
	id := h.add(n)[0].ID
	h.end(h.claimOne("k"), ledger.Done(nil))
	equal(t, "known", h.add(n)[0].Verdict, ledger.VerdictKnown)
	n.Fingerprint, n.Payload = "2", []byte("p2")
	equal(t, "changed", h.add(n)[0], ledger.Added{ID: id, Verdict: ledger.VerdictChanged, State: ledger.StateReady})
	if ls := h.claimOne("k"); string(ls.Payload) != "p2" || ls.Round != "2026-11-20" {
		t.Fatalf("round %s with payload %q", ls.Round, ls.Payload)
	}
	// A done item becomes recurring.
	once := h.addOne("once")
	h.end(h.claimOne("k"), ledger.Done(nil))
	equal(t, "rescheduled", h.add(ledger.NewItem{Kind: "k", Key: "once", Every: "hour"})[0].Verdict, ledger.VerdictChanged)
	h.wantState(once, ledger.StateReady)
	h.end(h.claimOne("k"), ledger.Done(nil))
	h.wantState(once, ledger.StateWaiting)
}

func addBatchWithDuplicates(t *testing.T, h *harness) {
	a := h.add(ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1"}, ledger.NewItem{Kind: "k", Key: "y"},
		ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1"}, ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "2"})
	equal(t, "verdicts", []ledger.Verdict{a[0].Verdict, a[1].Verdict, a[2].Verdict, a[3].Verdict},
		[]ledger.Verdict{ledger.VerdictAdded, ledger.VerdictAdded, ledger.VerdictKnown, ledger.VerdictChanged})
	equal(t, "count", len(h.claim("k", 10)), 2)
}

func addLimits(t *testing.T, h *harness) {
	long := func(n int) string { return strings.Repeat("x", n) }
	type limit struct {
		field string
		item  ledger.NewItem
		ok    bool
	}
	west, east := time.FixedZone("", -5*3600), time.FixedZone("", 14*3600)
	limits := []limit{
		{"kind", ledger.NewItem{Kind: long(bounds.MaxKind), Key: "1"}, true},
		{"kind", ledger.NewItem{Kind: long(bounds.MaxKind + 1), Key: "1"}, false},
		{"kind", ledger.NewItem{Key: "1"}, false},
		{"kind", ledger.NewItem{Kind: "-k", Key: "1"}, false},
		{"kind", ledger.NewItem{Kind: "K", Key: "1"}, false},
		{"kind", ledger.NewItem{Kind: "k\n", Key: "1"}, false},
		{"key", ledger.NewItem{Kind: long(bounds.MaxKind), Scope: long(bounds.MaxScope), Key: long(bounds.MaxKey)}, true},
		{"key", ledger.NewItem{Kind: "k"}, false},
		{"payload", ledger.NewItem{Kind: "k", Key: "10", Payload: make([]byte, bounds.MaxPayload)}, true},
		{"payload", ledger.NewItem{Kind: "k", Key: "11", Payload: make([]byte, bounds.MaxPayload+1)}, false},
		{"priority", ledger.NewItem{Kind: "k", Key: "12", Priority: bounds.MinPriority}, true},
		{"priority", ledger.NewItem{Kind: "k", Key: "13", Priority: bounds.MaxPriority}, true},
		{"priority", ledger.NewItem{Kind: "k", Key: "14", Priority: bounds.MinPriority - 1}, false},
		{"priority", ledger.NewItem{Kind: "k", Key: "15", Priority: bounds.MaxPriority + 1}, false},
		{"every", ledger.NewItem{Kind: "k", Key: "16", Every: "fortnight"}, false},
		{"every", ledger.NewItem{Kind: "k", Key: "17", Every: "59s"}, false},
		{"every", ledger.NewItem{Kind: "k", Key: "18", Every: "1m"}, true},
		{"zone", ledger.NewItem{Kind: "k", Key: "19", Every: "day", Zone: "Mars/Olympus"}, false},
		{"zone", ledger.NewItem{Kind: "k", Key: "20", Zone: "UTC"}, false},
		{"due", ledger.NewItem{Kind: "k", Key: "21", Due: time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC)}, false},
		{"due", ledger.NewItem{Kind: "k", Key: "22", Due: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}, true},
		{"due", ledger.NewItem{Kind: "k", Key: "23", Due: time.Date(9999, 12, 31, 23, 30, 0, 0, west)}, false},
		{"due", ledger.NewItem{Kind: "k", Key: "24", Due: time.Date(1970, 1, 1, 0, 0, 0, 0, east)}, false},
	}
	for _, text := range ledger.ItemTexts {
		for value, ok := range map[string]bool{long(text.Max): text.Column != "every" && text.Column != "zone",
			long(text.Max + 1): false, "a\x00b": false, "a\xffb": false} {
			n := ledger.NewItem{Kind: "k", Key: "text-" + text.Column}
			*text.Of(&n) = value
			limits = append(limits, limit{text.Column, n, ok})
		}
	}
	for _, c := range limits {
		_, err := h.l.Add(h.ctx, ledger.NewItem{Kind: "k", Key: "first"}, c.item)
		var bad *ledger.InvalidError
		switch {
		case c.ok && err != nil:
			t.Errorf("%s at its limit: %v", c.field, err)
		case !c.ok && (!errors.As(err, &bad) || bad.Field != c.field || bad.Index != 1 || !errors.Is(err, ledger.ErrInvalid)):
			t.Errorf("%s beyond its limit: got %v", c.field, err)
		}
	}
	_, err := h.l.Add(h.ctx)
	h.is(err, ledger.ErrInvalid)
	_, err = h.l.Add(h.ctx, make([]ledger.NewItem, bounds.MaxBatch+1)...)
	h.is(err, ledger.ErrInvalid)
}

func addManyFields(t *testing.T, h *harness) {
	due := start.Add(90*time.Minute + 123456*time.Microsecond + 789)
	payload := []byte("{\"n\":1e999,\"n\":9007199254740993 }\xff\x00")
	n := ledger.NewItem{Kind: "k", Scope: "s", Key: "kéy\n\"'%_\\", Fingerprint: "f--\r\t", Payload: payload,
		ShardKey: "h'o\"st$1", Priority: -2, Due: due, Every: "*/5  1-3 * * mon", Zone: "Europe/Berlin",
		Source: "s%s\u2028😀", Trace: traceText}
	id := h.add(n)[0].ID
	got := h.item(id)
	want := ledger.Item{ID: id, Kind: "k", Scope: "s", Key: n.Key,
		Stored: ledger.Stored{Fingerprint: n.Fingerprint, Payload: payload, ShardKey: n.ShardKey,
			Slot: scheduler.Slot(n.ShardKey), Every: n.Every, Zone: n.Zone, Source: n.Source, Trace: traceText,
			CreatedAt: start},
		Priority: -2, Due: due.Truncate(time.Microsecond), State: ledger.StateWaiting, Round: got.Round,
		RoundState: ledger.RoundOpen}
	equal(t, "item", got, want)
	found, err := h.l.Find(h.ctx, "k", "s", n.Key)
	h.ok(err)
	equal(t, "found", found, want)
	for _, half := range []ledger.Filter{{Prefix: "k\xc3"}, {KeyHas: "\xa9y"}} {
		count, err := h.l.Count(h.ctx, half)
		h.ok(err)
		equal(t, "items by half of a character", count, 0)
	}
	_, err = h.l.Find(h.ctx, "k", "", n.Key)
	h.is(err, ledger.ErrNotFound)
	_, err = h.l.Get(h.ctx, id+1)
	h.is(err, ledger.ErrNotFound)
	h.clock.advance(2 * time.Hour)
	h.pass(0)
	ls := h.claimOne("k")
	if string(ls.Payload) != string(payload) || ls.Key != n.Key || ls.Scope != "s" || ls.Fingerprint != n.Fingerprint ||
		ls.Every != n.Every || ls.Source != n.Source || ls.ShardKey != n.ShardKey || ls.Trace != traceText {
		t.Fatalf("claimed %+v", ls.Item)
	}
}

func addTakesWhatItIsGiven(t *testing.T, h *harness) {
	// A cancelled item is added again as a recurring one.
	id := h.addOne("x")
	_, err := h.l.Cancel(h.ctx, "ann", ledger.IDs(id))
	h.ok(err)
	h.add(ledger.NewItem{Kind: "k", Key: "x", Every: "hour", Again: ledger.Again{Cancelled: true}})
	equal(t, "every", h.item(id).Every, "hour")
	h.end(h.claimOne("k"), ledger.Done(nil))
	h.wantState(id, ledger.StateWaiting)
	// A done item becomes recurring from next week on, with a priority.
	later := h.addOne("later")
	h.end(h.claimOne("k"), ledger.Done(nil))
	h.add(ledger.NewItem{Kind: "k", Key: "later", Every: "day", Due: start.Add(7 * 24 * time.Hour), Priority: -1})
	if it := h.wantState(later, ledger.StateWaiting); !it.Due.Equal(start.Add(7*24*time.Hour)) || it.Priority != -1 {
		t.Fatalf("%+v", it)
	}
	// The fingerprint is adopted although the payload differs, so that the next change is noticed.
	bare := h.add(ledger.NewItem{Kind: "k", Key: "bare", Payload: []byte("a")})[0].ID
	equal(t, "differs", h.add(ledger.NewItem{Kind: "k", Key: "bare", Payload: []byte("b"), Fingerprint: "1"})[0].Verdict,
		ledger.VerdictDiffers)
	equal(t, "payload", string(h.item(bare).Payload), "a")
	equal(t, "changed", h.add(ledger.NewItem{Kind: "k", Key: "bare", Payload: []byte{}, Fingerprint: "2"})[0].Verdict,
		ledger.VerdictChanged)
	equal(t, "payload", string(h.item(bare).Payload), "a")
}
