package storetest

import (
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// This file draws what workers do (add, claim, finish) and does it in two ledgers: index 0 is the one in memory, index
// 1 the store under test. Both must answer alike. Faults are in compare.go: strike begins one, mend ends it and reports
// whether the failed statement had landed.

var kindNames = rapid.SampledFrom([]string{"a", "b"})

func (m *machine) newItems(t *rapid.T) []ledger.NewItem {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) ledger.NewItem {
		n := ledger.NewItem{
			Kind:        kindNames.Draw(t, "kind"),
			Scope:       rapid.SampledFrom([]string{"", "s"}).Draw(t, "scope"),
			Key:         rapid.SampledFrom([]string{"1", "2", "3", "é%_", "5\n", "a'b\"c$1"}).Draw(t, "key"),
			Fingerprint: rapid.SampledFrom([]string{"", "f", "g"}).Draw(t, "fingerprint"),
			Priority:    int16(rapid.IntRange(-2, 2).Draw(t, "priority")),
			Every:       rapid.SampledFrom([]string{"", "", "", "hour", "90s", "*/7 * * * *"}).Draw(t, "every"),
		}
		if rapid.Bool().Draw(t, "payload") {
			n.Payload = []byte(rapid.SampledFrom([]string{"{}", "\x00\xff", "", "1e400"}).Draw(t, "bytes"))
		}
		if rapid.IntRange(0, 3).Draw(t, "later") == 0 {
			n.Due = m.clock.now().Add(time.Duration(rapid.IntRange(-60, 600).Draw(t, "due")) * time.Second)
		}
		n.Trace = rapid.SampledFrom([]string{"", "", traceText, traceText + " a=1", "malformed"}).Draw(t, "trace")
		n.Again = ledger.Again{Dead: rapid.Bool().Draw(t, "again dead"), Cancelled: rapid.Bool().Draw(t, "again cancelled")}
		if rapid.IntRange(0, 3).Draw(t, "again done") == 0 {
			n.Again.DoneBefore = m.clock.now()
		}
		return n
	}), 1, 6).Draw(t, "items")
}

func (m *machine) sameAdded(t *rapid.T, items []ledger.NewItem, got [2][]ledger.Added) {
	for i := range got[1] {
		a, b := got[0][i], got[1][i]
		if a.Verdict != b.Verdict || a.State != b.State || m.keyOf(0, a.ID) != m.keyOf(1, b.ID) {
			t.Fatalf("adding %+v: in memory %+v, in the store %+v", items[i], a, b)
		}
	}
}

func (m *machine) add(t *rapid.T) {
	items := m.newItems(t)
	got := both(m, t, "add", func(_ int, l *ledger.Ledger) ([]ledger.Added, error) {
		return l.Add(m.tb.Context(), items...)
	})
	m.sameAdded(t, items, got)
}

func (m *machine) try(t *rapid.T) {
	items := m.newItems(t)
	got := both(m, t, "try", func(_ int, l *ledger.Ledger) ([]ledger.Added, error) {
		return l.Try(m.tb.Context(), items...)
	})
	m.sameAdded(t, items, got)
}

func newClaim(t *rapid.T) ledger.Claim {
	c := ledger.Claim{
		Kind:      kindNames.Draw(t, "kind"),
		Agent:     rapid.SampledFrom([]string{"x", "y"}).Draw(t, "agent"),
		Limit:     rapid.IntRange(1, 5).Draw(t, "limit"),
		TTL:       time.Duration(rapid.IntRange(1, 120).Draw(t, "ttl")) * time.Second,
		Resume:    rapid.IntRange(0, 4).Draw(t, "resume") == 0,
		LookFirst: rapid.Bool().Draw(t, "looks first"),
	}
	if rapid.IntRange(0, 4).Draw(t, "shard") == 0 {
		c.Shard = scheduler.Shard{Index: rapid.IntRange(0, 1).Draw(t, "index"), Count: 2}
	}
	return c
}

