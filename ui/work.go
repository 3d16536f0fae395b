package ui

import (
	"cmp"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// workData is how long items waited and worked.
type workData struct {
	Kinds   []workKind
	Wants   map[string][]string // kinds by what would make them faster
	Waits   chart               // of one kind; without a drawing if nothing is known
	Waited  []link              // kinds of which the waits are known
	Lines   []string
	Measure bool   // something ended in the last hour
	Longest string // the longest time that is measured
}

// workKind is a kind, drawn.
type workKind struct {
	answer.KindStats
	SVG    template.HTML
	Helps  string
	Why    string
	Desk   bool   // people decide it
	Timed  bool   // some attempts have ended
	Items  string // path of what waits
	Worked string // path of what was done
}

func work(v *view) (any, error) {
	s, err := get[answer.Stats](v, "/stats", nil)
	d := workData{Lines: []string{"ledgerd stats", "GET /api/v1/stats"}, Wants: map[string][]string{},
		Longest: duration(lastBound)}
	if err != nil {
		return d, err
	}
	kinds, err := get[answer.List[answer.Kind]](v, "/kinds", nil)
	people, paused := forPeople(kinds.Items), map[string]bool{}
	for _, k := range kinds.Items {
		paused[k.Kind] = k.Paused
	}
	timed := timedKinds(s)
	for _, k := range s.Kinds {
		k.Paused = paused[k.Kind] // figures are a moment older than the button that was just pressed
		row := workKind{KindStats: k,
			Items:  "/items?" + url.Values{"where": {"kind:" + k.Kind + " state:ready"}}.Encode(),
			Worked: "/items?" + url.Values{"where": {"kind:" + k.Kind + " since:1h"}, "order": {"-ended"}}.Encode()}
		wait, done := [2]*float64{k.WaitP50, k.WaitP95}, [2]*float64{k.WorkP50, k.WorkP95}
		label := fmt.Sprintf("%s waited %s and worked %s", k.Kind, between(timed[k.Kind], wait), between(timed[k.Kind], done))
		if timed[k.Kind] {
			wait[0], done[0] = cmp.Or(wait[0], &lastBound), cmp.Or(done[0], &lastBound)
		}
		row.SVG = pair(label, wait, done)
		row.Helps, row.Why = helps(k, timed[k.Kind])
		if row.Desk = row.Helps == startProgram && waitsForPeople(k, people); row.Desk {
			row.Helps, row.Why = decideThem, "or by ledgerd claim "+k.Kind
		}
		if row.Helps != "" && row.Helps != fine && (row.Helps != resumeIt || k.Ready > 0) {
			d.Wants[row.Helps] = append(d.Wants[row.Helps], k.Kind)
		}
		row.Timed = timed[k.Kind]
		d.Measure = d.Measure || row.Timed
		d.Kinds = append(d.Kinds, row)
	}
	slices.SortStableFunc(d.Kinds, func(a, b workKind) int {
		return cmp.Compare(b.OldestReady, a.OldestReady)
	})
	d.drawWaits(s, timed, v.URL.Query().Get("kind"))
	return d, err
}

// timedKinds are the kinds of which some waits are known.
func timedKinds(s answer.Stats) map[string]bool {
	timed := map[string]bool{}
	for _, m := range s.Minutes {
		timed[m.Kind] = timed[m.Kind] || len(m.Waits) > 0
	}
	return timed
}

// drawWaits draws the waits of a kind, or else of the first one of which some are known.
func (d *workData) drawWaits(s answer.Stats, known map[string]bool, kind string) {
	for _, k := range d.Kinds {
		if known[k.Kind] && !known[kind] {
			kind = k.Kind
		}
		if known[k.Kind] && (len(d.Waited) < mostKinds || k.Kind == kind) {
			d.Waited = append(d.Waited, link{k.Kind, "/work?" + url.Values{"kind": {k.Kind}}.Encode(), k.Kind == kind})
		}
	}
	if !known[kind] {
		return
	}
	hour := lastHourOf(s)
	cells := make([][waitBands]int64, waitColumns)
	for _, m := range s.Minutes {
		if at := time.Time(m.At); m.Kind == kind && !at.Before(hour.From) && at.Before(hour.To) {
			for i, n := range m.Waits[:min(len(m.Waits), len(stats.Latencies{}))] {
				cells[hour.cell(at, waitColumns)][i/waitsPerBand] += n
			}
		}
	}
	d.Waits = heatMap("How long "+kind+" waited", hour, cells)
}

// lastBound is the last bound of the durations that stats.Latencies tells apart.
var lastBound = stats.Bound(len(stats.Latencies{}) - 2).Seconds()

// between is a range of durations in words. Each is a bound: it took no longer. timed means that durations are known; a
// percentile that is nil is beyond the longest one then.
func between(timed bool, percentiles [2]*float64) string {
	p50, p95 := percentiles[0], percentiles[1]
	switch {
	case !timed:
		return "a time that is not known"
	case p50 == nil:
		return "more than " + duration(lastBound)
	}
	words := "up to " + duration(*p50)
	if p95 != nil {
		words += " (95 %: " + duration(*p95) + ")"
	}
	return words
}

// The means that would make a kind faster; the template has the same words.
const (
	resumeIt     = "Resume it."
	startProgram = "Start a program."
	decideThem   = "Decide at the Desk."
	moreWorkers  = "More workers."
	fasterPlugin = "A faster plugin."
	fine         = "Fine."
)

// helps is what would make a kind faster, and why. Both are "" if too little is known.
func helps(k answer.KindStats, timed bool) (what, why string) {
	const times, slow = 4, 10 // how much longer; the seconds from which on a time may matter
	switch {
	case k.Paused:
		return resumeIt, "it is paused"
	case k.Ready > 0 && k.Workers == 0:
		return startProgram, "no program works it"
	case !timed || k.WaitP50 == nil && k.WorkP50 == nil:
		return "", ""
	}
	wait, work := orLonger(k.WaitP50), orLonger(k.WorkP50)
	switch {
	case wait > slow && wait >= times*work && k.Ready > 0:
		return moreWorkers, fmt.Sprintf("its items wait about %.0f times as long as the work takes", wait/work)
	case work > slow && work >= times*wait:
		return fasterPlugin, fmt.Sprintf("the work takes about %.0f times as long as the wait", work/wait)
	case wait <= slow:
		return fine, ""
	}
	return "", ""
}

// orLonger is the bound of a percentile in seconds; nil is beyond the last one, so the next counts.
func orLonger(p *float64) float64 {
	if p == nil {
		return 2 * lastBound
	}
	return *p
}
