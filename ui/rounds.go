package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
)

// roundsData are the rounds of recurring items that were closed, and how.
type roundsData struct {
	Ranges []link
	Range  string
	More   bool   // it has not read all
	Cut    string // the time of the earliest round that was read, if not all were
	Done   int64
	Failed []answer.Round // the latest first
	Left   int            // how many more failed
	Items  int64
	Chart  chart
	Lines  []string
}

// failedRounds is how many of those that failed are listed.
const failedRounds = 100

func rounds(v *view) (any, error) {
	d := roundsData{Range: v.URL.Query().Get("range")}
	back := map[string]time.Duration{"24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour, "30d": 30 * 24 * time.Hour}
	if back[d.Range] == 0 {
		d.Range = "7d"
	}
	for _, r := range []string{"24h", "7d", "30d"} {
		d.Ranges = append(d.Ranges, link{r, "/rounds?" + url.Values{"range": {r}}.Encode(), r == d.Range})
	}
	d.Lines = []string{"GET /api/v1/rounds?from=" + d.Range}
	step := back[d.Range] / stripCells
	s := span{To: time.Now().UTC().Truncate(step).Add(step)}
	s.From = s.To.Add(-back[d.Range])
	all, more, err := readParts[answer.Round](v, "/rounds", url.Values{"from": {s.From.Format(time.RFC3339)}})
	switch {
	case err != nil:
		return d, err
	case more && len(all) > 0:
		s = span{time.Time(all[len(all)-1].Ended), time.Now().UTC()}
		d.Cut = s.From.UTC().Format("2006-01-02 15:04")
	}
	d.More = more
	d.draw(s, all)
	return d, nil
}

// draw makes the chart of the rounds, in the order of their closing, latest first. If a round was closed more than
// once, the last time counts.
func (d *roundsData) draw(s span, all []answer.Round) {
	type round struct {
		item int64
		name string
	}
	seen := map[round]bool{}
	by := map[int64]int{} // place in series
	var items []series
	for _, r := range all {
		if key := (round{r.Item, r.Round}); seen[key] {
			continue
		} else {
			seen[key] = true
		}
		at, known := by[r.Item]
		if !known {
			at = len(items)
			by[r.Item] = at
			items = append(items, series{Name: r.Kind + ", every " + r.Every + ": " + r.Key})
		}
		ok := r.Outcome.Completed()
		items[at].Marks = append(items[at].Marks, mark{time.Time(r.Ended), ok})
		switch {
		case ok:
			d.Done++
		case len(d.Failed) < failedRounds:
			d.Failed = append(d.Failed, r)
		default:
			d.Left++
		}
	}
	slices.SortFunc(items, func(a, b series) int { return cmp.Compare(a.Name, b.Name) })
	d.Items = int64(len(items))
	d.Chart = calendar("Rounds by item", s, items)
}

// Bad is how many rounds failed, in words.
func (d roundsData) Bad() string {
	return counted(int64(len(d.Failed)+d.Left), "round", "rounds") + " failed"
}

// mark is one round: when it began, and whether it was done.
type mark struct {
	At time.Time
	OK bool
}

// column is the column of a round in the counts of done and failed rounds.
func (m mark) column() int {
	if m.OK {
		return 0
	}
	return 1
}

// series are the rounds of one item.
type series struct {
	Name  string
	Marks []mark
}

// calendar draws a row of cells for each series. A cell with several rounds is failed if one of them is.
func calendar(title string, s span, all []series) chart {
	c := chart{Title: title, Head: []string{"item", "done", "failed"},
		Key: []sign{{"b-done", "done"}, {"b-failed", "failed"}}}
	var p pen
	y := 20.0
	shown := all[:min(len(all), mostLanes)]
	p.axis(s, 12, 18, y+34*float64(len(shown)))
	for _, row := range shown {
		p.text("name", 0, y+14, row.Name)
		cells := make([][2]int64, stripCells)
		for _, m := range row.Marks {
			cells[s.cell(m.At, stripCells)][m.column()]++
		}
		for i, n := range cells {
			class, high := "b-done", 10.0
			switch {
			case n[0]+n[1] == 0:
				continue
			case n[1] > 0:
				class = "b-failed"
			}
			at := s.From.Add(time.Duration(i) * s.To.Sub(s.From) / stripCells)
			p.rect(class, 100*float64(i)/stripCells, y+19, 70.0/stripCells, high, fmt.Sprintf("%s: %s done, %s failed",
				at.UTC().Format("02 Jan 15:04"), report.Count(n[0]), report.Count(n[1])))
		}
		y += 34
	}
	for _, row := range all {
		var n [2]int64
		for _, m := range row.Marks {
			n[m.column()]++
		}
		c.row(row.Name, report.Count(n[0]), report.Count(n[1]))
	}
	c.SVG = p.drawn(fmt.Sprintf("%s: %s from %s to %s UTC", title, counted(int64(len(all)), "item", "items"),
		clock(s, s.From), clock(s, s.To)), y+4)
	return c
}
