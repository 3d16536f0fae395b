package item

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
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

// TestShowManyAttempts: people see the newest 10 attempts, JSON has the newest 100. Both report older ones.
func TestShowManyAttempts(t *testing.T) {
	l := ledger.New(memory.New(memory.Options{}), ledger.Options{})
	must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "often"}))
	const earlier, newest = "\nearlier attempts: ledgerd show 1 -o json\n", "these are the newest 100 attempts;"
	for ended := range 102 { // attempts
		leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "ann", Limit: 1})
		must.OK(t, err)
		for _, c := range []struct {
			ended, shown int
			format       string
			older        bool
		}{{10, 10, "table", false}, {11, 10, "table", true}, {100, 100, "json", false}, {101, 100, "json", true}} {
			if c.ended != ended {
				continue
			}
			var out, errs bytes.Buffer
			a := app.New(nil, app.Program{}, nil, &out, &errs)
			a.Output.Value = c.format
			it, err := l.Get(t.Context(), 1)
			must.OK(t, err)
			must.OK(t, show(t.Context(), a, l, it))
			told := strings.Contains(out.String(), earlier) || strings.HasPrefix(errs.String(), newest)
			n := strings.Count(out.String(), "\nattempt ") + strings.Count(out.String(), `"renewals"`)
			if n != c.shown || told != c.older {
				t.Errorf("%d attempts as %s: %d shown, %q", ended, c.format, n, errs.String())
			}
		}
		must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: leases[0], Result: ledger.Release()})[0])
	}
}
