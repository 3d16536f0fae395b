package ui

import (
	"encoding/xml"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
)

// chart is a drawing, and a table with the same figures.
type chart struct {
	Title string
	Key   []sign // the meaning of its signs
	SVG   template.HTML
	Head  []string
	Rows  [][]string
	Left  int // rows of the table that are not shown
}

// sign is an entry of a chart's key.
type sign struct{ Class, Text string }

// maxRows bounds the table of a chart.
const maxRows = 120

// pen writes SVG. Horizontal positions are per cent of the width and vertical ones are pixels, so text has one size at
// any width.
type pen struct{ strings.Builder }

// number formats a position in few characters.
func number(f float64) string {
	return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64)
}

// words writes a text. Characters that XML cannot have are replaced.
func (p *pen) words(s string) {
	_ = xml.EscapeText(p, []byte(s)) // writing to a builder does not fail
}

func (p *pen) rect(class string, x, y, w, h float64, title string) {
	fmt.Fprintf(p, `<rect class="%s" x="%s%%" y="%s" width="%s%%" height="%s">`, class, number(x), number(y),
		number(max(w, .15)), number(h))
	p.title(title)
	p.WriteString("</rect>")
}

func (p *pen) line(class string, x1, y1, x2, y2 float64, title string) {
	fmt.Fprintf(p, `<line class="%s" x1="%s%%" y1="%s" x2="%s%%" y2="%s">`, class, number(x1), number(y1), number(x2),
		number(y2))
	p.title(title)
	p.WriteString("</line>")
}

func (p *pen) title(s string) {
	if s != "" {
		p.WriteString("<title>")
		p.words(s)
		p.WriteString("</title>")
	}
}

// text writes a text at a position: left-aligned at the left edge, right-aligned at the right edge, centred elsewhere.
func (p *pen) text(class string, x, y float64, s string) {
	anchor := "middle"
	switch {
	case x <= 0:
		anchor = "start"
	case x >= 100:
		anchor = "end"
	}
	fmt.Fprintf(p, `<text class="%s" x="%s%%" y="%s" text-anchor="%s">`, class, number(x), number(y), anchor)
	p.words(s)
	p.WriteString("</text>")
}

// drawn is the whole SVG, with a height in pixels. The label is for screen readers.
func (p *pen) drawn(label string, height float64) template.HTML {
	var out pen
	fmt.Fprintf(&out, `<svg role="img" width="100%%" height="%s" aria-label="`, number(height))
	out.words(label)
	out.WriteString(`">` + p.String() + "</svg>")
	return template.HTML(out.String()) //nolint:gosec // words has escaped all that is not written here
}

// span is the time range of a chart.
type span struct{ From, To time.Time }

// at is the horizontal position of a time.
func (s span) at(t time.Time) float64 {
	return 100 * min(1, max(0, float64(t.Sub(s.From))/float64(s.To.Sub(s.From))))
}

// cell is the column of a time among n.
func (s span) cell(t time.Time, n int) int {
	return min(n-1, int(s.at(t)*float64(n)/100))
}

// Heights of an axis at the top of a chart.
const (
	axisText  = 12.0 // its times
	axisLine  = 18.0 // the beginning of its lines
	underAxis = 20.0 // what is drawn first below its times
)

// axis draws five times at height y, and a line from top to bottom at each. If the texts are long, a phone shows every
// second text.
func (p *pen) axis(s span, y, top, bottom float64) {
	for i := range 5 {
		at := s.From.Add(s.To.Sub(s.From) * time.Duration(i) / 4)
		x, words, class := s.at(at), clock(s, at), "axis"
		if i%2 == 1 && len(words) > len("02 Jan") {
			class += " opt"
		}
		p.line("grid", x, top, x, bottom, "")
		p.text(class, x, y, words)
	}
}

// clock formats a time in the shortest layout that tells the quarters of the range apart.
func clock(s span, at time.Time) string {
	layout := "15:04:05.000"
	switch d := s.To.Sub(s.From); {
	case d > 4*24*time.Hour:
		layout = "02 Jan"
	case d >= 24*time.Hour:
		layout = "02 Jan 15:04"
	case d >= 4*time.Minute:
		layout = "15:04"
	case d >= 4*time.Second:
		layout = "15:04:05"
	}
	return at.UTC().Format(layout)
}

// column is how many attempts ended in one part of a time range.
type column struct {
	At           time.Time
	Done, Failed int64
}

