package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// todayData is the data of the first page.
type todayData struct {
	Stats      answer.Stats
	All        answer.KindStats // of all kinds
	TopCauses  []answer.Cause   // the most frequent causes of dead items
	CauseCount int64
	CausesPath string
	AllCauses  bool // false: the server ran out of time, so CauseCount is a lower bound
	Problems   []problem
	ETA        float64 // seconds until no kind has open items; 0: not known
	Workers    int64
	NeedPerson int64  // dead items and items in doubt
	Hour       chart  // attempts of the last hour
	Burn       chart  // items left over time; without a drawing if no item is left or none was done
	At         string // when the figures were counted, to the minute: the page stays the same while nothing happens
	Lines      []string
}

// problem is something that a person should know.
type problem struct {
	State   string // the state whose icon is shown before it
	Subject string // the kind or program that has the problem
	Text    string
	Label   string // of the link
	Path    string // of the link
}

// shownCauses is how many causes the first page names.
const shownCauses = 5

func today(v *view) (any, error) {
	s, err := v.stats()
	if err != nil {
		return nil, err
	}
	d := todayData{Stats: s, Workers: int64(s.Agents), Lines: []string{"ledgerd stats", "GET /api/v1/stats"}}
	people, err := v.forPeople()
	if err != nil {
		return nil, err
	}
	for _, k := range s.Kinds {
		d.All.Ready += k.Ready
		d.All.Waiting += k.Waiting
		d.All.Leased += k.Leased
		d.All.Dead += k.Dead
		d.All.Doubt += k.Doubt
		d.All.Done1h += k.Done1h
		d.All.Failed1h += k.Failed1h
		d.Problems = append(d.Problems, problemsOf(k, people)...)
	}
	d.ETA = etaOf(s.Kinds)
	d.NeedPerson = d.All.Dead + d.All.Doubt
	d.Burn = burnDown(s)
	d.Hour, d.At = lastHour(s), time.Time(s.At).UTC().Format("15:04")
	agents, err := get[answer.List[answer.Agent]](v, "/agents", nil)
	if err != nil && !outOfScope(err) { // a token that is bound to kinds may not read it
		return nil, err
	}
	for _, a := range agents.Items {
		d.Problems = append(d.Problems, problemsOfAgent(a)...)
	}
	slices.SortStableFunc(d.Stats.Kinds, func(a, b answer.KindStats) int {
		return cmp.Compare(b.Left+b.Dead+b.Doubt, a.Left+a.Dead+a.Doubt)
	})
	if d.All.Dead == 0 {
		return d, nil
	}
	causes, err := get[answer.Causes](v, "/causes", url.Values{"where": {dead}})
	d.CausesPath = "/causes?" + url.Values{"where": {dead}}.Encode()
	d.CauseCount, d.AllCauses = int64(len(causes.Items)), causes.Whole
	d.TopCauses = causes.Items[:min(shownCauses, len(causes.Items))]
	return d, err
}

// etaOf returns the seconds until no kind has open items, or 0 if that is not known for a kind that has some.
func etaOf(kinds []answer.KindStats) (eta float64) {
	for _, k := range kinds {
		switch {
		case k.ETA != nil:
			eta = max(eta, *k.ETA)
		case k.Left > 0:
			return 0
		}
	}
	return eta
}

// problemsOfAgent returns the plugins of a program that do not run. If the program itself is gone and holds items, that
// is its only problem.
func problemsOfAgent(a answer.Agent) (all []problem) {
	if a.State == answer.Gone && a.Held > 0 {
		return []problem{{"dead", a.Agent, "was last heard of at " + moment(a.Seen) + " UTC and holds " +
			counted(a.Held, "item", "items") + ".", "Machines", "/machines"}}
	}
	for _, p := range a.Plugins {
		words := map[string]string{"crashing": "crashes again and again on %s: nothing is given to it before %s UTC.",
			"absent": "does not start on %s; that is tried again at %s UTC."}[p.State]
		if words != "" {
			words = fmt.Sprintf(words, a.Host, moment(p.Until))
			if p.Error != "" {
				words += " The reason: " + p.Error
			}
			all = append(all, problem{"dead", p.Kind, words, "Machines", "/machines"})
		}
	}
	return all
}