// withItems returns a claim for each ledger, since the ids differ. One claim in five names items.
func (m *machine) withItems(t *rapid.T, c ledger.Claim) [2]ledger.Claim {
	all := [2]ledger.Claim{c, c}
	ids := m.ids(t)
	if n := len(ids[0]); n > 0 && rapid.IntRange(0, 4).Draw(t, "names items") == 0 {
		for _, at := range rapid.SliceOfNDistinct(rapid.IntRange(0, n-1), 1, 5, rapid.ID[int]).Draw(t, "items") {
			for i := range all {
				all[i].Items = append(all[i].Items, ids[i][at])
			}
		}
	}
	return all
}

func (m *machine) claim(t *rapid.T) {
	c := m.withItems(t, newClaim(t))
	got := both(m, t, "claim", func(i int, l *ledger.Ledger) ([]*ledger.Lease, error) {
		return l.Claim(m.tb.Context(), c[i])
	})
	m.granted(t, got)
}

func (m *machine) granted(t *rapid.T, got [2][]*ledger.Lease) {
	same(t, "claimed", [2][]string{claimed(got[0]), claimed(got[1])})
	for i, l := range got[0] {
		if !l.Resumed && l.Attempt <= m.newest[l.ID] {
			t.Fatalf("item %d: attempt %d was given out, and %d before", l.ID, l.Attempt, m.newest[l.ID])
		}
		m.newest[l.ID] = l.Attempt
		m.leases = append(m.leases, [2]*ledger.Lease{got[0][i], got[1][i]})
	}
}

func claimed(ls []*ledger.Lease) []string {
	var out []string
	for _, l := range ls {
		out = append(out, fmt.Sprint(l.Kind, l.Scope, l.Key, string(l.Payload), l.Fingerprint, l.Attempt, l.Round, l.Alone,
			l.Resumed, l.StartedAt, l.ExpiresAt, l.Due, l.Priority))
	}
	return out
}

// some draws a few of the newest leases, most of them stale, and now and then one that was never granted.
func (m *machine) some(t *rapid.T) [][2]*ledger.Lease {
	if len(m.leases) == 0 {
		t.Skip("nothing was claimed yet")
	}
	from := m.leases[max(0, len(m.leases)-12):]
	pairs := rapid.SliceOfNDistinct(rapid.SampledFrom(from), 1, 4, func(p [2]*ledger.Lease) *ledger.Lease {
		return p[0]
	}).Draw(t, "leases")
	if rapid.IntRange(0, 4).Draw(t, "invents") == 0 {
		pairs = append(pairs, invent(t, rapid.SampledFrom(from).Draw(t, "like")))
	}
	return pairs
}

// invent makes a lease that was never granted out of one that was.
func invent(t *rapid.T, p [2]*ledger.Lease) [2]*ledger.Lease {
	how := rapid.SampledFrom([]string{"token", "no token", "attempt", "item"}).Draw(t, "invented")
	var out [2]*ledger.Lease
	for i := range p {
		l := *p[i]
		switch how {
		case "token":
			l.LockID = uuid.UUID{1, 2, 3}
		case "no token":
			l.LockID = uuid.Nil
		case "attempt": // the token of the claim, but another attempt
			l.Attempt += 3
		case "item":
			l.ID += 1 << 40
		}
		out[i] = &l
	}
	return out
}

// side returns the leases of pairs on one side: 0 in memory, 1 in the store.
func side(pairs [][2]*ledger.Lease, i int) []*ledger.Lease {
	out := make([]*ledger.Lease, len(pairs))
	for k := range pairs {
		out[k] = pairs[k][i]
	}
	return out
}

// perLease runs a call that answers for each lease.
func (m *machine) perLease(t *rapid.T, what string, pairs [][2]*ledger.Lease, call func(l *ledger.Ledger,
	leases []*ledger.Lease) []error) {
	got := both(m, t, what, func(i int, l *ledger.Ledger) ([]string, error) {
		errs := call(l, side(pairs, i))
		return reasons(errs), unavailable(errs)
	})
	same(t, what, got)
}

func (m *machine) start(t *rapid.T) {
	m.perLease(t, "start", m.some(t), func(l *ledger.Ledger, ls []*ledger.Lease) []error {
		return l.Start(m.tb.Context(), time.Minute, ls...)
	})
}

