package ui

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/shell"
)

// deskData is the queue of what a person has to decide: the items that the person has taken, the items in doubt, and
// the causes of dead items.
type deskData struct {
	Mine    []task
	Doubt   []task
	Causes  []task
	Work    []answer.KindStats // of kinds that people work; Ready are the items that the user can take
	Sending []sending
	Trouble []string
	More    bool   // more items are in doubt than the queue shows
	Whole   bool   // the causes are of all dead items; false: their counts are lower bounds
	At      *task  // the task that is shown
	Place   int    // of At in the queue, from 1
	All     int    // number of tasks
	Next    string // path of the desk with the next task
	Detail  *deskDetail
	May     bool // the user may take items
	Lines   []string
}

// task is one thing to decide.
type task struct {
	ID     string // in the URL of the desk: the id of an item, or "cause:" and a cause
	State  string
	Name   string
	Beside string // text beside the name: a kind, or a number of items
	To     string // query of the desk with this task
	Here   bool   // it is shown
	Where  string // filter of the items that an act changes
	Lease  *lease
	Cause  *answer.Cause
}

// deskDetail is the item of the task that is shown.
type deskDetail struct {
	Item     answer.ItemDetail
	Why      answer.Why
	Attempts []answer.Attempt
	Verdicts []string // buttons beside done and failed
}

// dead are the items that need a person, on the desk and on the first page.
const dead = "state:dead since:365d"

// Bounds of the queue.
const (
	deskDoubt  = 25 // items in doubt
	deskCauses = 10
)

func desk(v *view) (any, error) {
	d := deskData{Lines: []string{"ledgerd ls --where 'state:doubt'", "ledgerd errors --where " + shell.Quote(dead),
		"ledgerd claim KIND --agent NAME", "ledgerd finish TOKEN --result JSON", "POST /api/v1/claims",
		"POST /api/v1/leases/finish"}}
	me, err := get[answer.Me](v, "/me", nil)
	if err != nil {
		return d, err
	}
	d.May = me.May("work")
	if err := d.takenBy(v, me); err != nil {
		return d, err
	}
	doubt, err := get[answer.List[answer.Item]](v, "/items", url.Values{"where": {"state:doubt"},
		"limit": {strconv.Itoa(deskDoubt)}})
	if err != nil {
		return d, err
	}
	d.More = doubt.Next != nil
	for _, it := range doubt.Items {
		id := strconv.FormatInt(it.ID, 10)
		d.Doubt = append(d.Doubt, task{ID: id, State: "doubt", Name: it.Key, Beside: it.Kind, Where: "id:" + id})
	}
	causes, err := get[answer.Causes](v, "/causes", url.Values{"where": {dead}})
	if err != nil {
		return d, err
	}
	d.Whole = causes.Whole
	// the entry for the rest of too many causes has no cause, so no filter can find its items
	causes.Items = slices.DeleteFunc(causes.Items, func(c answer.Cause) bool { return c.Cause == "" })
	for _, c := range causes.Items[:min(deskCauses, len(causes.Items))] {
		beside := counted(c.Count, "item", "items")
		if !causes.Whole {
			beside = "at least " + beside
		}
		d.Causes = append(d.Causes, task{ID: "cause:" + c.Cause, State: "dead", Name: cmp.Or(c.Message, c.Code),
			Beside: beside, Where: dead + " cause:" + c.Cause, Cause: &c})
	}
	d.choose(v.URL.Query().Get("at"))
	if err := d.look(v); err != nil {
		return d, err
	}
	if v.Header.Get("Ledgerd-Look") == "" { // script.js may not show the page
		v.site.desks.show(desktop{v.token, deskAgent(me)}, len(d.Trouble))
	}
	return d, nil
}

