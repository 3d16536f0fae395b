package ours

import (
	"context"
	"testing"

	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
)

// The rows that are put into a ledger by SQL are those that ledgerd itself would have left.
func TestFill(t *testing.T) {
	b := &Bench{Postgres: pgtest.URL(t), Dir: t.TempDir()}
	for name, on := range map[string]On{"Postgres": b.OnPostgres, "SQLite": b.OnSQLite} {
		for state, fill := range map[ledger.State]func(*Place) error{
			ledger.StateDone:    func(p *Place) error { return p.History(t.Context(), 1500) },
			ledger.StateWaiting: func(p *Place) error { return p.Future(t.Context(), 1500) },
		} {
			t.Run(name+"/"+string(state), func(t *testing.T) {
				s, err := NewStanding(t.Context(), on, fill)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				}()
				if rate, err := s.Drain(t.Context(), 300); err != nil || rate <= 0 {
					t.Errorf("drain beside it: %v, %v", rate, err)
				}
				if n, err := s.Ledger.Count(t.Context(), ledger.Filter{States: []ledger.State{state},
					Prefix: "/data/"}); err != nil || n < 1500 {
					t.Errorf("%d items are %s, %v", n, state, err)
				}
				for v, err := range s.Ledger.Verify(t.Context()) {
					t.Fatalf("%+v, %v", v, err)
				}
			})
		}
	}
}

// A measurement beside a backlog begins with an empty ledger: what the one before has left would be more than it names.
func TestBatches(t *testing.T) {
	b := &Bench{Dir: t.TempDir()}
	made := 0
	on := func(ctx context.Context) (*Place, error) {
		made++
		return b.OnSQLite(ctx)
	}
	for _, beside := range []int{100, 0} {
		if rate, _, _, err := Batches(t.Context(), on, 10, 2, beside); err != nil || rate <= 0 {
			t.Errorf("beside %d: %v, %v", beside, rate, err)
		}
	}
	if made != 2 {
		t.Errorf("%d ledgers", made)
	}
}

// A drain that is over before an item of higher priority has begun is an error: there are no times of these.
func TestDrainWithoutLate(t *testing.T) {
	if _, late, err := DrainWithLate(t.Context(), (&Bench{Dir: t.TempDir()}).OnSQLite, 10, false); (len(late) == 0) != (err != nil) {
		t.Errorf("%v, %v", late, err)
	}
}
