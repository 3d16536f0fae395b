package item

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/report"
)

// TestNarrowStats: the table of stats fits into 80 cells and keeps the columns that people act on.
func TestNarrowStats(t *testing.T) {
	eta := 12345.6
	rows := []shownStats{
		showStats(answer.KindStats{Kind: "thumbnails", Ready: 1_234_567, Waiting: 120, Leased: 64, Dead: 12,
			RoundsDone: 5, Left: 1_234_751,
			Done1h: 86_400, Failed1h: 3, PerSecond1m: 24.5,
			OldestReady: 86_400.25, ETA: &eta, Workers: 2}),
		showStats(answer.KindStats{Kind: "urlcheck", Ready: 3, Doubt: 1, Left: 3, Paused: true}),
	}
	for _, n := range []int{1, 2} {
		var out bytes.Buffer
		p := &report.Printer{Out: &out, Format: report.Table, Width: 80}
		if _, err := report.List(p, app.Each(rows[:n]), shownStatsColumns...); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(out.String()) {
			if w := uniseg.StringWidth(strings.TrimSpace(line)); w > 80 {
				t.Errorf("%d cells: %s", w, line)
			}
		}
		heading := strings.Fields(out.String())
		for _, want := range []string{"KIND", "READY", "LEFT", "ETA_S", "DEAD"} {
			if !strings.Contains(strings.Join(heading, " ")+" ", want+" ") {
				t.Errorf("no %s in\n%s", want, out.String())
			}
		}
	}
}