// takenBy finds the items that the user holds, and the kinds of which the user can take more.
func (d *deskData) takenBy(v *view, me answer.Me) error {
	if !d.May {
		return nil
	}
	var held []lease
	var err error
	if held, d.Sending, d.Trouble, err = v.site.desks.read(v, deskAgent(me)); err != nil {
		return err
	}
	for _, l := range held {
		d.Mine = append(d.Mine, task{ID: strconv.FormatInt(l.ID, 10), State: "leased", Name: l.Key, Beside: l.Kind,
			Lease: &l})
	}
	people, err := v.forPeople()
	if err != nil {
		return err
	}
	stats, err := v.stats()
	if err != nil {
		return err
	}
	away, err := d.away(v, deskAgent(me), people)
	for i, k := range stats.Kinds {
		stats.Kinds[i].Ready += away[k.Kind] // a claim with Resume returns them
	}
	d.Work = slices.DeleteFunc(stats.Kinds, func(k answer.KindStats) bool { return !waitsForPeople(k, people) })
	return err
}

// away counts, by kind, the items that the user holds and this desk does not know: they were handed over, or taken
// before a restart.
func (d *deskData) away(v *view, agent string, people []string) (map[string]int64, error) {
	holder := term("agent:", agent, `",`)
	if holder == "" || len(people) == 0 {
		return nil, nil
	}
	list, err := get[answer.List[answer.Item]](v, "/items", url.Values{"limit": {"100"},
		"where": {"state:leased " + holder + " kind:" + strings.Join(people, ",")}})
	n := map[string]int64{}
	for _, it := range list.Items {
		if it.Agent == agent && // the term also matches agent/2
			!slices.ContainsFunc(d.Mine, func(t task) bool { return t.Lease.ID == it.ID }) &&
			!slices.ContainsFunc(d.Sending, func(s sending) bool { return s.Item == it.ID }) {
			n[it.Kind]++
		}
	}
	return n, err
}

// forPeople reads the names of the kinds that no plugin works.
func (v *view) forPeople() (names []string, err error) {
	kinds, err := get[answer.List[answer.Kind]](v, "/kinds", nil)
	return forPeople(kinds.Items), err
}

// forPeople returns the kinds that no plugin works. A kind with a definition has been worked by a plugin.
func forPeople(kinds []answer.Kind) (names []string) {
	for _, k := range kinds {
		if k.Plugin == "" && k.Definition == "" {
			names = append(names, k.Kind)
		}
	}
	return names
}

// waitsForPeople reports whether ready items of a kind wait for people: the kind is not paused, and neither a plugin
// nor another program works it.
func waitsForPeople(k answer.KindStats, people []string) bool {
	return k.Ready > 0 && !k.Paused && k.Workers == 0 && slices.Contains(people, k.Kind)
}

// choose finds the task that is shown beside the queue: the one in the URL, or else the first.
func (d *deskData) choose(at string) {
	var all []*task
	for _, part := range [][]task{d.Mine, d.Doubt, d.Causes} {
		for i := range part {
			part[i].To = "?" + url.Values{"at": {part[i].ID}}.Encode()
			all = append(all, &part[i])
		}
	}
	d.All, d.Next = len(all), "/desk"
	if d.All == 0 {
		return
	}
	i := max(0, slices.IndexFunc(all, func(t *task) bool { return t.ID == at }))
	d.At, d.Place = all[i], i+1
	d.At.Here = true
	if d.All > 1 {
		d.Next = "/desk" + all[(i+1)%d.All].To
	}
}

// look reads the item of the task that is shown.
func (d *deskData) look(v *view) error {
	if d.At == nil || d.At.Cause != nil {
		return nil
	}
	at := "/items/" + d.At.ID
	it, err := get[answer.ItemDetail](v, at, nil)
	if err != nil {
		return err
	}
	d.Detail = &deskDetail{Item: it, Verdicts: v.site.Verdicts(it.Kind)}
	if d.Detail.Why, err = get[answer.Why](v, at+"/why", nil); err != nil {
		return err
	}
	list, err := get[answer.List[answer.Attempt]](v, at+"/attempts", url.Values{"limit": {"3"}})
	d.Detail.Attempts = list.Items
	return err
}

// deskAgent is the agent as which a person takes items: the name of the token, so that each token has a desk of its
// own, after the prefix that the token demands.
func deskAgent(me answer.Me) string {
	if strings.HasPrefix(me.Name, me.Agent) {
		return me.Name
	}
	return me.Agent + me.Name
}
