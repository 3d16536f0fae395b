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

// leasesData are the leases in force, and a chart of the leases of the last hours.
type leasesData struct {
	rows[answer.Lease] // in force
	ranges
	Cut         string // the time at which the chart begins, if it does not show the whole range
	Chart       chart
	Ended       int            // leases that ended in the range
	Lost        int            // of them
	Taken       int            // lost leases whose item another agent then took
	Overlapping []answer.Lease // that began before the earlier lease of the item had ended
}

// leaseSteps is the number of steps in which the range of the page moves on.
const leaseSteps = 60

// leases returns the data of the page of leases: those in force, and a chart of those that ended in a range of time.
func leases(v *view) (any, error) {
	r, s := v.timeRange("/leases", leaseSteps, "1h", "15m", "1h", "6h", "24h")
	d := leasesData{ranges: r}
	var err error
	if d.rows, err = list[answer.Lease](v, "/leases", "ledgerd ls --state leased"); err != nil {
		return d, err
	}
	d.Lines = append(d.Lines, "GET /api/v1/leases?from="+d.Range)
	ended, more, err := readParts[answer.Lease](v, "/leases", url.Values{"from": {s.From.Format(time.RFC3339)}})
	if err != nil {
		return d, err
	}
	if more && len(ended) > 0 { // the chart shows all leases of a shorter time rather than some of a longer one
		s = span{time.Time(ended[len(ended)-1].Ended), time.Now().UTC()}
		d.Cut = s.From.UTC().Format("15:04:05")
	}
	d.draw(s, ended)
	return d, nil
}

// draw makes the chart, and counts what was lost and taken over.
func (d *leasesData) draw(s span, ended []answer.Lease) {
	open := slices.DeleteFunc(slices.Clone(d.Items), func(l answer.Lease) bool { // it ended between the two requests
		return slices.ContainsFunc(ended, func(e answer.Lease) bool { return e.Item == l.Item && e.Attempt == l.Attempt })
	})
	all := slices.Concat(ended, open)
	all = slices.DeleteFunc(all, func(l answer.Lease) bool { return time.Time(l.Leased).IsZero() })
	slices.SortFunc(all, func(a, b answer.Lease) int {
		return cmp.Or(cmp.Compare(a.Item, b.Item), cmp.Compare(a.Attempt, b.Attempt))
	})
	d.Ended = len(ended)
	agents := map[string]*held{}
	var names []string
	for _, l := range all {
		if agents[l.Agent] == nil {
			agents[l.Agent] = &held{}
			names = append(names, l.Agent)
		}
		agents[l.Agent].add(l, s)
	}
	slices.Sort(names)
	lanes := make([]lane, len(names))
	laneOf := map[string]int{}
	for i, name := range names {
		laneOf[name] = i
		lanes[i] = lane{name, counted(int64(len(agents[name].bars)), "lease", "leases"), agents[name].bars}
	}
	jumps := d.taken(all, laneOf)
	d.Chart = gantt("Leases by agent", s, lanes, jumps)
	d.Chart.Key = []sign{{"b-done", "done"}, {"b-failed", "failed"}, {"b-lost", "lost or unknown"},
		{"b-other", "snoozed, released or cancelled"}, {"b-open", "goes on"}, {"jump", "taken over"},
		{"h4", "many"}} // the shades of a lane with too many bars
	d.Chart.Head = []string{"agent", "leases", "done", "failed", "lost", "other", "go on", "held in all"}
	for _, name := range names {
		h := agents[name]
		d.Lost += h.lost
		d.Chart.row(name, report.Count(int64(len(h.bars))), report.Count(int64(h.done)), report.Count(int64(h.failed)),
			report.Count(int64(h.lost)), report.Count(int64(h.other)), report.Count(int64(h.open)),
			duration(h.time.Seconds()))
	}
}

// held are the leases of one agent.
type held struct {
	bars                            []bar
	done, failed, lost, other, open int
	time                            time.Duration
}

// add counts a lease and adds its bar.
func (h *held) add(l answer.Lease, s span) {
	b := bar{From: time.Time(l.Leased), To: time.Time(l.Ended)}
	switch {
	case l.Outcome == "":
		b.Class, b.To = "b-open", s.To
		h.open++
	case l.Outcome.Completed():
		b.Class = "b-done"
		h.done++
	case l.Outcome.Failure():
		b.Class = "b-failed"
		h.failed++
	case l.Outcome.Uncertain():
		b.Class = "b-lost"
		h.lost++
	default:
		b.Class = "b-other"
		h.other++
	}
	b.Title = fmt.Sprintf("%s, attempt %d: %s from %s", l.Key, l.Attempt, cmp.Or(string(l.Outcome), "goes on"),
		moment(l.Leased))
	h.time += b.To.Sub(b.From)
	h.bars = append(h.bars, b)
}

// taken finds lost leases whose item another agent then took, and items that had two leases at the same time. all is in
// the order of items and attempts. laneOf is the lane of each agent.
func (d *leasesData) taken(all []answer.Lease, laneOf map[string]int) (jumps []jump) {
	for i := 1; i < len(all); i++ {
		before, l := all[i-1], all[i]
		if before.Item != l.Item {
			continue
		}
		ended, leased := time.Time(before.Ended), time.Time(l.Leased)
		if leased.Before(ended) || ended.IsZero() {
			d.Overlapping = append(d.Overlapping, l)
		}
		if before.Outcome.TakenBack() && before.Agent != l.Agent {
			jumps = append(jumps, jump{laneOf[before.Agent], laneOf[l.Agent], ended, leased,
				fmt.Sprintf("%s: lost by %s, taken by %s", l.Key, before.Agent, l.Agent)})
		}
	}
	d.Taken = len(jumps)
	return jumps
}
