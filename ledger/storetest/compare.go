package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
)

// Compare runs random operations on a store and on the one in memory, and wants the same
// answers and the same rows after each.
func Compare(t *testing.T, open Open) {
	rapid.Check(t, func(rt *rapid.T) {
		c := &clock{t: start}
		half := func() float64 { return 0.5 }
		store := open(t, c.now)
		m := &machine{t: rt, tb: t, clock: c, stores: [2]ledger.Store{memory.New(memory.Options{Now: c.now}), store}}
		for i, s := range m.stores {
			m.l[i] = ledger.New(s, ledger.Options{Jitter: half})
		}
		defer m.l[1].Close()
		rt.Repeat(map[string]func(*rapid.T){
			"":        m.check,
			"add":     m.add,
			"claim":   m.claim,
			"start":   m.start,
			"renew":   m.renew,
			"finish":  m.finish,
			"act":     m.act,
			"decide":  m.decide,
			"policy":  m.policy,
			"tick":    m.tick,
			"expire":  m.expire,
			"promote": m.promote,
			"prune":   m.prune,
			"beat":    m.beat,
			"filters": m.filters,
		})
	})
}

// machine is a pair of ledgers, one in memory and the one under test, that get the same calls.
type machine struct {
	t      *rapid.T
	tb     *testing.T
	clock  *clock
	stores [2]ledger.Store
	l      [2]*ledger.Ledger
	leases [][2]*ledger.Lease // all that were ever granted
}

// both runs a call on both ledgers and compares its answers, ids and tokens aside.
func both[T any](m *machine, t *rapid.T, what string, call func(i int, l *ledger.Ledger) (T, error)) [2]T {
	var got [2]T
	var errs [2]error
	for i, l := range m.l {
		got[i], errs[i] = call(i, l)
	}
	if reason(errs[0]) != reason(errs[1]) {
		t.Fatalf("%s: in memory %v, in the store %v", what, errs[0], errs[1])
	}
	return got
}

// reason is what of an error is the same on every store.
func reason(err error) string {
	var bad *ledger.InvalidError
	if errors.As(err, &bad) {
		return bad.Field
	}
	for _, known := range []error{ledger.ErrLeaseLost, ledger.ErrNotFound, ledger.ErrCancelled, ledger.ErrConflict} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

func same(t *rapid.T, what string, got [2]any) {
	if d := cmp.Diff(got[0], got[1]); d != "" {
		t.Fatalf("%s (-memory +store):\n%s", what, d)
	}
}

// keyOf names an item where ids differ: stores may leave gaps.
func (m *machine) keyOf(i int, id int64) string {
	recs, err := m.stores[i].Records(m.tb.Context(), ledger.IDs(id), 0, 1)
	if err != nil || len(recs) != 1 {
		return fmt.Sprint("none ", err)
	}
	return fmt.Sprint(recs[0].Identity)
}

// childScope is that of emitted items: the default one names the parent by its id.
const childScope = "children"

// row is one item with its attempts, ids and tokens aside.
type row struct {
	ledger.Record
	Attempts []ledger.Attempt
}

func (m *machine) dump(t *rapid.T, i int) []row {
	recs, err := m.stores[i].Audit(m.tb.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]row, len(recs))
	for k, r := range recs {
		r.ID = 0
		if r.Scope == childScope {
			r.Source = "its parent" // by kind and id
		}
		if r.Last != nil {
			last := *r.Last
			last.ItemID, last.LockID = 0, ""
			r.Last = &last
		}
		if r.Work != nil && r.Work.LockID != uuid.Nil {
			r.Work.LockID = uuid.Max
		}
		out[k] = row{r.Record, r.Attempts}
		for j := range out[k].Attempts {
			a := &out[k].Attempts[j]
			a.ItemID = 0
			if a.LockID != "" {
				a.LockID = "some"
			}
		}
	}
	return out
}

// check compares everything after every step, and the invariants.
func (m *machine) check(t *rapid.T) {
	same(t, "rows", [2]any{m.dump(t, 0), m.dump(t, 1)})
	for i, l := range m.l {
		for v, err := range l.Verify(m.tb.Context()) {
			t.Fatalf("store %d: %s, item %d: %s, %v", i, v.Rule, v.ItemID, v.Text, err)
		}
	}
	st := both(m, t, "standing", func(_ int, l *ledger.Ledger) (ledger.Standing, error) { return l.Standing(m.tb.Context(), "a") })
	same(t, "standing", [2]any{st[0], st[1]})
}

