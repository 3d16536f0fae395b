package ui

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
)

// roundsData are the rounds of recurring items that were closed, and how.
type roundsData struct {
	ranges
	Last                   []standing     // of each kind and scope
	Rest                   int            // number of further kinds and scopes
	NewlyFailed, Recovered int64          // items of Last that changed since the round before
	Part                   bool           // not all rounds are read, or not all items are counted
	More                   bool           // not all rounds are read
	Cut                    string         // the time of the earliest round that was read, if not all were
	Done                   int64          // rounds
	Bad                    int64          // rounds that failed
	Failed                 []answer.Round // some of them, the latest first
	Items                  int64          // with closed rounds
	Chart                  chart
	Lines                  []string
}

// failedRounds is how many failed rounds are listed.
const failedRounds = 100

func rounds(v *view) (any, error) {
	r, s := v.timeRange("/rounds", stripCells, "7d", "24h", "7d", "30d")
	d := roundsData{ranges: r, Lines: []string{"ledgerd stats --by round --since " + r.Range,
		"GET /api/v1/rounds?from=" + r.Range, "GET /api/v1/items/groups?by=scope&limit=1000&where=kind:KIND"}}
	all, more, err := readParts[answer.Round](v, "/rounds", url.Values{"from": {s.From.Format(time.RFC3339)}})
	switch {
	case err != nil:
		return d, err
	case more && len(all) > 0:
		s = span{time.Time(all[len(all)-1].Ended), time.Now().UTC()}
		d.Cut = s.From.UTC().Format("2006-01-02 15:04")
	}
	d.More, d.Part = more, more
	d.draw(s, all)
	return d, d.stand(v, all)
}

// standing is how the items of a kind and scope stand in their newest round.
type standing struct {
	answer.Group
	Kind, Scope string
	Ended       report.Time // when a round of them was last closed
	Known       bool        // its items are counted, at least in part
	Part        bool        // not all items are counted
}

// figure is a count of items. To is the path of their list, "" if a filter cannot express it.
type figure struct {
	Name, To string
	N        int64
}

// Figures are the counts of a row.
func (s standing) Figures() []figure {
	scope := term("scope:", s.Scope, `",`)
	count := func(name, states string, n int64) figure {
		f := figure{Name: name, N: n}
		if scope != "" {
			f.To = "/items?" + url.Values{"where": {"kind:" + s.Kind + " " + scope + " round:" + states}}.Encode()
		}
		return f
	}
	return []figure{count("done", "done", s.Done), count("failed", "failed", s.Failed),
		count("still open", "open,put_off,doubt", s.Left+s.PutOff+s.Doubt),
		count("newly failed", "newly_failed", s.NewlyFailed), count("recovered", "recovered", s.Recovered)}
}

// maxStandings bounds how many kinds and scopes are counted.
const maxStandings = 25

// stand counts the newest rounds of each kind and scope. closed are rounds, the latest first, so the kinds and scopes
// with the latest rounds come first. Each kind costs a request of up to 50 ms, so after partsTime stand asks for no
// more kinds.
func (d *roundsData) stand(v *view, closed []answer.Round) error {
	seen := map[[2]string]bool{}
	closed = slices.DeleteFunc(slices.Clone(closed), func(r answer.Round) bool {
		set := [2]string{r.Kind, r.Scope}
		again := seen[set]
		seen[set] = true
		return again
	})
	began := time.Now()
	byKind := map[string]answer.Groups{}
	for i, r := range closed {
		groups, asked := byKind[r.Kind]
		if i == maxStandings || i > 0 && !asked && time.Since(began) > partsTime {
			d.Rest, d.Part = len(closed)-i, true
			break
		}
		if !asked {
			var err error
			if groups, err = get[answer.Groups](v, "/items/groups", url.Values{"by": {"scope"}, "limit": {"1000"},
				"where": {"kind:" + r.Kind}}); err != nil {
				return err
			}
			byKind[r.Kind] = groups
		}
		s := standing{Kind: r.Kind, Scope: r.Scope, Ended: r.Ended,
			Part: !groups.Whole || groups.Groups > int64(len(groups.Items))}
		for _, g := range groups.Items {
			if scope := ""; json.Unmarshal(g.Value, &scope) == nil && scope == r.Scope {
				s.Group, s.Known = g, true
			}
		}
		d.Last, d.Part = append(d.Last, s), d.Part || s.Part
		d.NewlyFailed, d.Recovered = d.NewlyFailed+s.NewlyFailed, d.Recovered+s.Recovered
	}
	slices.SortFunc(d.Last, func(a, b standing) int {
		return cmp.Or(cmp.Compare(b.NewlyFailed, a.NewlyFailed), cmp.Compare(b.Failed, a.Failed),
			cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Scope, b.Scope))
	})
	return nil
}

