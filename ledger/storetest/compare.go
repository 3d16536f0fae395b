package storetest

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
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
	// Begin begins a transaction of the caller's and returns how to end it.
	Begin func() (conn ledger.Conn, end func(commit bool) error, err error)
	// Faults name what Break can do.
	Faults []string
	// Break lets a fault strike the k-th statement from now on of the store opened last. mend
	// ends that; landed: it struck after the statement had taken effect.
	Break func(fault string, k int) (mend func() (landed bool))
	// Lags: a store may overlook for a while what a caller's transaction, or a clock
	// that was set back, put behind the places that it remembers; one that is opened does not.
	Lags bool
}

// NewPlace makes an empty place. It goes when the test ends. now replaces the database's clock.
type NewPlace func(t testing.TB, now func() time.Time) Place

// Compare runs random operations on a store and on the one in memory, and wants the same
// answers and the same rows after each. How much it runs is up to the flags -rapid.checks and
// -rapid.steps.
func Compare(t *testing.T, place NewPlace) {
	few(t)
	rapid.Check(t, func(rt *rapid.T) { compare(t, rt, place) })
}

// few lets a run of all tests do with fewer random histories than rapid takes by default; make
// model runs more.
func few(t *testing.T) {
	checks := flag.Lookup("rapid.checks")
	if given := checks.Value.String(); given == checks.DefValue {
		must.OK(t, checks.Value.Set("25"))
		t.Cleanup(func() { _ = checks.Value.Set(given) })
	}
}

// FuzzCompare is Compare where go test -fuzz chooses the operations.
func FuzzCompare(f *testing.F, place NewPlace) {
	choices := make([]byte, 16<<10) // of a history long enough to have something changed in it
	must.Do(f)(rand.NewChaCha8([32]byte{}).Read(choices))
	f.Add(choices)
	f.Fuzz(func(t *testing.T, choices []byte) {
		rapid.MakeFuzz(func(rt *rapid.T) { compare(t, rt, place) })(t, choices)
	})
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
		"renew":       m.renew,
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

// machine is a pair of ledgers, one in memory and the one under test, that get the same calls.
type machine struct {
	tb     *testing.T
	clock  *clock
	place  Place
	memory *memory.Store
	stores [2]ledger.Store
	l      [2]*ledger.Ledger
	leases [][2]*ledger.Lease // all that were ever granted
	locks  [][2]*locks.Lock   // the same
	fences [2]int64           // of the newest locks

	repeated bool // the newest call of both had to be repeated
	struck   bool // the newest fault was one
	miscount bool // a renewal was repeated of which a part may have been committed: it may count once or twice
}

func newMachine(t *testing.T, place NewPlace) *machine {
	c := &clock{t: start}
	m := &machine{tb: t, clock: c, place: place(t, c.now), memory: memory.New(memory.Options{Now: c.now})}
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

// restart closes the store and opens it again: nothing may be kept in the process alone.
func (m *machine) restart(t *rapid.T) {
	must.OK(t, m.l[1].Close())
	m.open()
}

// fault draws whether something goes wrong in a call, and what; strike arms it.
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

// both runs a call on both ledgers and compares its answers. Something may go wrong in the store:
// either the call does not show it, or it answers that the ledger was unavailable. Then the caller
// repeats it, and the outcome must be that of one call, or of two if the first one took effect.
func both[T any](m *machine, t *rapid.T, what string, call func(i int, l *ledger.Ledger) (T, error)) [2]T {
	return bothUnder(m, t, m.fault(t), what, call)
}

// sound is a fault that does not strike.
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

// reason is what of an error is the same on every store.
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

// unavailable is the error of a call with an answer per lease that is to be repeated.
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

// ids are those of all items, in order. The order is the same in both ledgers: stores may leave gaps.
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

// keyOf names an item where ids differ.
func (m *machine) keyOf(i int, id int64) string {
	recs, err := m.stores[i].Records(m.tb.Context(), ledger.RecordQuery{Filter: ledger.IDs(id), Limit: 1})
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
	must.OK(t, err)
	out := make([]row, len(recs))
	for k, r := range recs {
		r.ID = 0
		if r.Scope == childScope {
			r.Source = "its parent" // by kind and id
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
		out[k] = row{r.Record, r.Attempts}
		for j := range out[k].Attempts {
			m.blur(&out[k].Attempts[j])
		}
	}
	return out
}

// blur removes what differs between two ledgers from an attempt.
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

// check compares all items after every step. A state that is the same in both ledgers breaks no invariant in one of
// them alone, so the store is asked for its own only now and then.
func (m *machine) check(t *rapid.T) {
	same(t, "rows", [2][]row{m.dump(t, 0), m.dump(t, 1)})
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
