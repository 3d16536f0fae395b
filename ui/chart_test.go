package ui

import (
	"encoding/xml"
	"errors"
	"fmt"
	"html/template"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
)

// hour is the time range of the charts.
var hour = span{time.Date(2026, 11, 19, 14, 0, 0, 0, time.UTC), time.Date(2026, 11, 19, 15, 0, 0, 0, time.UTC)}

// wellFormed checks that a drawing is XML. It returns its texts, and the number of its elements by name.
func wellFormed(t *testing.T, svg template.HTML) (text string, elements map[string]int) {
	t.Helper()
	elements = map[string]int{}
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text, elements
		}
		if err != nil {
			t.Fatalf("%v in\n%.2000s", err, svg)
		}
		switch token := token.(type) {
		case xml.StartElement:
			elements[token.Name.Local]++
			for _, a := range token.Attr {
				if a.Name.Local == "style" || strings.HasPrefix(a.Name.Local, "on") || strings.Contains(a.Value, "NaN") {
					t.Errorf("attribute %s=%q", a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			text += string(token) + "\n"
		}
	}
}

// someBars makes a lane with n bars of a minute, each of which begins a second after the bar before.
func someBars(name string, n int) lane {
	l := lane{Name: name, Note: "note"}
	for i := range n {
		from := hour.From.Add(time.Duration(i%3000) * time.Second)
		l.Bars = append(l.Bars, bar{from, from.Add(time.Minute), "b-done", fmt.Sprint("item ", i)})
	}
	return l
}

// TestGantt: few leases are drawn one by one, many as density; take-overs are drawn in any case. The size of a chart
// has a bound.
func TestGantt(t *testing.T) {
	hostile := "</text><script>alert(1)</script>\x00\x1b\ufffe&\"'"
	crowd := make([]lane, 1000)
	for i := range crowd {
		crowd[i] = someBars(fmt.Sprint("agent-", i), 100)
	}
	many := make([]jump, 100_000)
	for i := range many {
		many[i] = jump{0, i % 1000, hour.From, hour.To, hostile}
	}
	for name, c := range map[string]struct {
		lanes       []lane
		jumps       []jump
		rects, most int // exactly if rects ≥ 0; bytes at most
		has         string
	}{
		"none":    {nil, nil, 0, 2000, ""},
		"one":     {[]lane{someBars("a", 1)}, nil, 1, 2000, "item 0"},
		"hostile": {[]lane{someBars(hostile, 1)}, nil, 1, 3000, "<script>"},
		"a few": {[]lane{someBars("a", 5), someBars("b", 7)}, []jump{
			{0, 1, hour.From, hour.To, "taken"},
		}, 12, 5000, "taken"},
		"overlapped": {[]lane{someBars("a", 200)}, nil, -1, 30_000, "leases from"},
		"100,000":    {[]lane{someBars("a", 100_000)}, nil, -1, 30_000, "leases from 14:00:00"},
		"crowd":      {crowd, many, -1, 1_200_000, "agent-39"},
	} {
		svg := gantt("Leases", hour, c.lanes, c.jumps).SVG
		text, elements := wellFormed(t, svg)
		if n := elements["rect"]; c.rects >= 0 && n != c.rects || n > maxBars+maxLanes*stripCells {
			t.Errorf("%s: %d bars", name, n)
		}
		if !strings.Contains(text, c.has) || elements["script"] > 0 {
			t.Errorf("%s: %q is not a text of\n%.2000s", name, c.has, svg)
		}
		if len(svg) > c.most {
			t.Errorf("%s: %d bytes", name, len(svg))
		}
	}
}

// TestPack: bars of a track do not overlap, and none is left out.
func TestPack(t *testing.T) {
	l := lane{}
	for i := range 6 {
		from := hour.From.Add(time.Duration(i) * 20 * time.Second)
		l.Bars = append(l.Bars, bar{From: from, To: from.Add(time.Minute)})
	}
	tracks, n := pack(l.Bars), 0
	for _, track := range tracks {
		for i, b := range track {
			if n++; i > 0 && b.From.Before(track[i-1].To) {
				t.Errorf("%v overlaps the one before", b)
			}
		}
	}
	if len(tracks) != 3 || n != 6 {
		t.Errorf("%d tracks of %d bars", len(tracks), n)
	}
}

// TestTable: the table of a chart has a bound, and counts the rows that it leaves out.
func TestTable(t *testing.T) {
	var c chart
	for i := range 1000 {
		c.row(fmt.Sprint(i))
	}
	if len(c.Rows) != maxRows || c.Left != 1000-maxRows {
		t.Errorf("%d rows, %d left", len(c.Rows), c.Left)
	}
}

// TestBars: each column that has something is drawn, what failed below the line; the table has the same figures.
func TestBars(t *testing.T) {
	columns := make([]column, 60)
	for i := range columns {
		columns[i].At = hour.From.Add(time.Duration(i) * time.Minute)
	}
	empty := bars("Ended", hour, columns)
	if _, elements := wellFormed(t, empty.SVG); elements["rect"] != 0 || len(empty.Rows) != 0 {
		t.Errorf("nothing ended:\n%s", empty.SVG)
	}
	columns[0].Done, columns[7].Failed = 1_000_000, 1
	c := bars("Ended <b>", hour, columns)
	text, elements := wellFormed(t, c.SVG)
	if elements["rect"] != 2 || !strings.Contains(text, "14:07: 0 done, 1 failed") ||
		!strings.Contains(string(c.SVG), "Ended &lt;b&gt;: 1,000,000 done, 1 failed from 14:00 to 15:00 UTC") {
		t.Errorf("%d bars in\n%s", elements["rect"], c.SVG)
	}
	if fmt.Sprint(c.Rows) != "[[14:00 1,000,000 0] [14:07 0 1]]" {
		t.Errorf("the table is %v", c.Rows)
	}
}

// TestCalendar: the size of the chart has a bound, and a cell with a failure is failed.
func TestCalendar(t *testing.T) {
	if _, elements := wellFormed(t, calendar("Rounds", hour, nil).SVG); elements["rect"] != 0 {
		t.Errorf("%d cells of nothing", elements["rect"])
	}
	both := []series{{"</text><b>\x00", []mark{{hour.From, 0}, {hour.From, 1}, {hour.To, 0}}}}
	c := calendar("Rounds", hour, both)
	text, elements := wellFormed(t, c.SVG)
	if elements["rect"] != 2 || !strings.Contains(text, "1 done, 1 failed") ||
		strings.Count(string(c.SVG), "b-failed") != 1 ||
		!strings.Contains(text, "</text><b>\ufffd") || fmt.Sprint(c.Rows[0][1:]) != "[2 1]" {
		t.Errorf("%v\n%s", c.Rows, c.SVG)
	}
	many := make([]series, 1000)
	for i := range many {
		for j := range 1000 {
			many[i].Marks = append(many[i].Marks, mark{hour.From.Add(time.Duration(j) * 3 * time.Second), 0})
		}
	}
	if c = calendar("Rounds", hour, many); len(c.SVG) > 1_000_000 || len(c.Rows) != maxRows || c.Left != 1000-maxRows {
		t.Errorf("%d bytes, %d rows, %d left", len(c.SVG), len(c.Rows), c.Left)
	}
}

// TestAxis: the labels of an axis are different ones, however long or short its time is.
func TestAxis(t *testing.T) {
	const day = 24 * time.Hour
	for _, long := range []time.Duration{100 * time.Millisecond, 5 * time.Second, 30 * time.Second, 3 * time.Minute,
		15 * time.Minute, time.Hour, day, 30 * time.Hour, 3 * day, 7 * day, 30 * day} {
		var p pen
		p.WriteString("<svg>")
		p.axis(span{hour.From, hour.From.Add(long)}, 10, 0, 20)
		p.WriteString("</svg>")
		text, _ := wellFormed(t, template.HTML(p.String()))
		seen := map[string]bool{}
		for label := range strings.FieldsSeq(strings.ReplaceAll(strings.ReplaceAll(text, " ", "_"), "\n", " ")) {
			if seen[label] {
				t.Errorf("%v has %s twice", long, label)
			}
			seen[label] = true
		}
		if len(seen) != 5 {
			t.Errorf("%v has %v", long, seen)
		}
	}
}

// TestBurnDown: an item counts as left until it was done. Each kind goes on at its own pace; a kind that no program
// works stays.
func TestBurnDown(t *testing.T) {
	eta := 1800.0
	s := answer.Stats{At: report.Time(hour.To.Add(-time.Second)),
		Kinds:   []answer.KindStats{{Kind: "a", Left: 100, ETA: &eta}, {Kind: "b", Left: 7}},
		Minutes: []answer.Minute{{At: report.Time(hour.From.Add(30 * time.Minute)), Kind: "a", Done: 50}}}
	c := burnDown(s)
	_, elements := wellFormed(t, c.SVG)
	if ahead := strings.Count(string(c.SVG), `class="ahead"`); ahead != aheadSteps || elements["rect"] != 60 {
		t.Errorf("%d steps ahead, %v", ahead, elements)
	}
	for i, want := range map[int]string{0: "157", 30: "157", 31: "107", 59: "107", len(c.Rows) - 1: "7"} {
		if c.Rows[i][1] != want {
			t.Errorf("row %d is %v, not %s", i, c.Rows[i], want)
		}
	}
	if label := string(c.SVG); !strings.Contains(label, "157 at 14:00 UTC, 107 at 15:00, expected 7 at 15:30") {
		t.Errorf("%.200s", label)
	}
	s.Minutes = nil
	if c := burnDown(s); c.SVG != "" {
		t.Errorf("nothing was done, and yet there is a chart: %s", c.SVG)
	}
}

// TestWaits: the waits of the chosen kind are drawn, or else those of the first kind with known waits. Each cell has
// its height, its shade and its words, and the table has the same figures. Unknown ranges and minutes outside of the
// hour are left out.
func TestWaits(t *testing.T) {
	at := func(m int) report.Time { return report.Time(hour.From.Add(time.Duration(m) * time.Minute)) }
	s := answer.Stats{At: report.Time(hour.To.Add(-time.Second)), Minutes: []answer.Minute{
		{At: at(6), Kind: "<b>", Waits: []int64{1, 1, 1, 4000}},
		{At: at(7), Kind: "<b>", Waits: []int64{0, 0, 0, 4000}},
		{At: at(59), Kind: "<b>", Waits: append(make([]int64, 23), 2, 9)},
		{At: at(-1), Kind: "<b>", Waits: []int64{7}}, {At: at(60), Kind: "<b>", Waits: []int64{7}},
		{At: at(30), Kind: "other", Waits: []int64{5}}, {At: at(30), Kind: "none", Done: 5}}}
	kinds := []workKind{{KindStats: answer.KindStats{Kind: "none"}}, {KindStats: answer.KindStats{Kind: "<b>"}},
		{KindStats: answer.KindStats{Kind: "other"}}}
	for asked, want := range map[string]string{"": "<b>", "none": "<b>", "<b>": "<b>", "other": "other"} {
		d := workData{Kinds: kinds}
		d.drawWaits(s, timedKinds(s), asked)
		if len(d.Waited) != 2 || d.Waited[0].Here != (want == "<b>") || d.Waited[1].Here != (want == "other") ||
			d.Waits.Title != "How long "+want+" waited" {
			t.Errorf("asked for %q: %q of %v", asked, d.Waits.Title, d.Waited)
		}
	}
	d := workData{Kinds: kinds}
	d.drawWaits(s, timedKinds(s), "<b>")
	text, elements := wellFormed(t, d.Waits.SVG)
	if elements["rect"] != 3 || !strings.Contains(text, "14:06: 3 attempts, < 16 ms\n") ||
		!strings.Contains(text, "14:06: 8,000 attempts, < 128 ms\n") ||
		!strings.Contains(text, "14:58: 2 attempts, ≥ 1 h 09 min\n") ||
		!strings.Contains(string(d.Waits.SVG), "&lt;b&gt; waited: 8,005 attempts from 14:00 to 15:00 UTC") {
		t.Errorf("%d cells in\n%s", elements["rect"], d.Waits.SVG)
	}
	for _, cell := range []string{`<rect class="h1" x="10%" y="124.29" width="3%" height="3.71">`,
		`<rect class="h6" x="10%" y="101" width="3%" height="13">`} {
		if !strings.Contains(string(d.Waits.SVG), cell) {
			t.Errorf("there is no %s in\n%s", cell, d.Waits.SVG)
		}
	}
	if fmt.Sprint(d.Waits.Rows) != "[[14:06 3 8,000 0 0 0 0 0 0] [14:58 0 0 0 0 0 0 0 2]]" || len(d.Waits.Head) != 9 {
		t.Errorf("the table is %v %v", d.Waits.Head, d.Waits.Rows)
	}
	d = workData{Kinds: kinds[:1]}
	if d.drawWaits(s, timedKinds(s), "none"); d.Waits.SVG != "" {
		t.Errorf("there is a chart of nothing:\n%s", d.Waits.SVG)
	}
}