var kindNames = rapid.SampledFrom([]string{"a", "b"})

func (m *machine) add(t *rapid.T) {
	items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.NewItem {
		n := ledger.NewItem{Kind: kindNames.Draw(t, "kind"), Scope: rapid.SampledFrom([]string{"", "s"}).Draw(t, "scope"),
			Key: rapid.SampledFrom([]string{"1", "2", "3", "é%_", "5\n"}).Draw(t, "key"), Fingerprint: rapid.SampledFrom([]string{"", "f", "g"}).Draw(t, "fingerprint"),
			Priority: int16(rapid.IntRange(-2, 2).Draw(t, "priority")), Every: rapid.SampledFrom([]string{"", "", "", "hour", "90s", "*/7 * * * *"}).Draw(t, "every")}
		if rapid.Bool().Draw(t, "payload") {
			n.Payload = []byte(rapid.SampledFrom([]string{"{}", "\x00\xff", ""}).Draw(t, "bytes"))
		}
		if rapid.IntRange(0, 3).Draw(t, "later") == 0 {
			n.Due = m.clock.now().Add(time.Duration(rapid.IntRange(-60, 600).Draw(t, "due")) * time.Second)
		}
		n.Again = ledger.Again{Dead: rapid.Bool().Draw(t, "again dead"), Cancelled: rapid.Bool().Draw(t, "again cancelled")}
		if rapid.IntRange(0, 3).Draw(t, "again done") == 0 {
			n.Again.DoneBefore = m.clock.now()
		}
		return n
	}), 1, 6).Draw(t, "items")
	got := both(m, t, "add", func(_ int, l *ledger.Ledger) ([]ledger.Added, error) { return l.Add(m.tb.Context(), items...) })
	for i := range items {
		a, b := got[0][i], got[1][i]
		if a.Verdict != b.Verdict || a.State != b.State || m.keyOf(0, a.ID) != m.keyOf(1, b.ID) {
			t.Fatalf("adding %+v: in memory %+v, in the store %+v", items[i], a, b)
		}
	}
}

func (m *machine) claim(t *rapid.T) {
	c := ledger.Claim{Kind: kindNames.Draw(t, "kind"), Agent: rapid.SampledFrom([]string{"x", "y"}).Draw(t, "agent"), Limit: rapid.IntRange(1, 5).Draw(t, "limit"),
		TTL: time.Duration(rapid.IntRange(1, 120).Draw(t, "ttl")) * time.Second, Resume: rapid.IntRange(0, 4).Draw(t, "resume") == 0}
	if rapid.IntRange(0, 4).Draw(t, "shard") == 0 {
		c.Shard = ledger.Shard{Index: rapid.IntRange(0, 1).Draw(t, "index"), Count: 2}
	}
	got := both(m, t, "claim", func(_ int, l *ledger.Ledger) ([]*ledger.Lease, error) { return l.Claim(m.tb.Context(), c) })
	same(t, "claimed", [2]any{claimed(got[0]), claimed(got[1])})
	for i := range got[0] {
		m.leases = append(m.leases, [2]*ledger.Lease{got[0][i], got[1][i]})
	}
}

func claimed(ls []*ledger.Lease) []string {
	var out []string
	for _, l := range ls {
		out = append(out, fmt.Sprint(l.Kind, l.Scope, l.Key, string(l.Payload), l.Fingerprint, l.Attempt, l.Round, l.Alone, l.Resumed, l.StartedAt, l.ExpiresAt, l.Due, l.Priority))
	}
	return out
}

// some draws a few of the leases ever granted, so most are stale.
func (m *machine) some(t *rapid.T) [][2]*ledger.Lease {
	if len(m.leases) == 0 {
		t.Skip("nothing was claimed yet")
	}
	from := m.leases[max(0, len(m.leases)-12):]
	return rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, 4, func(p [2]*ledger.Lease) *ledger.Lease { return p[0] }).Draw(t, "leases")
}

