package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// workData has how long items of each kind waited, and how long the work on them took.
type workData struct {
	Kinds   []workKind
	Wants   map[string][]string // kinds by the advice for them
	Waits   chart               // of one kind; without a drawing if no waits are known
	Waited  []link              // kinds whose waits are known
	Lines   []string
	Measure bool   // something ended in the last hour
	Longest string // the longest time that is measured
}

// workKind is a row of the table of kinds.
type workKind struct {
	answer.KindStats
	Helps  string // the advice, see helps
	Why    string // the reason of the advice
	Desk   bool   // its ready items wait for people
	Timed  bool   // some waits are known
	Items  string // path of the ready items
	Worked string // path of the items that ended in the last hour
}

func work(v *view) (any, error) {
	s, err := v.stats()
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

// drawWaits draws the waits of a kind; if none are known, those of the first kind with known waits.
func (d *workData) drawWaits(s answer.Stats, known map[string]bool, kind string) {
	for _, k := range d.Kinds {
		if known[k.Kind] && !known[kind] {
			kind = k.Kind
		}
		if known[k.Kind] && (len(d.Waited) < maxKinds || k.Kind == kind) {
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

// Advice for a kind. The template has the same words.
const (
	resumeIt     = "Resume it."
	startProgram = "Start a program."
	decideThem   = "Decide at the Desk."
	moreWorkers  = "More workers."
	fasterPlugin = "A faster plugin."
	fine         = "Fine."
)

// helps returns the advice that would make a kind faster, and the reason. Both are "" if too little is known.
func helps(k answer.KindStats, timed bool) (advice, why string) {
	// A time matters from slow seconds on, if it is at least so many times as long as the other time.
	const times, slow = 4, 10
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

// orLonger is a percentile in seconds. nil is longer than lastBound, so the next bound counts.
func orLonger(p *float64) float64 {
	if p == nil {
		return 2 * lastBound
	}
	return *p
}