// draw makes the chart of the rounds; all has the latest first. If a round was closed more than once, the last time
// counts.
func (d *roundsData) draw(s span, all []answer.Round) {
	type round struct {
		item int64
		name string
	}
	seen := map[round]bool{}
	by := map[int64]int{} // index in items, by id
	var items []series
	for _, r := range all {
		key := round{r.Item, r.Round}
		if seen[key] {
			continue
		}
		seen[key] = true
		at, known := by[r.Item]
		if !known {
			at = len(items)
			by[r.Item] = at
			items = append(items, series{Name: r.Kind + ", every " + r.Every + ": " + r.Key})
		}
		m := mark{At: time.Time(r.Ended), Column: 1}
		if r.Outcome.Completed() {
			m.Column = 0
			d.Done++
		} else {
			d.Bad++
			d.Failed = append(d.Failed, r)
		}
		items[at].Marks = append(items[at].Marks, m)
	}
	d.Failed = d.Failed[:min(len(d.Failed), failedRounds)]
	slices.SortFunc(items, func(a, b series) int { return cmp.Compare(a.Name, b.Name) })
	d.Items = int64(len(items))
	d.Chart = calendar("Rounds by item", s, items)
}

// mark is one closed round in a calendar.
type mark struct {
	At     time.Time
	Column int // 0: it was done, 1: it failed
}

// series are the rounds of one item.
type series struct {
	Name  string
	Marks []mark
}

// rowHigh is the height of a row of a calendar.
const rowHigh = 34.0

// calendar draws a row of cells for each series. A cell is failed if one of its rounds failed.
func calendar(title string, s span, all []series) chart {
	c := chart{Title: title, Head: []string{"item", "done", "failed"},
		Key: []sign{{"b-done", "done"}, {"b-failed", "failed"}}}
	var p pen
	y := underAxis
	shown := all[:min(len(all), maxLanes)]
	p.axis(s, axisText, axisLine, y+rowHigh*float64(len(shown)))
	for _, row := range shown {
		p.text("name", 0, y+14, row.Name)
		cells := make([][2]int64, stripCells)
		for _, m := range row.Marks {
			cells[s.cell(m.At, stripCells)][m.Column]++
		}
		for i, n := range cells {
			class := "b-done"
			if n[1] > 0 {
				class = "b-failed"
			} else if n[0] == 0 {
				continue
			}
			at := s.From.Add(time.Duration(i) * s.To.Sub(s.From) / stripCells)
			p.rect(class, 100*float64(i)/stripCells, y+19, 70.0/stripCells, 10, fmt.Sprintf("%s: %s done, %s failed",
				at.UTC().Format("02 Jan 15:04"), report.Count(n[0]), report.Count(n[1])))
		}
		y += rowHigh
	}
	for _, row := range all {
		var n [2]int64
		for _, m := range row.Marks {
			n[m.Column]++
		}
		c.row(row.Name, report.Count(n[0]), report.Count(n[1]))
	}
	c.SVG = p.drawn(fmt.Sprintf("%s: %s from %s to %s UTC", title, counted(int64(len(all)), "item", "items"),
		clock(s, s.From), clock(s, s.To)), y+4)
	return c
}
