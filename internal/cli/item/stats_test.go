package item

import (
	"strings"
	"testing"

	"github.com/rivo/uniseg"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// TestStatsBlocks: a kind takes at most four lines of 80 cells. Figures that are 0 are left out.
func TestStatsBlocks(t *testing.T) {
	eta, p95 := 12345.6, 2.048
	for _, c := range []struct {
		kinds []answer.KindStats
		want  string
	}{
		{[]answer.KindStats{
			{Kind: "links", Ready: 120, Leased: 8, Waiting: 4872, Dead: 2, RoundsDone: 4823, RoundsFailed: 49, Left: 128,
				OldestReady: 200.4, Done1h: 4823, Failed1h: 55, WorkP95: &p95, Workers: 2, PerSecond1m: 38, ETA: &eta},
			{Kind: "people", Doubt: 1, Paused: true, Waiting: 3, RoundsPutOff: 3},
			{Kind: "größe", Waiting: 1, Left: 1, ETA: &eta},
		}, `
links   ready 120 (the oldest for 3m20s)   leased 8   dead 2
        this round: done 4,823   failed 49
        last hour: done ≈4,823   failed ≈55   95 % within 2.048s
        workers 2   ≈38/s   nothing left in ≈3h26m
people  nothing left   doubt 1   paused
        this round: put off 3
größe   waiting 1
        nothing left in ≈3h26m
`},
		{[]answer.KindStats{{Kind: "done", Done1h: 1, RoundsDone: 100_000, Waiting: 100_000}}, `
done  nothing left
      this round: ≥ done 100,000
      last hour: done ≈1
`},
	} {
		var out strings.Builder
		if err := writeBlocks(&out, c.kinds); err != nil || "\n"+out.String() != c.want {
			t.Errorf("%v\n%s", err, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if w := uniseg.StringWidth(strings.TrimSpace(line)); w > 80 {
				t.Errorf("%d cells: %s", w, line)
			}
		}
	}
}

// TestRoughly: at most two units.
func TestRoughly(t *testing.T) {
	for seconds, want := range map[float64]string{0.5: "500ms", 12.34: "12s", 200.4: "3m20s", 3600: "1h", 18_590: "5h10m",
		3 * 86_400: "3d", 273_000: "3d4h"} {
		if got := roughly(seconds); got != want {
			t.Errorf("%v is %s, not %s", seconds, got, want)
		}
	}
}