func (m *machine) extend(t *rapid.T) {
	pairs := m.some(t)
	got := both(m, t, "extend", func(i int, l *ledger.Ledger) ([]string, error) {
		ends, errs := l.Extend(m.tb.Context(), time.Minute, side(pairs, i)...)
		told := reasons(errs)
		for k := range told {
			told[k] += " until " + ends[k].UTC().String()
		}
		return told, unavailable(errs)
	})
	// a repeated renewal may have been committed in part, so renewals are no longer compared
	m.miscount = m.miscount || m.repeated
	same(t, "extend", got)
}

func (m *machine) unclaim(t *rapid.T) {
	pairs := m.some(t)
	both(m, t, "unclaim", func(i int, l *ledger.Ledger) (struct{}, error) {
		return struct{}{}, l.Unclaim(m.tb.Context(), side(pairs, i)...)
	})
}

// byToken compares the leases found by their full tokens.
func (m *machine) byToken(t *rapid.T) {
	pairs := m.some(t)
	got := both(m, t, "leases of tokens", func(i int, l *ledger.Ledger) ([]string, error) {
		var tokens []string
		for _, ls := range side(pairs, i) {
			tokens = append(tokens, ls.FullToken())
		}
		leases, errs := l.LeasesOf(m.tb.Context(), tokens...)
		told := reasons(errs)
		for k, ls := range leases {
			if errs[k] == nil {
				told[k] = fmt.Sprint(ls.Kind, ls.Scope, ls.Key, ls.Attempt, ls.Agent, ls.State, ls.Item.Agent,
					ls.StartedAt.UTC(), ls.ExpiresAt.UTC())
			}
		}
		_, inForce := l.LeasesHeld(m.tb.Context(), tokens...)
		told = append(told, reasons(inForce)...)
		return told, unavailable(errs)
	})
	same(t, "leases of tokens", got)
}

func (m *machine) held(t *rapid.T) {
	m.perLease(t, "held", m.some(t), func(l *ledger.Ledger, ls []*ledger.Lease) []error {
		return l.Held(m.tb.Context(), ls...)
	})
}

func (m *machine) endings(t *rapid.T) (e [2][]ledger.Ending) {
	for _, p := range m.some(t) {
		r := m.result(t)
		for i := range e {
			e[i] = append(e[i], ledger.Ending{Lease: p[i], Result: r})
		}
	}
	return e
}

// finish ends leases, once or twice: a caller that got no answer ends them again.
func (m *machine) finish(t *rapid.T) {
	e := m.endings(t)
	for range rapid.IntRange(1, 2).Draw(t, "times") {
		got := both(m, t, "finish", func(i int, l *ledger.Ledger) ([]string, error) {
			errs := l.Finish(m.tb.Context(), e[i]...)
			return reasons(errs), unavailable(errs)
		})
		same(t, "finish", got)
		sameEnds(t, e)
	}
}

// exchange ends leases and claims in one call. If the ledger was unavailable, the leases have nevertheless been
// ended, and it is unknown whether anything was claimed. The caller does not repeat the call.
func (m *machine) exchange(t *rapid.T) {
	e, c, strike := m.endings(t), m.withItems(t, newClaim(t)), m.fault(t)
	var told [2][]string
	var got [2][]*ledger.Lease
	var errs [2]error
	call := func(i int) {
		var ended []error
		ended, got[i], _, errs[i] = m.l[i].FinishAndClaim(m.tb.Context(), c[i], e[i]...)
		told[i] = reasons(ended)
	}
	mend := strike()
	call(1)
	landed := mend()
	if lost := errors.Is(errs[1], ledger.ErrUnavailable); lost && !landed {
		told[0] = reasons(m.l[0].Finish(m.tb.Context(), e[0]...))
	} else if call(0); lost {
		got[0] = nil
	} else if reason(errs[0]) != reason(errs[1]) {
		t.Fatalf("exchange: in memory %v, in the store %v", errs[0], errs[1])
	}
	same(t, "ended", told)
	sameEnds(t, e)
	m.granted(t, got)
}

func sameEnds(t *rapid.T, e [2][]ledger.Ending) {
	var became [2][]string
	for i := range e {
		for _, end := range e[i] {
			became[i] = append(became[i], fmt.Sprint(end.Recorded, " ", end.State))
		}
	}
	same(t, "what became of endings", became)
}

