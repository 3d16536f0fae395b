package storetest

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Place is a database for one ledger, empty at first.
type Place struct {
	// Open opens the ledger that is there. Compare closes it and opens it again.
	Open func() (ledger.Store, error)
	// Begin starts a transaction of the caller and returns a function that ends it.
	Begin func() (conn ledger.Conn, end func(commit bool) error, err error)
	// Faults are the names of the faults that Break can cause.
	Faults []string
	// Break makes the k-th statement from now on fail, in the store opened last. mend ends the fault. landed reports
	// whether the statement had taken effect before it failed.
	Break func(fault string, k int) (mend func() (landed bool))
	// Lags: the store remembers places in its indexes. For a while it may overlook rows that a transaction of the
	// caller, or a clock that was set back, puts before these places. A store just opened does not.
	Lags bool
}

// NewPlace makes an empty place and removes it when the test ends. now replaces the database's clock.
type NewPlace func(t testing.TB, now func() time.Time) Place

// Compare runs random operations on a store and on the store in memory. Both must give the same answers and hold the
// same rows after each operation. The flags -rapid.checks and -rapid.steps set how much it runs.
func Compare(t *testing.T, place NewPlace) {
	fewerChecks(t)
	rapid.Check(t, func(rt *rapid.T) { compare(t, rt, place) })
}

// fewerChecks reduces the number of random histories below rapid's default, so that a run of all tests stays short.
// `make model` runs more.
func fewerChecks(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	if given := checks.Value.String(); given == checks.DefValue {
		must.OK(t, checks.Value.Set("25"))
		t.Cleanup(func() { _ = checks.Value.Set(given) })
	}
}

func compare(t *testing.T, rt *rapid.T, place NewPlace) {
	m := newMachine(t, place)
	defer func() { m.leave(); m.l[1].Close() }()
	rt.Repeat(map[string]func(*rapid.T){
		"":            m.check,
		"add":         m.add,
		"try":         m.try,
		"claim":       m.claim,
		"start":       m.start,
		"held":        m.held,
		"extend":      m.extend,
		"unclaim":     m.unclaim,
		"by token":    m.byToken,
		"finish":      m.finish,
		"exchange":    m.exchange,
		"transaction": m.transaction,
		"act":         m.act,
		"decide":      m.decide,
		"token":       m.token,
		"prune older": m.pruneOlder,
		"policy":      m.policy,
		"define":      m.define,
		"tick":        m.tick,
		"back":        m.back,
		"restart":     m.restart,
		"expire":      m.expire,
		"gone":        m.gone,
		"restored":    m.restored,
		"promote":     m.promote,
		"prune":       m.prune,
		"beat":        m.beat,
		"filters":     m.filters,
		"ended":       m.ended,
		"tallies":     m.tallies,
		"items":       m.items,
		"kinds":       m.kinds,
		"acquire":     m.acquire,
		"release":     m.release,
		"break":       m.breakLock,
		"locks":       m.heldLocks,
	})
}

// machine applies the same calls to two ledgers: one in memory and the one under test.
type machine struct {
	tb     *testing.T
	clock  *clock
	place  Place
	memory *memory.Store
	stores [2]ledger.Store
	l      [2]*ledger.Ledger
	leases [][2]*ledger.Lease // all leases ever granted
	newest map[int64]int64    // item of the ledger in memory → its newest attempt
	locks  [][2]*locks.Lock   // all locks ever granted
	fences [2]int64           // of the newest locks

	repeated bool // the newest call was repeated
	struck   bool // a fault was armed for the newest call
	miscount bool // a repeated renewal may have been committed in part, so it may count once or twice
}

func newMachine(t *testing.T, place NewPlace) *machine {
	c := &clock{t: start}
	m := &machine{tb: t, clock: c, place: place(t, c.now), memory: memory.New(memory.Options{Now: c.now}),
		newest: map[int64]int64{}}
	m.stores[0] = m.memory
	m.l[0] = ledger.New(m.memory, chanceless)
	m.open()
	return m
}

var chanceless = ledger.Options{Jitter: func() float64 { return 0.5 }, Gone: gone}

func (m *machine) open() {
	store, err := m.place.Open()
	must.OK(m.tb, err)
	m.stores[1] = store
	m.l[1] = ledger.New(store, chanceless)
}

// restart closes the store and opens it again: a store may keep no state in the process only.
func (m *machine) restart(t *rapid.T) {
	must.OK(t, m.l[1].Close())
	m.open()
}

// fault draws whether a call fails, and how. strike arms the fault.
func (m *machine) fault(t *rapid.T) (strike func() (mend func() (landed bool))) {
	m.struck = false
	if len(m.place.Faults) == 0 || rapid.IntRange(0, 5).Draw(t, "breaks") > 0 {
		return sound
	}
	fault, k := rapid.SampledFrom(m.place.Faults).Draw(t, "fault"), rapid.IntRange(1, 8).Draw(t, "at statement")
	return func() func() bool {
		m.struck = true
		return m.place.Break(fault, k)
	}
}

// both runs a call on both ledgers and compares the errors. If a fault strikes the store, the call either hides it or
// answers that the ledger was unavailable. Then the caller repeats the call. The result must be that of one call, or
// of two if the first one took effect.
func both[T any](m *machine, t *rapid.T, what string, call func(i int, l *ledger.Ledger) (T, error)) [2]T {
	return bothUnder(m, t, m.fault(t), what, call)
}

