package sqlite

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
)

// If there are more statements than stay prepared, the later ones are prepared again.
func TestManyStatements(t *testing.T) {
	s := testStore(t, Options{})
	for i := range 2 * maxPrepared {
		err := s.read(t.Context(), false, func(r session) error {
			return r.query(fmt.Sprintf("SELECT %d", i), func(r row) error {
				if r.int(0) != int64(i) {
					t.Errorf("%d is %d", i, r.int(0))
				}
				return nil
			})
		})
		must.OK(t, err)
	}
	h := <-s.readers.free
	if n := len(h.stmts); n > maxPrepared {
		t.Errorf("%d statements stay prepared", n)
	}
	s.readers.free <- h
}

// Reads that take long do not hold up the hot path.
func TestSlowReaders(t *testing.T) {
	s := testStore(t, Options{})
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "a"}))
	reading, end := make(chan bool), make(chan bool)
	var slow sync.WaitGroup
	for range maxReaders {
		slow.Go(func() {
			_ = s.read(t.Context(), true, func(session) error {
				reading <- true
				<-end
				return nil
			})
		})
		<-reading
	}
	defer slow.Wait()
	defer close(end)
	leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	if err != nil || len(leases) != 1 {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	_, errs := l.Extend(t.Context(), time.Minute, leases...)
	must.OK(t, errs[0])
	must.Do(t)(l.Promote(t.Context(), 10))
	must.Do(t)(l.Expire(t.Context(), 10))
	must.Do(t)(l.ExpireGone(t.Context()))
	must.Do(t)(l.Kinds(t.Context()))
	must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})[0])
}

// The oldest ends, and the newest, are of one kind. Ended reads hardly anything of the other kinds, however many
// there are.
func TestEndedOfManyKinds(t *testing.T) {
	s := testStore(t, Options{})
	l := ledger.New(s, ledger.Options{})
	const kinds, each = 20, 30
	for kind := range kinds {
		items := make([]ledger.NewItem, each)
		for i := range items {
			items[i] = ledger.NewItem{Kind: fmt.Sprintf("k%02d", kind), Key: fmt.Sprint(i)}
		}
		must.Do(t)(l.Add(t.Context(), items...))
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: items[0].Kind, Agent: "a", Limit: each})
		must.OK(t, err)
		for _, ls := range leases {
			must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: ls, Result: ledger.Done(nil)})[0])
		}
	}
	ran := measure(t, s)
	for _, desc := range []bool{false, true} {
		ran()
		got, err := l.Ended(t.Context(), ledger.EndedQuery{Limit: each, Body: true, Desc: desc})
		if err != nil || len(got) != each || got[0].Kind != got[each-1].Kind {
			t.Fatalf("%d ended, %v", len(got), err)
		}
		steps := map[any]int{} // by kind
		for _, m := range ran() {
			if strings.Contains(m.query, "FROM ledger_attempts a") {
				steps[m.args[5]] += m.steps
			}
		}
		oldest := steps["k00"]
		if !desc && (len(steps) != kinds || steps["k01"]*4 > oldest || steps["k19"]*4 > oldest) {
			t.Errorf("steps by kind: %v", steps)
		}
	}
}

// A reading connection whose call panicked is not used again, because its transaction is open.
func TestPanicOfReader(t *testing.T) {
	s := testStore(t, Options{})
	for range maxReaders + 1 {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = s.read(t.Context(), true, func(session) error { panic("an unknown code") })
		}()
	}
	for range maxReaders + 1 {
		must.Do(t)(s.Audit(t.Context(), 0, 1))
	}
}
