package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/postgres"
)

// The fate of a commit whose answer is missing is unknown; the error tells it, and nothing
// is run again behind the caller's back.
func TestCommitWithoutAnswer(t *testing.T) {
	proxy := pgtest.NewCutter(t)
	s, err := postgres.Connect(t.Context(), proxy.URL, postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "first"}))
	for name, where := range map[string]int32{"landed": pgtest.CutLanded, "not landed": pgtest.CutBefore} {
		t.Run(name, func(t *testing.T) {
			runs := 0
			proxy.Cut(where)
			err := s.Update(t.Context(), nil, func(tx ledger.Tx) error {
				runs++
				_, err := tx.Insert([]ledger.Record{{Identity: ledger.Identity{Kind: "k", Key: name}, Epoch: 1,
					Work: &ledger.Work{State: ledger.StateReady, Epoch: 1}}})
				return err
			})
			if !errors.Is(err, ledger.ErrUnavailable) || !strings.Contains(err.Error(), "may or may not") || runs != 1 {
				t.Fatalf("%d runs, %v", runs, err)
			}
			// Repeating it is safe in both cases.
			added, err := l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: name})
			must.OK(t, err)
			want := map[int32]ledger.Verdict{pgtest.CutLanded: ledger.VerdictKnown, pgtest.CutBefore: ledger.VerdictAdded}[where]
			if added[0].Verdict != want {
				t.Errorf("repeated: %s, want %s", added[0].Verdict, want)
			}
		})
	}
}

// A finish whose answer was lost is recognised when it is repeated.
func TestFinishWithoutAnswer(t *testing.T) {
	proxy := pgtest.NewCutter(t)
	s, err := postgres.Connect(t.Context(), proxy.URL, postgres.Options{Schema: pgtest.Schema(t)})
	must.OK(t, err)
	defer s.Close()
	l := ledger.New(s, ledger.Options{})
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "x"}))
	ls, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "a", Limit: 1})
	if err != nil || len(ls) != 1 {
		t.Fatalf("%d leases, %v", len(ls), err)
	}
	proxy.Cut(pgtest.CutLanded)
	must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: ls[0],
		Result: ledger.Permanent(errors.New("no"))})[0])
	as, err := l.Attempts(t.Context(), ls[0].ID)
	if err != nil || len(as) != 1 || as[0].Outcome != ledger.OutcomeFailed {
		t.Fatalf("%+v, %v", as, err)
	}
}
