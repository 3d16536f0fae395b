package pluginhost

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// FuzzReplies: whatever a plugin sends, each of its items is settled at most once and only by a result with its id and
// attempt. The ledger records each result or refuses it as invalid. The session goes on: further results settle the
// other items.
func FuzzReplies(f *testing.F) {
	add := func(split int, results ...*wire.Result) {
		b, err := proto.Marshal(&wire.PluginMessage{Credits: -1, Results: results,
			Progress: []*wire.Progress{{Id: 1, Attempt: 1, Done: -1}, nil}})
		must.OK(f, err)
		f.Add(b, split)
	}
	add(0, result(1), result(1), result(2), result(99), result(-1))
	add(1, result(3, func(r *wire.Result) { r.Attempt = 0 }), &wire.Result{}, result(1<<62))
	add(2, result(1, func(r *wire.Result) { r.Output, r.Code = make([]byte, 2<<20), "NOT A CODE" }))
	add(3, result(2, func(r *wire.Result) { r.Outcome, r.DelayMs, r.Ending = wire.Result_OUTCOME_SNOOZED, -1<<63, 77 }),
		result(4, func(r *wire.Result) { r.Outcome = -5 }))
	add(4, result(1, func(r *wire.Result) {
		r.Emit = []*wire.Child{{Kind: "child", Key: "", DueUs: 1 << 62, Priority: -1 << 31}, {Kind: "child", Key: "\x00"},
			{Kind: "k"}}
	}))
	f.Fuzz(func(t *testing.T, sent []byte, split int) {
		const n = 5
		l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
		var items []ledger.NewItem
		for i := range n {
			items = append(items, ledger.NewItem{Kind: "k", Key: fmt.Sprint(i)})
		}
		must.Do(t)(l.Add(t.Context(), items...))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: n})
		if err != nil || len(leases) != n {
			t.Fatal(len(leases), err)
		}
		h := &Host{log: slog.New(slog.DiscardHandler), times: defaultTimes, config: &Config{Progress: func(Progress) {}}}
		s, p := withoutProcess(t, h, 2, n)
		settled := map[int64]int{}
		for _, lease := range leases {
			settle := func(res ledger.Result) {
				settled[lease.ID]++
				end(t, l, lease, res)
			}
			s.work.Add(&task{Of: given{lease, settle}, Item: item(t.Context(), lease), Context: t.Context(),
				Timeout: time.Minute})
		}
		named := map[[2]int64]bool{}
		at := min(max(split, 0), len(sent))
		for _, part := range [][]byte{sent, sent[:at], sent[at:]} {
			m := &wire.PluginMessage{}
			if proto.Unmarshal(part, m) != nil { // the transport ends the stream
				continue
			}
			for _, r := range m.Results {
				named[[2]int64{r.Id, r.Attempt}] = true
			}
			p.events.Progress(m.Progress)
			p.events.Results(m.Results)
		}
		for _, lease := range leases {
			if want := named[[2]int64{lease.ID, lease.Attempt}]; (settled[lease.ID] == 1) != want || settled[lease.ID] > 1 {
				t.Errorf("item %d was settled %d times; named: %v", lease.ID, settled[lease.ID], want)
			}
			p.events.Results([]*wire.Result{{Id: lease.ID, Attempt: lease.Attempt, Outcome: wire.Result_OUTCOME_DONE}})
			if settled[lease.ID] != 1 {
				t.Errorf("item %d was settled %d times in the end", lease.ID, settled[lease.ID])
			}
		}
		if n := s.work.Len(); n != 0 {
			t.Errorf("%d items are in hand at the end", n)
		}
	})
}

// end gives a result to the ledger. The ledger must record it, or refuse it as invalid and keep the lease.
func end(t *testing.T, l *ledger.Ledger, lease *ledger.Lease, res ledger.Result) {
	t.Helper()
	e := []ledger.Ending{{Lease: lease, Result: res}}
	err := l.Finish(t.Context(), e...)[0]
	it, gerr := l.Get(t.Context(), lease.ID)
	must.OK(t, gerr)
	switch {
	case err == nil && it.State != ledger.StateLeased && e[0].State != "" && it.Outcome == e[0].Recorded:
	case err != nil && it.State == ledger.StateLeased && errors.Is(err, ledger.ErrInvalid):
	default:
		t.Errorf("item %d, reported %s: %v; it is %s by %q", lease.ID, res.Outcome, err, it.State, it.Outcome)
	}
	for v, err := range l.Verify(t.Context()) {
		t.Fatalf("%s, item %d: %s, %v", v.Rule, v.ItemID, v.Text, err)
	}
}
