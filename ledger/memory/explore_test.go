package memory

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

var exploreDepth = flag.Int("explore", 5, "TestExplore tries all sequences of so many steps")

// TestExplore is a small model checker. It tries all that two agents, an operator, the clock and a restored backup can
// do with one item, up to a number of steps, by a breadth-first search of the states. States with the same key are
// searched once. The model is the rules themselves over this store. make model takes more steps.
func TestExplore(t *testing.T) {
	begin := newWorld(t)
	seen := map[string]bool{begin.key(): true}
	tried := 0
	for depth, level := 0, []*world{begin}; depth < *exploreDepth && len(level) > 0; depth++ {
		var next []*world
		for _, w := range level {
			for _, s := range steps {
				to := w.clone()
				to.path = append(slices.Clip(w.path), s.name)
				if !s.take(to) {
					continue
				}
				tried++
				if key := to.key(); !seen[key] {
					seen[key] = true
					to.check()
					next = append(next, to)
				}
				if t.Failed() {
					return
				}
			}
		}
		level = next
		t.Logf("depth %d: %d states, %d steps", depth+1, len(seen), tried)
	}
}

// world is a state of the model.
type world struct {
	t     *testing.T
	store *Store
	now   time.Time
	path  []string         // the steps that led here
	hands [2]*ledger.Lease // the newest lease of each agent, in force or not
	saved *world           // the backup

	highest int64           // the greatest attempt that a claim returned
	done    map[int64]int64 // attempts that Finish confirmed as done → their rounds
}

const lease = time.Minute

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), done: map[int64]int64{}}
	w.store = New(Options{Now: func() time.Time { return w.now }})
	must.OK(t, w.ledger().SetKind(t.Context(), "ann", ledger.Kind{Name: "k", MaxFailures: 2, MaxLost: 2,
		Backoff: ledger.Backoff{Base: lease, Cap: lease}}))
	must.Do(t)(w.ledger().Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "1"}))
	return w
}

// ledger opens the ledger.
func (w *world) ledger() *ledger.Ledger {
	return ledger.New(w.store, ledger.Options{Jitter: func() float64 { return 0.5 }})
}

// clone copies a world. Rows of a store are never changed.
func (w *world) clone() *world {
	c := *w
	c.store = w.store.clone(func() time.Time { return c.now })
	c.done = maps.Clone(w.done)
	for i, l := range c.hands {
		if l != nil {
			own := *l
			c.hands[i] = &own
		}
	}
	return &c
}

// clone copies the parts of a store that items without limits need.
func (s *Store) clone(clock func() time.Time) *Store {
	c := New(Options{Now: clock})
	c.nextID, c.fence, c.floors = s.nextID, s.fence, slices.Clone(s.floors)
	c.rows, c.byKey, c.kinds = maps.Clone(s.rows), maps.Clone(s.byKey), maps.Clone(s.kinds)
	return c
}

// step is something that may happen; take reports whether it can.
type step struct {
	name string
	take func(*world) bool
}

var steps = slices.Concat(of("a", 0), of("b", 1), []step{
	{"the clock goes on", func(w *world) bool { w.now = w.now.Add(lease * 2 / 3); return true }},
	{"expiry", func(w *world) bool {
		must.Do(w.t)(w.ledger().Expire(w.t.Context(), 10))
		must.Do(w.t)(w.ledger().Promote(w.t.Context(), 10))
		return true
	}},
	{"cancel", func(w *world) bool { return w.acts((*ledger.Ledger).Cancel) }},
	{"retry", func(w *world) bool { return w.acts((*ledger.Ledger).Retry) }},
	{"reopen", func(w *world) bool { return w.acts((*ledger.Ledger).Reopen) }},
	{"a new version", func(w *world) bool {
		if w.row().Fingerprint != "1" {
			return false
		}
		must.Do(w.t)(w.ledger().Add(w.t.Context(), ledger.NewItem{Kind: "k", Key: "x", Fingerprint: "2"}))
		return true
	}},
	{"backup", func(w *world) bool {
		if w.saved != nil {
			return false
		}
		w.saved = w.clone()
		return true
	}},
	{"restoration", func(w *world) bool {
		if w.saved == nil || len(w.store.floors) > 0 {
			return false
		}
		w.store, w.done = w.saved.clone().store, maps.Clone(w.saved.done)
		w.store.clock = func() time.Time { return w.now }
		_, _, err := w.ledger().Restored(w.t.Context(), "ann")
		must.OK(w.t, err)
		if w.holds(0) || w.holds(1) {
			w.fail("a lease is in force after the restoration")
		}
		return true
	}},
})