// sound is no fault: nothing fails.
func sound() (mend func() (landed bool)) { return func() bool { return false } }

func bothUnder[T any](m *machine, t *rapid.T, strike func() func() bool, what string,
	call func(i int, l *ledger.Ledger) (T, error)) [2]T {
	var got [2]T
	var errs [2]error
	mend := strike()
	got[1], errs[1] = call(1, m.l[1])
	landed := mend()
	if m.repeated = errors.Is(errs[1], ledger.ErrUnavailable); m.repeated {
		if landed {
			call(0, m.l[0])
		}
		got[1], errs[1] = call(1, m.l[1])
	}
	got[0], errs[0] = call(0, m.l[0])
	if reason(errs[0]) != reason(errs[1]) {
		t.Fatalf("%s: in memory %v, in the store %v", what, errs[0], errs[1])
	}
	return got
}

// reason is the part of an error that is the same on every store.
func reason(err error) string {
	var bad *ledger.InvalidError
	if errors.As(err, &bad) {
		return bad.Field
	}
	var other *ledger.DefinitionError
	if errors.As(err, &other) {
		agents := slices.Clone(other.Agents)
		for i, a := range agents {
			agents[i].StartedAt, agents[i].SeenAt = a.StartedAt.UTC(), a.SeenAt.UTC()
		}
		return fmt.Sprint(other, other.Have, agents)
	}
	for _, known := range []error{ledger.ErrLeaseLost, ledger.ErrNotFound, ledger.ErrCancelled} {
		if errors.Is(err, known) {
			return known.Error()
		}
	}
	return fmt.Sprint(err)
}

func reasons(errs []error) []string {
	out := make([]string, len(errs))
	for i, err := range errs {
		out[i] = reason(err)
	}
	return out
}

// unavailable returns the error that requires a repetition, of a call with one error per lease.
func unavailable(errs []error) error {
	for _, err := range errs {
		if errors.Is(err, ledger.ErrUnavailable) {
			return err
		}
	}
	return nil
}

func same[T any](t *rapid.T, what string, got [2]T) {
	if d := cmp.Diff(got[0], got[1]); d != "" {
		t.Fatalf("%s (-memory +store):\n%s", what, d)
	}
}

// ids returns the ids of all items, in order. Both ledgers have the same order, but a store may leave gaps.
func (m *machine) ids(t *rapid.T) (ids [2][]int64) {
	for i, s := range m.stores {
		recs, err := s.Records(m.tb.Context(), ledger.RecordQuery{Limit: 1000})
		must.OK(t, err)
		for _, r := range recs {
			ids[i] = append(ids[i], r.ID)
		}
	}
	return ids
}

// keyOf returns the identity of an item, since the ids of the two ledgers differ.
func (m *machine) keyOf(i int, id int64) string {
	recs, err := m.stores[i].Records(m.tb.Context(), ledger.RecordQuery{Filter: ledger.IDs(id), Limit: 1})
	if err != nil || len(recs) != 1 {
		return fmt.Sprint("none ", err)
	}
	return fmt.Sprint(recs[0].Identity)
}

// childScope is the scope of emitted items. The default scope contains the id of the parent, and ids differ.
const childScope = "children"

// dump returns the items with their attempts, without ids and tokens.
func (m *machine) dump(t *rapid.T, i int) []ledger.Audited {
	all, err := m.stores[i].Audit(m.tb.Context(), 0, 1000)
	must.OK(t, err)
	for k := range all {
		r := &all[k]
		r.ID = 0
		if r.Scope == childScope {
			r.Source = "its parent" // the source contains the id of the parent
		}
		if r.Last != nil {
			last := *r.Last
			r.Last = &last
			m.blur(r.Last)
		}
		if r.Work != nil && m.miscount {
			r.Work.Renewals = 0
		}
		if r.Work != nil && r.Work.LockID != uuid.Nil {
			r.Work.LockID = uuid.Max
		}
		for j := range r.Attempts {
			m.blur(&r.Attempts[j])
		}
	}
	return append([]ledger.Audited{}, all...) // never nil
}

// blur removes from an attempt what differs between two ledgers.
func blur(a *ledger.Attempt) {
	a.ItemID = 0
	if a.LockID != "" {
		a.LockID = "some"
	}
}

func (m *machine) blur(a *ledger.Attempt) {
	if blur(a); m.miscount {
		a.Renewals = 0
	}
}

// check compares all items after every step. Both ledgers then hold the same rows and break the same invariants, so
// it verifies the one in memory only. kinds verifies the store now and then.
func (m *machine) check(t *rapid.T) {
	same(t, "rows", [2][]ledger.Audited{m.dump(t, 0), m.dump(t, 1)})
	m.verify(t, m.l[0])
	var st [2]stats.Standing
	for i, l := range m.l {
		var err error
		if st[i], err = l.Standing(m.tb.Context(), "a"); err != nil {
			t.Fatal(err)
		}
	}
	same(t, "standing", st)
}

func (m *machine) verify(t *rapid.T, l *ledger.Ledger) {
	for v, err := range l.Verify(m.tb.Context()) {
		t.Fatalf("%s, item %d: %s, %v", v.Rule, v.ItemID, v.Text, err)
	}
}