// lastHourOf is the hour that ends with the minute in which the figures were counted.
func lastHourOf(s answer.Stats) span {
	to := time.Time(s.At).Truncate(time.Minute).Add(time.Minute)
	return span{to.Add(-time.Hour), to}
}

// lastHour draws the attempts that ended in each minute of that hour.
func lastHour(s answer.Stats) chart {
	hour := lastHourOf(s)
	columns := make([]column, 60)
	for i := range columns {
		columns[i].At = hour.From.Add(time.Duration(i) * time.Minute)
	}
	for _, m := range s.Minutes {
		if at := time.Time(m.At); !at.Before(hour.From) && at.Before(hour.To) {
			col := &columns[hour.cell(at, len(columns))]
			col.Done, col.Failed = col.Done+m.Done, col.Failed+m.Failed
		}
	}
	return bars("Ended each minute", hour, columns)
}

// Bounds of the burn-down: how far it looks ahead, and in how many steps.
const (
	maxAhead   = 6 * time.Hour
	aheadSteps = 24
)

// burnDown draws how many of the items that are known now were left in each minute of the last hour, and how many will
// be left if each kind goes on as fast as in the last minute. Items that were added within the hour count from its
// beginning.
func burnDown(s answer.Stats) chart {
	hour := lastHourOf(s)
	to := hour.To
	var left, done int64
	var ahead time.Duration
	for _, k := range s.Kinds {
		left += k.Left
		if k.ETA != nil {
			ahead = max(ahead, time.Duration(*k.ETA*float64(time.Second)))
		}
	}
	doneIn := make([]int64, 60) // by minute
	for _, m := range s.Minutes {
		if at := time.Time(m.At); !at.Before(hour.From) && at.Before(to) {
			doneIn[hour.cell(at, len(doneIn))] += m.Done
			done += m.Done
		}
	}
	if left == 0 || done == 0 {
		return chart{}
	}
	var all []point
	for i, n := range doneIn {
		all = append(all, point{At: hour.From.Add(time.Duration(i) * time.Minute), Left: left + done})
		done -= n
	}
	next := []point{{to, left}}
	if ahead > 0 {
		ahead = min(max(ahead, 10*time.Minute), maxAhead)
	}
	for i := 1; ahead > 0 && i <= aheadSteps; i++ {
		after := ahead * time.Duration(i) / aheadSteps
		p := point{At: to.Add(after)}
		for _, k := range s.Kinds {
			rest := float64(k.Left)
			if k.ETA != nil && *k.ETA > 0 {
				rest *= max(0, 1 - after.Seconds() / *k.ETA)
			}
			p.Left += int64(rest)
		}
		next = append(next, p)
	}
	return burn("Left of the work that is known now", all, next)
}

// problemsOf returns the problems of a kind: its items in doubt, and why its ready items are not worked.
func problemsOf(k answer.KindStats, people []string) (all []problem) {
	where := func(states string) string {
		return "/items?" + url.Values{"where": {"kind:" + k.Kind + " " + states}}.Encode()
	}
	if k.Doubt > 0 {
		all = append(all, problem{"doubt", k.Kind, counted(k.Doubt, "item is", "items are") +
			" in doubt: whether the work took effect is not known, and a person has to find out.", "Decide",
			where("state:doubt")})
	}
	switch {
	case k.Paused && k.Ready > 0:
		all = append(all, problem{"waiting", k.Kind, "is paused, and " + counted(k.Ready, "item waits", "items wait") + ".",
			"Resume", "/work"})
	case waitsForPeople(k, people):
		all = append(all, problem{"ready", k.Kind, counted(k.Ready, "item waits", "items wait") + " for people.",
			"Desk", "/desk"})
	case k.Workers == 0 && k.Ready > 0:
		all = append(all, problem{"waiting", k.Kind, counted(k.Ready, "item waits", "items wait") +
			", and no program works this kind.", "Machines", "/machines"})
	}
	return all
}