// of returns the steps of an agent; i is its index in hands.
func of(agent string, i int) []step {
	ends := func(r ledger.Result) func(*world) bool {
		return func(w *world) bool { return w.hands[i] != nil && w.ends(i, r) }
	}
	return []step{
		{agent + " claims", func(w *world) bool {
			leases, err := w.ledger().Claim(w.t.Context(), ledger.Claim{Kind: "k", Agent: agent, Limit: 1, TTL: lease})
			must.OK(w.t, err)
			if len(leases) == 0 {
				return false
			}
			if leases[0].Attempt <= w.highest {
				w.fail("attempt %d was given out, and %d before", leases[0].Attempt, w.highest)
			}
			w.hands[i], w.highest = leases[0], leases[0].Attempt
			return true
		}},
		{agent + " renews", func(w *world) bool {
			if w.hands[i] == nil {
				return false
			}
			held := w.holds(i)
			err := w.ledger().Renew(w.t.Context(), lease, w.hands[i])[0]
			if renewed := err == nil || errors.Is(err, ledger.ErrCancelled); renewed && !held {
				w.fail("a lease that was lost is renewed: %v", err)
			}
			return true
		}},
		{agent + " reports done", ends(ledger.Done(nil))},
		{agent + " reports a failure", ends(ledger.Fail(errors.New("no")))},
		{agent + " releases", ends(ledger.Release())},
	}
}

// ends has an agent report a result, on time or not.
func (w *world) ends(i int, r ledger.Result) bool {
	held := w.holds(i)
	end := []ledger.Ending{{Lease: w.hands[i], Result: r}}
	err := w.ledger().Finish(w.t.Context(), end...)[0]
	switch confirmed := err == nil; {
	case confirmed && !held && w.recorded(i) != end[0].Recorded: // what is recorded may be confirmed again
		w.fail("%s was confirmed as %s although the lease was lost", r.Outcome, end[0].Recorded)
	case confirmed && w.recorded(i) != end[0].Recorded || confirmed && r.Outcome != end[0].Recorded &&
		end[0].Recorded != ledger.OutcomeCancelled:
		w.fail("%s was confirmed as %s and recorded as %s", r.Outcome, end[0].Recorded, w.recorded(i))
	case !confirmed && held:
		w.fail("%s was refused although the lease was in force: %v", r.Outcome, err)
	case confirmed && held && end[0].Recorded.Completed():
		w.done[w.hands[i].Attempt] = w.row().attempts[len(w.row().attempts)-1].Epoch
	}
	return true
}

// recorded returns how the attempt of an agent's lease is recorded; "" if it is not.
func (w *world) recorded(i int) ledger.Outcome {
	for _, a := range w.row().attempts {
		if a.Attempt == w.hands[i].Attempt {
			return a.Outcome
		}
	}
	return ""
}

// acts has the operator act on the item.
func (w *world) acts(act func(*ledger.Ledger, context.Context, string, ledger.Filter, ...ledger.Acting) (int64,
	error)) bool {
	n, err := act(w.ledger(), w.t.Context(), "ann", ledger.IDs(1))
	must.OK(w.t, err)
	return n > 0
}

func (w *world) row() *row { return w.store.rows[1] }

// holds reports whether the lease of an agent is in force.
func (w *world) holds(i int) bool {
	if w.hands[i] == nil {
		return false
	}
	err := w.ledger().Held(w.t.Context(), w.hands[i])[0]
	return err == nil || errors.Is(err, ledger.ErrCancelled)
}

// check checks what has to be true in every state.
func (w *world) check() {
	if w.holds(0) && w.holds(1) {
		w.fail("both agents hold the item")
	}
	completed := map[int64]bool{}
	recorded := map[int64]ledger.Attempt{}
	last := int64(0)
	for _, a := range w.row().attempts {
		if a.Attempt <= last {
			w.fail("attempt %d is recorded after %d", a.Attempt, last)
		}
		if last = a.Attempt; a.Outcome.Completed() {
			if completed[a.Epoch] {
				w.fail("round %d was completed twice", a.Epoch)
			}
			completed[a.Epoch] = true
		}
		recorded[a.Attempt] = a
	}
	for attempt, round := range w.done {
		if a := recorded[attempt]; !a.Outcome.Completed() || a.Epoch != round {
			w.fail("attempt %d was confirmed as done in round %d, and is recorded as %+v", attempt, round, a)
		}
	}
	for v, err := range w.ledger().Verify(w.t.Context()) {
		w.fail("%+v, %v", v, err)
	}
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Errorf("%s\nafter: %s", fmt.Sprintf(format, args...), strings.Join(w.path, ", "))
}

// key is the same for worlds that go on alike: times are those from now, attempts those from the newest one.
func (w *world) key() string {
	var b strings.Builder
	r := w.row()
	newest := int64(0)
	for _, a := range r.attempts {
		newest = a.Attempt
		fmt.Fprint(&b, a.Outcome, a.Final, r.Epoch-a.Epoch, " ")
	}
	fmt.Fprint(&b, " ", r.Fingerprint, len(w.store.floors), w.highest-newest)
	if k := r.Work; k != nil {
		newest = max(newest, k.Attempt)
		fmt.Fprint(&b, " ", k.State, k.Due.Sub(w.now), k.ExpiresAt.Sub(w.now), k.Failures, k.Losses, k.Cancel, k.Reopen,
			r.Epoch-k.Epoch, k.Alone)
	}
	for i, l := range w.hands {
		if l != nil {
			fmt.Fprint(&b, " ", i, newest-l.Attempt, w.recorded(i), w.holds(i))
		}
	}
	if w.saved != nil {
		fmt.Fprint(&b, " saved ", w.now.Sub(w.saved.now), w.saved.key())
	}
	return b.String()
}