// bars draws for each column the attempts that were done upwards from a line, and those that failed downwards.
func bars(title string, s span, columns []column) chart {
	const high, low, width = 72.0, 28.0, .75
	c := chart{Title: title, Head: []string{"from, UTC", "done", "failed"},
		Key: []sign{{"b-done", "done, upwards"}, {"b-failed", "failed, downwards"}}}
	var most, done, failed int64
	for _, col := range columns {
		most = max(most, col.Done, col.Failed)
		done, failed = done+col.Done, failed+col.Failed
	}
	var p pen
	p.axis(s, 16+high+low+14, 16, 16+high+low)
	p.text("axis", 100, 11, "most: "+report.Count(most))
	wide := 100 / float64(max(1, len(columns)))
	for i, col := range columns {
		if col.Done+col.Failed == 0 {
			continue
		}
		at := clock(s, col.At)
		words := fmt.Sprintf("%s: %s done, %s failed", at, report.Count(col.Done), report.Count(col.Failed))
		x, up := wide*float64(i), share(col.Done, most)*high
		if col.Done > 0 {
			p.rect("b-done", x, 16+high-up, wide*width, up, words)
		}
		if col.Failed > 0 {
			p.rect("b-failed", x, 16+high, wide*width, share(col.Failed, most)*low, words)
		}
		c.row(at, report.Count(col.Done), report.Count(col.Failed))
	}
	p.line("base", 0, 16+high, 100, 16+high, "")
	c.SVG = p.drawn(fmt.Sprintf("%s: %s done, %s failed from %s to %s UTC", title, report.Count(done), report.Count(failed),
		clock(s, s.From), clock(s, s.To)), 16+high+low+18)
	return c
}

// point is how many items were left at a time.
type point struct {
	At   time.Time
	Left int64
}

// burn draws how many items were left at each time as an area, and how many are expected to be left as a line.
func burn(title string, was, next []point) chart {
	const high = 72.0
	c := chart{Title: title, Head: []string{"at, UTC", "left"},
		Key: []sign{{"b-left", "was left"}}}
	if len(next) > 1 {
		c.Key = append(c.Key, sign{"ahead", "as fast as in the last minute"})
	}
	s := span{was[0].At, next[len(next)-1].At}
	most := was[0].Left
	var p pen
	p.axis(s, 16+high+14, 16, 16+high)
	p.text("axis", 100, 11, "most: "+report.Count(most))
	down := func(n int64) float64 { return 16 + high*(1-float64(n)/float64(max(1, most))) }
	for i, at := range was {
		end := next[0].At
		if i+1 < len(was) {
			end = was[i+1].At
		}
		words := clock(s, at.At) + ": " + report.Count(at.Left) + " left"
		p.rect("b-left", s.at(at.At), down(at.Left), s.at(end)-s.at(at.At), 16+high-down(at.Left), words)
		c.row(clock(s, at.At), report.Count(at.Left))
	}
	for i, at := range next[1:] {
		p.line("ahead", s.at(next[i].At), down(next[i].Left), s.at(at.At), down(at.Left),
			clock(s, at.At)+": "+report.Count(at.Left)+" left")
		c.row(clock(s, at.At)+", expected", report.Count(at.Left))
	}
	p.line("base", 0, 16+high, 100, 16+high, "")
	words := fmt.Sprintf("%s: %s at %s UTC, %s at %s", title, report.Count(most), clock(s, s.From),
		report.Count(next[0].Left), clock(s, next[0].At))
	if last := next[len(next)-1]; len(next) > 1 {
		words += fmt.Sprintf(", expected %s at %s", report.Count(last.Left), clock(s, last.At))
	}
	c.SVG = p.drawn(words, 16+high+18)
	return c
}

// row adds a row to the table.
func (c *chart) row(cells ...string) {
	if len(c.Rows) == maxRows {
		c.Left++
		return
	}
	c.Rows = append(c.Rows, cells)
}

// share is n as a part of most; at least 3 %, so that it can be seen.
func share(n, most int64) float64 {
	return max(.03, float64(n)/float64(max(1, most)))
}

// heat is the shade of a cell, 1 to 6, on a logarithmic scale; 0 for none.
func heat(n, most int64) int {
	if n <= 0 {
		return 0
	}
	if most <= 1 {
		return 1
	}
	return 1 + min(5, int(6*math.Log(float64(n))/math.Log(float64(most))))
}

