package item

import (
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// TestShowAttempt: the line of an attempt has how long its item waited, if that was a second or more, how long the
// attempt took, and how often its lease was renewed.
func TestShowAttempt(t *testing.T) {
	started := time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		waited   time.Duration
		renewals int
		want     string
	}{
		{-1, 0, "took 2.0 s  by box-a"}, // when it was due is not known
		{900 * time.Millisecond, 0, "took 2.0 s  by box-a"},
		{90 * time.Second, 1, "waited 1m30s  took 2.0 s  lease renewed 1 time  by box-a"},
		{0, 3, "took 2.0 s  lease renewed 3 times  by box-a"},
	} {
		at := answer.Attempt{Attempt: 1, Agent: "box-a", Outcome: ledger.OutcomeDone, Started: report.Time(started),
			Ended: report.Time(started.Add(2 * time.Second)), Renewals: c.renewals}
		if c.waited >= 0 {
			at.Due = report.Time(started.Add(-c.waited))
		}
		var b strings.Builder
		showAttempt(&b, at)
		if _, text, _ := strings.Cut(strings.TrimSpace(b.String()), "  done  "); !strings.HasSuffix(text, "  "+c.want) {
			t.Errorf("waited %s, %d renewals: %q, want %q", c.waited, c.renewals, text, c.want)
		}
	}
}