func side(pairs [][2]*ledger.Lease, i int) []*ledger.Lease {
	out := make([]*ledger.Lease, len(pairs))
	for k := range pairs {
		out[k] = pairs[k][i]
	}
	return out
}

func reasons(errs []error) []string {
	out := make([]string, len(errs))
	for i, err := range errs {
		out[i] = reason(err)
	}
	return out
}

func (m *machine) start(t *rapid.T) {
	pairs := m.some(t)
	same(t, "start", [2]any{reasons(m.l[0].Start(m.tb.Context(), time.Minute, side(pairs, 0)...)), reasons(m.l[1].Start(m.tb.Context(), time.Minute, side(pairs, 1)...))})
}

func (m *machine) renew(t *rapid.T) {
	pairs := m.some(t)
	same(t, "renew", [2]any{reasons(m.l[0].Renew(m.tb.Context(), time.Minute, side(pairs, 0)...)), reasons(m.l[1].Renew(m.tb.Context(), time.Minute, side(pairs, 1)...))})
}

func (m *machine) finish(t *rapid.T) {
	pairs := m.some(t)
	var e [2][]ledger.Ending
	for _, p := range pairs {
		r := m.result(t)
		for i := range e {
			e[i] = append(e[i], ledger.Ending{Lease: p[i], Result: r})
		}
	}
	same(t, "finish", [2]any{reasons(m.l[0].Finish(m.tb.Context(), e[0]...)), reasons(m.l[1].Finish(m.tb.Context(), e[1]...))})
	for k := range e[0] {
		a, b := e[0][k], e[1][k]
		same(t, "what became of an ending", [2]any{[]string{string(a.Recorded), string(a.State)}, []string{string(b.Recorded), string(b.State)}})
	}
}

func (m *machine) result(t *rapid.T) ledger.Result {
	r := ledger.Result{Outcome: rapid.SampledFrom(ledger.Outcomes).Draw(t, "outcome"), Final: rapid.IntRange(0, 5).Draw(t, "final") == 0,
		NoReport: rapid.IntRange(0, 3).Draw(t, "no report") == 0, Code: rapid.SampledFrom([]string{"", "c"}).Draw(t, "code"), Error: rapid.SampledFrom([]string{"", "e\x00"}).Draw(t, "error"),
		Delay: time.Duration(rapid.IntRange(0, 300).Draw(t, "delay")) * time.Second}
	if rapid.Bool().Draw(t, "output") {
		r.Output = []byte("o")
	}
	if r.Outcome.Completed() && rapid.IntRange(0, 3).Draw(t, "emit") == 0 {
		r.Emit = []ledger.NewItem{{Kind: "b", Scope: childScope, Key: rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "child")}}
	}
	return r
}

func (m *machine) filter(t *rapid.T) ledger.Filter {
	var f ledger.Filter
	if rapid.Bool().Draw(t, "by kind") {
		f.Kinds = []string{kindNames.Draw(t, "kind")}
	}
	if rapid.Bool().Draw(t, "by state") {
		f.States = rapid.SliceOfN(rapid.SampledFrom(ledger.States), 1, 2).Draw(t, "states")
	}
	switch rapid.IntRange(0, 6).Draw(t, "by") {
	case 0:
		f.Key = rapid.SampledFrom([]string{"1", "é%_"}).Draw(t, "key")
	case 1:
		f.Codes = []string{"c"}
	case 2:
		f.KeyHas = "%_"
	case 3:
		f.Since = m.clock.now().Add(-time.Minute)
	case 4:
		f.Agents = []string{"x"}
	}
	return f
}

func (m *machine) act(t *rapid.T) {
	f := m.filter(t)
	name := rapid.SampledFrom([]string{"retry", "reopen", "cancel", "release", "forget"}).Draw(t, "act")
	got := both(m, t, name, func(_ int, l *ledger.Ledger) (int64, error) {
		ctx := m.tb.Context()
		switch name {
		case "retry":
			return l.Retry(ctx, "op", f)
		case "reopen":
			return l.Reopen(ctx, "op", f)
		case "cancel":
			return l.Cancel(ctx, "op", f)
		case "release":
			return l.ForceRelease(ctx, "op", f)
		}
		n, left, err := l.Forget(ctx, "op", f)
		return n<<32 + left, err
	})
	same(t, name, [2]any{got[0], got[1]})
}

