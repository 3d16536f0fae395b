package postgres

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pgtest"
	"github.com/ledgerd/ledgerd/ledger"
)

// The end of one item and the claim of the next are one transaction. If one half fails, neither takes effect, and the
// item is ended on its own.
func TestHalvesOfAnExchange(t *testing.T) {
	for _, half := range []struct {
		table string // that refuses rows
		ended bool
	}{
		{"ledger_leases", true},
		{"ledger_attempts", false},
	} {
		t.Run(half.table, func(t *testing.T) {
			ctx := t.Context()
			s, l := hotLedger(t, pgtest.URL(t), pgtest.Schema(t))
			exec := func(sql string) {
				t.Helper()
				must.Do(t)(s.pool.Exec(ctx, s.render(sql)))
			}
			added, err := l.Add(ctx, ledger.NewItem{Kind: "k", Key: "a"}, ledger.NewItem{Kind: "k", Key: "b"})
			must.OK(t, err)
			c := ledger.Claim{Kind: "k", Agent: "x", Limit: 1}
			leases, err := l.Claim(ctx, c)
			if err != nil || len(leases) != 1 {
				t.Fatal(leases, err)
			}
			exec(`CREATE FUNCTION {{S}}.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''refused''; END'`)
			exec(`CREATE TRIGGER refuse BEFORE INSERT ON {{S}}.` + half.table + ` EXECUTE FUNCTION {{S}}.refuse()`)
			errs, got, _, err := l.FinishAndClaim(ctx, c, ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})
			if err == nil || len(got) > 0 || (errs[0] == nil) != half.ended {
				t.Errorf("ended with %v, claimed %v, %v", errs[0], got, err)
			}
			want := map[int64]ledger.State{added[0].ID: ledger.StateLeased, added[1].ID: ledger.StateReady}
			if half.ended {
				want[added[0].ID] = ledger.StateDone
			}
			for id, state := range want {
				if it, err := l.Get(ctx, id); err != nil || it.State != state {
					t.Errorf("item %d is %s, want %s; %v", id, it.State, state, err)
				}
			}
			exec(`DROP TRIGGER refuse ON {{S}}.` + half.table)
			for v, err := range l.Verify(ctx) {
				t.Error(fmt.Sprint(v), err)
			}
			errs, got, _, err = l.FinishAndClaim(ctx, c, ledger.Ending{Lease: leases[0], Result: ledger.Done(nil)})
			if err != nil || errs[0] != nil || len(got) != 1 || got[0].Attempt != 1 {
				t.Errorf("later: %v, %v, %v", errs, got, err)
			}
		})
	}
}