// spark draws counts of equal parts of a time range as a small bar chart, as high as a line of text.
func spark(s span, counts []int64) template.HTML {
	if len(counts) == 0 {
		return ""
	}
	const high, low = 26.0, 14.0
	var p pen
	wide, most := 100/float64(len(counts)), slices.Max(counts)
	part := s.To.Sub(s.From) / time.Duration(len(counts))
	var words []string
	for i, n := range counts {
		at := clock(span{s.From, s.From.Add(25 * time.Hour)}, s.From.Add(time.Duration(i)*part))
		if n > 0 {
			up := share(n, most) * high
			p.rect("b-trend", wide*float64(i), high-up, wide*.8, up, report.Count(n)+" from "+at+" on")
			words = append(words, report.Count(n)+" from "+at+" UTC on")
		}
	}
	p.line("base", 0, high, 100, high, "")
	p.text("axis", 0, high+low-2, clock(s, s.From))
	p.text("axis", 100, high+low-2, clock(s, s.To))
	return p.drawn("failed: "+strings.Join(words, ", "), high+low)
}

// bar is one lease in a Gantt chart. Class is its CSS class.
type bar struct {
	From, To     time.Time
	Class, Title string
}

// lane has the leases of one agent.
type lane struct {
	Name, Note string
	Bars       []bar
}

// jump is a line from the end of a bar in one lane to the beginning of a bar in another lane.
type jump struct {
	From, To     int       // indexes of the lanes
	Left, Joined time.Time // the end and the beginning
	Title        string
}

const (
	maxBars    = 2000 // more are drawn as density
	maxLanes   = 40
	maxTracks  = 8 // of a lane, each with bars that do not overlap
	maxJumps   = 300
	stripCells = 120 // columns of a lane that is drawn as density
)

// gantt draws the leases of each lane. If a lane has too many bars to tell apart, it draws their density instead. Jumps
// are drawn in any case.
func gantt(title string, s span, lanes []lane, jumps []jump) chart {
	total := 0
	for _, l := range lanes {
		total += len(l.Bars)
	}
	c := chart{Title: title}
	var p, over pen // over is drawn above the axis
	y := underAxis
	middle := make([]float64, 0, maxLanes) // the height of each lane's middle
	for _, l := range lanes[:min(len(lanes), maxLanes)] {
		over.text("name", 0, y+14, l.Name+", "+l.Note)
		tracks := pack(l.Bars)
		if total > maxBars || len(tracks) > maxTracks {
			tracks = nil
			over.density(s, l, y+20)
		}
		for i, track := range tracks {
			for _, b := range track {
				x := s.at(b.From)
				over.rect(b.Class, x, y+20+float64(i)*10, s.at(b.To)-x, 7, b.Title)
			}
		}
		height := 24 + 10*float64(max(1, len(tracks)))
		middle = append(middle, y+24)
		y += height
	}
	for _, j := range jumps[:min(len(jumps), maxJumps)] {
		if j.From < len(middle) && j.To < len(middle) {
			over.line("jump", s.at(j.Left), middle[j.From], s.at(j.Joined), middle[j.To], j.Title)
		}
	}
	p.axis(s, axisText, axisLine, y)
	p.WriteString(over.String())
	c.SVG = p.drawn(fmt.Sprintf("%s: %s of %s from %s to %s UTC", title, counted(int64(total), "lease", "leases"),
		counted(int64(len(lanes)), "agent", "agents"), clock(s, s.From), clock(s, s.To)), y+4)
	return c
}

// pack puts bars into tracks in which they do not overlap. It stops when there are too many tracks.
func pack(all []bar) (tracks [][]bar) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(a, b bar) int { return a.From.Compare(b.From) })
next:
	for _, b := range all {
		for i, track := range tracks {
			if !track[len(track)-1].To.After(b.From) {
				tracks[i] = append(track, b)
				continue next
			}
		}
		if tracks = append(tracks, []bar{b}); len(tracks) > maxTracks {
			break
		}
	}
	return tracks
}

// density draws how many bars of a lane overlap each cell of time.
func (p *pen) density(s span, l lane, y float64) {
	counts := make([]int64, stripCells)
	for _, b := range l.Bars {
		for i := s.cell(b.From, stripCells); i <= s.cell(b.To, stripCells); i++ {
			counts[i]++
		}
	}
	const wide = 100.0 / stripCells
	for i, n := range counts {
		if shade := heat(n, slices.Max(counts)); shade > 0 {
			at := s.From.Add(s.To.Sub(s.From) / stripCells * time.Duration(i))
			p.rect("h"+strconv.Itoa(shade), wide*float64(i), y, wide, 10, fmt.Sprintf("%s from %s on",
				counted(n, "lease", "leases"), at.UTC().Format("15:04:05")))
		}
	}
}