func (m *machine) result(t *rapid.T) ledger.Result {
	r := ledger.Result{
		Outcome:  rapid.SampledFrom(ledger.Outcomes).Draw(t, "outcome"),
		Final:    rapid.IntRange(0, 5).Draw(t, "final") == 0,
		NoReport: rapid.IntRange(0, 3).Draw(t, "no report") == 0,
		Code:     rapid.SampledFrom([]string{"", "c"}).Draw(t, "code"),
		Error:    rapid.SampledFrom([]string{"", "e\x00", "%s%d\u2028😀"}).Draw(t, "error"),
		Delay:    time.Duration(rapid.IntRange(0, 300).Draw(t, "delay")) * time.Second,
	}
	if rapid.Bool().Draw(t, "output") {
		r.Output = []byte(rapid.SampledFrom([]string{"o", `{"status":404,"text":"\u0061"}`,
			`{"status":"404","text":"\u0000é"}`, "{\"text\":\"\xff\"}"}).Draw(t, "output"))
	}
	if r.Outcome.Completed() && rapid.IntRange(0, 3).Draw(t, "emit") == 0 {
		key := rapid.SampledFrom([]string{"c1", "c2"}).Draw(t, "child")
		r.Emit = []ledger.NewItem{{Kind: "b", Scope: childScope, Key: key}}
	}
	return r
}

// inTx is an operation in a transaction of the caller. answer compares the results.
type inTx struct {
	run    func(i int, l *ledger.Ledger, conn ledger.Conn) error
	answer func()
}

func (m *machine) addInTx(t *rapid.T) inTx {
	items := m.newItems(t)
	var got [2][]ledger.Added
	return inTx{func(i int, l *ledger.Ledger, conn ledger.Conn) (err error) {
		got[i], err = l.AddTx(m.tb.Context(), conn, items...)
		return err
	}, func() {
		for k := range got[0] { // ids are compared after the commit
			if got[0][k].Verdict != got[1][k].Verdict || got[0][k].State != got[1][k].State {
				t.Fatalf("adding %+v: in memory %+v, in the store %+v", items[k], got[0][k], got[1][k])
			}
		}
	}}
}

func (m *machine) finishInTx(t *rapid.T) inTx {
	e := m.endings(t)
	return inTx{func(i int, l *ledger.Ledger, conn ledger.Conn) error {
		return l.FinishTx(m.tb.Context(), conn, e[i]...)
	}, func() { sameEnds(t, e) }}
}

// transaction adds and finishes in a transaction of the caller. The transaction is rolled back after a refusal, and
// now and then without a reason. After a fault, nothing of it stays.
func (m *machine) transaction(t *rapid.T) {
	var ops []inTx
	for range rapid.IntRange(1, 2).Draw(t, "operations") {
		if len(m.leases) > 0 && rapid.Bool().Draw(t, "finishes") {
			ops = append(ops, m.finishInTx(t))
		} else {
			ops = append(ops, m.addInTx(t))
		}
	}
	run := func(i int, conn ledger.Conn) (err error) {
		for k := 0; k < len(ops) && err == nil; k++ {
			err = ops[k].run(i, m.l[i], conn)
		}
		return err
	}
	strike, commit := m.fault(t), rapid.IntRange(0, 2).Draw(t, "rolls back") > 0
	conn, end, err := m.place.Begin()
	must.OK(t, err)
	mend := strike()
	failed := run(1, conn)
	mend()
	if errors.Is(failed, ledger.ErrUnavailable) {
		_ = end(false) // the connection may be gone
		return
	}
	spec := m.memory.Begin()
	refused := run(0, spec)
	commit = commit && refused == nil
	if err := end(commit); err != nil {
		if !m.struck {
			t.Fatal(err)
		}
		spec.End(false) // the connection was lost after the last statement, before it could commit
		return
	}
	spec.End(commit)
	if reason(refused) != reason(failed) {
		t.Fatalf("in a transaction: in memory %v, in the store %v", refused, failed)
	}
	if refused == nil {
		for _, op := range ops {
			op.answer()
		}
	}
	if commit && m.place.Lags { // an open store may overlook rows of this transaction; a new one does not
		m.restart(t)
	}
}