func (m *machine) decide(t *rapid.T) {
	pair := m.some(t)[0]
	r := ledger.Result{Outcome: rapid.SampledFrom([]ledger.Outcome{ledger.OutcomeDone, ledger.OutcomeSkipped, ledger.OutcomeCancelled, ledger.OutcomeFailed}).Draw(t, "verdict")}
	both(m, t, "decide", func(i int, l *ledger.Ledger) (int, error) { return 0, l.Decide(m.tb.Context(), pair[i].ID, "op", r) })
}

func (m *machine) policy(t *rapid.T) {
	k := ledger.Kind{Name: kindNames.Draw(t, "kind"), OnLost: rapid.SampledFrom([]ledger.OnLost{"", ledger.OnLostDoubt}).Draw(t, "on lost"),
		MaxFailures: rapid.IntRange(0, 3).Draw(t, "max failures"), MaxLost: rapid.IntRange(0, 4).Draw(t, "max lost"), MaxCrashes: rapid.IntRange(0, 2).Draw(t, "max crashes"), Paused: rapid.IntRange(0, 5).Draw(t, "paused") == 0,
		Keep: time.Duration(rapid.IntRange(0, 2).Draw(t, "keep")) * time.Minute}
	both(m, t, "policy", func(_ int, l *ledger.Ledger) (int, error) { return 0, l.SetKind(m.tb.Context(), "op", k) })
}

func (m *machine) tick(t *rapid.T) {
	m.clock.advance(time.Duration(rapid.SampledFrom([]int{1, 30, 61, 600, 4000, -2}).Draw(t, "seconds")) * time.Second)
}

func (m *machine) expire(t *rapid.T) {
	expired := both(m, t, "expire", func(_ int, l *ledger.Ledger) (int, error) { return l.Expire(m.tb.Context(), 100) })
	same(t, "expired", [2]any{expired[0], expired[1]})
}

func (m *machine) promote(t *rapid.T) {
	next := both(m, t, "promote", func(_ int, l *ledger.Ledger) (time.Time, error) { return l.Promote(m.tb.Context(), 100) })
	same(t, "next due", [2]any{next[0].UTC(), next[1].UTC()})
}

func (m *machine) prune(t *rapid.T) {
	got := both(m, t, "prune", func(_ int, l *ledger.Ledger) (int, error) { return l.Prune(m.tb.Context(), 100) })
	same(t, "pruned", [2]any{got[0], got[1]})
}

func (m *machine) beat(t *rapid.T) {
	ttl := time.Duration(rapid.IntRange(0, 100).Draw(t, "ttl")) * time.Second
	both(m, t, "beat", func(_ int, l *ledger.Ledger) (int, error) {
		return 0, l.Beat(m.tb.Context(), ledger.Agent{Name: "x"}, ttl)
	})
}

// filters compares what readers see.
func (m *machine) filters(t *rapid.T) {
	f := m.filter(t)
	for _, read := range []func(ledger.Store) ([]ledger.Record, error){
		func(s ledger.Store) ([]ledger.Record, error) { return s.Records(m.tb.Context(), f, 0, 100) },
		func(s ledger.Store) ([]ledger.Record, error) { return s.Recent(m.tb.Context(), f, 100) },
	} {
		var got [2][]string
		for i, s := range m.stores {
			recs, err := read(s)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range recs {
				got[i] = append(got[i], fmt.Sprint(r.Identity, r.State()))
			}
			slices.Sort(got[i]) // attempts that ended at the same instant come in any order
		}
		same(t, fmt.Sprintf("records of %+v", f), [2]any{got[0], got[1]})
	}
	n := both(m, t, "count", func(_ int, l *ledger.Ledger) (int64, error) { return l.Count(m.tb.Context(), f) })
	same(t, "count", [2]any{n[0], n[1]})
	counts := both(m, t, "counts", func(_ int, l *ledger.Ledger) ([]ledger.Counts, error) { return l.Counts(m.tb.Context(), start) })
	same(t, "counts", [2]any{counts[0], counts[1]})
}
