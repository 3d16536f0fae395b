package item

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// A round of an item is compared with the round that the item ended before, however long ago. If several attempts ended
// a round, the latest counts.
func TestRoundsAreCounted(t *testing.T) {
	day := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	c := roundCounter{groups: map[[2]string]*roundGroup{}, later: map[int64]closedRound{}}
	for _, e := range []struct { // the latest first
		item    int64
		day     int
		outcome ledger.Outcome
	}{
		{1, 2, ledger.OutcomeFailed},
		{2, 2, ledger.OutcomeDone},
		{3, 2, ledger.OutcomeFailed}, // added in this round
		{4, 2, ledger.OutcomeDone},
		{5, 2, ledger.OutcomeSkipped}, // was not worked the day before
		{4, 2, ledger.OutcomeFailed},  // retried since
		{1, 1, ledger.OutcomeDone},
		{2, 1, ledger.OutcomeLost},
		{4, 1, ledger.OutcomeDone},
		{1, 1, ledger.OutcomeCancelled}, // closes no round
		{5, 0, ledger.OutcomeCrashed},
	} {
		at := day.AddDate(0, 0, e.day)
		c.add(ledger.Ended{Attempt: ledger.Attempt{ItemID: e.item, Kind: "k", Round: at.Format(time.DateOnly),
			Outcome: e.outcome, Final: true, Period: at, FinishedAt: at}})
	}
	ended := func(n int) report.Time { return report.Time(day.AddDate(0, 0, n)) }
	want := []roundGroup{
		{"k", "2026-11-20", 0, 1, 0, 0, ended(0), day},
		{"k", "2026-11-21", 2, 1, 0, 0, ended(1), day.AddDate(0, 0, 1)},
		{"k", "2026-11-22", 3, 2, 1, 2, ended(2), day.AddDate(0, 0, 2)},
	}
	if diff := cmp.Diff(want, c.sorted(), cmp.AllowUnexported(roundGroup{}), cmp.Comparer(func(a, b report.Time) bool {
		return time.Time(a).Equal(time.Time(b))
	})); diff != "" {
		t.Error(diff)
	}
}
