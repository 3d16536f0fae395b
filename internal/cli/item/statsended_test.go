package item

import (
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// The rows that the count did not complete have a mark: the row of the hour in which it stopped, and rows without
// hours.
func TestEndedRowsAreMarked(t *testing.T) {
	hour := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name    string
		hour    time.Time
		reached time.Time
		want    string
	}{
		{"all was counted", hour, time.Time{}, "0"},
		{"a later hour", hour.Add(time.Hour), hour.Add(30 * time.Minute), "0"},
		{"the hour in which it stopped", hour, hour.Add(30 * time.Minute), "≥ 0"},
		{"no hours", time.Time{}, hour, "≥ 0"},
	} {
		if got := shownGroup(stats.AttemptGroup{Hour: c.hour}, nil, nil, c.reached).Failed; got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// Every outcome has its column.
func TestEndedColumns(t *testing.T) {
	have, want := slices.Clone(endedOutcomes), slices.Clone(ledger.Outcomes)
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("columns %v, outcomes %v", have, want)
	}
}
