package ui

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// The cells of heatMap: each band joins three ranges of stats.Latencies, each column two minutes of an hour.
const (
	waitsPerBand = 3
	waitBands    = len(stats.Latencies{}) / waitsPerBand
	waitColumns  = 30
)

// heatMap draws for each column how many attempts had waited for how long, the longest waits above. A cell with more
// attempts is taller and darker, on a logarithmic scale. Height and colour show the same number.
func heatMap(title string, s span, cells [][waitBands]int64) chart {
	const high, top = 14.0, 16.0
	c := chart{Title: title, Head: []string{"ended from, UTC"}, Key: []sign{{"h2", "few"}, {"h6", "many attempts"}}}
	var most, all int64
	for _, column := range cells {
		most = max(most, slices.Max(column[:]))
	}
	var p pen
	p.axis(s, top+high*float64(waitBands)+14, top, top+high*float64(waitBands))
	for band := range waitBands {
		bottom := top + high*float64(waitBands-band)
		name := waitName(band)
		c.Head = append(c.Head, name)
		p.WriteString(`<text class="axis band" x="-6" y="` + number(bottom-3) + `" text-anchor="end">`) // left of all
		p.words(name)
		p.WriteString("</text>")
		p.line("grid", 0, bottom, 100, bottom, "")
	}
	p.text("axis", 100, 11, "most: "+report.Count(most))
	wide := 100 / float64(len(cells))
	for i, column := range cells {
		at := clock(s, s.From.Add(s.To.Sub(s.From)*time.Duration(i)/time.Duration(len(cells))))
		row, some := []string{at}, false
		for band, n := range column {
			row = append(row, report.Count(n))
			if n == 0 {
				continue
			}
			some, all = true, all+n
			step := heat(n, most)
			up := (high - 1) * float64(step+1) / 7
			p.rect("h"+strconv.Itoa(step), wide*float64(i), top+high*float64(waitBands-band)-up, wide*.9, up,
				fmt.Sprintf("%s: %s, %s", at, counted(n, "attempt", "attempts"), c.Head[band+1]))
		}
		if some {
			c.row(row...)
		}
	}
	c.SVG = p.drawn(fmt.Sprintf("%s: %s from %s to %s UTC", title, counted(all, "attempt", "attempts"),
		clock(s, s.From), clock(s, s.To)), top+high*float64(waitBands)+18)
	return c
}

// waitName is the range of the waits in a band.
func waitName(band int) string {
	last := (band+1)*waitsPerBand - 1
	if stats.Bound(last) == 0 {
		return "≥ " + duration(stats.Bound(last-waitsPerBand).Seconds())
	}
	return "< " + duration(stats.Bound(last).Seconds())
}
