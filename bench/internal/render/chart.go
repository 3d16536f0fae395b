package render

import (
	"fmt"
	"html"
	"strings"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
)

// Chart draws how many items per second each side worked, with one group of bars per database.
func Chart(r *Report) string {
	const (
		left, right  = 190, 90 // margins of the bars, for names and figures
		width, bar   = 640, 18
		gap, between = 6, 34
	)
	type group struct {
		title string
		s     *measure.Result
	}
	groups := []group{{"Postgres", r.result("drain-postgres")}, {"SQLite", r.result("drain-sqlite")}}
	most := 0.0 // one scale for all
	for _, g := range groups {
		if g.s == nil {
			continue
		}
		for _, side := range g.s.Sides {
			if f := g.s.Of(side, "drain"); f != nil {
				most = max(most, f.Max)
			}
		}
	}
	var b strings.Builder
	y := 16.0
	for _, g := range groups {
		if g.s == nil {
			continue
		}
		fmt.Fprintf(&b, `<text class="title" x="0" y="%.0f">%s: items worked per second</text>`+"\n", y, g.title)
		y += 12
		for _, side := range g.s.Sides {
			f := g.s.Of(side, "drain")
			if f == nil {
				continue
			}
			class := "peer"
			if strings.HasPrefix(side, "ledgerd") {
				class = "ours"
			}
			at := func(v float64) float64 { return left + v/most*(width-left-right) }
			middle := y + bar/2
			fmt.Fprintf(&b, `<text x="%d" y="%.0f" text-anchor="end">%s</text>`, left-8, middle+4, html.EscapeString(name(side)))
			fmt.Fprintf(&b, `<rect class="%s" x="%d" y="%.0f" width="%.1f" height="%d" rx="2"/>`, class, left, y,
				max(1, at(f.Median)-left), bar)
			fmt.Fprintf(&b, `<path class="range" d="M%.1f %.0fH%.1f"/>`, at(f.Min), middle, at(f.Max))
			fmt.Fprintf(&b, `<text x="%.1f" y="%.0f">%s</text>`+"\n", at(f.Max)+6, middle+4,
				strings.TrimSuffix(measure.Format(f.Median, "/s"), "/s"))
			y += bar + gap
		}
		y += between
	}
	fmt.Fprintf(&b,
		`<text class="key" x="%d" y="%.0f">bar: median of the runs; line: from the slowest to the fastest</text>`+
			"\n", left, y-between+14)
	y += 16
	return fmt.Sprintf(
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %.0f" width="%d" height="%.0f" role="img" aria-label="Items worked per second by ledgerd and its peers">
<style>
text { font: 13px system-ui, sans-serif; fill: #57606a }
.title { font-weight: 600; fill: #24292f } .key { font-size: 11px }
.ours { fill: #1a7f64 } .peer { fill: #8c959f } .range { stroke: #24292f; stroke-width: 1.5; opacity: .55 }
@media (prefers-color-scheme: dark) {
  text { fill: #9da7b3 } .title { fill: #e6edf3 } .ours { fill: #2fb491 } .peer { fill: #6e7681 } .range { stroke: #e6edf3 }
}
</style>
%s</svg>
`, width, y-between+4, width, y-between+4, b.String())
}

func name(side string) string {
	switch side {
	case "ledgerd":
		return "ledgerd, in process"
	case "ledgerd, plugin":
		return "ledgerd, plugin's process"
	}
	return side + ", in process"
}
