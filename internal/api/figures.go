package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/order"
	"github.com/ledgerd/ledgerd/ledger/recurrence"
)

func figureRoutes() []Route {
	return []Route{
		route(Route{Name: "getStats", Method: http.MethodGet, Path: "/stats", Scope: access.Read,
			Summary: "Count what is open by kind, and how fast it is worked; the field at tells how old the answer is"},
			getStats),
		route(Route{Name: "getCauses", Method: http.MethodGet, Path: "/causes",
			Scope: access.Read, Codes: []string{"bad_filter"},
			Summary: "Group what failed by cause, the latest failures first"}, getCauses),
		route(Route{Name: "listAgents", Method: http.MethodGet, Path: "/agents", Scope: access.Read, AllKinds: true,
			Summary: "List the programs that work, and all others that hold items"}, listAgents),
		route(Route{Name: "listLeases", Method: http.MethodGet, Path: "/leases",
			Scope: access.Read, Codes: []string{"bad_cursor"},
			Summary: "List the leases in force; with the parameter from, the leases that ended, the latest first"}, listLeases),
		route(Route{Name: "listRounds", Method: http.MethodGet, Path: "/rounds",
			Scope: access.Read, Codes: []string{"bad_cursor", "bad_filter"},
			Summary: "List the rounds of recurring items that were closed, the latest first"}, listRounds),
		route(Route{Name: "listLocks", Method: http.MethodGet, Path: "/locks", Scope: access.Read, AllKinds: true,
			Summary: "List the named locks that are held"}, listLocks),
		route(Route{Name: "listJournal", Method: http.MethodGet, Path: "/journal",
			Scope: access.Read, AllKinds: true, Codes: []string{"bad_cursor"},
			Summary: "List what operators and programs changed, newest first"}, listJournal),
	}
}

type statsIn struct {
	Wait bool `query:"wait" default:"true" doc:"false: wait a tenth of a second at most for a count, which takes seconds where millions of items are open; without one of the last minute the answer is too_slow then"`
}

func getStats(c *Call, in statsIn) (answer.Stats, error) {
	s, err := c.api.stats.get(c.Context(), in.Wait)
	s.Kinds = slices.DeleteFunc(slices.Clone(s.Kinds), func(k answer.KindStats) bool { return !c.Grant.MaySee(k.Kind) })
	s.Minutes = slices.DeleteFunc(slices.Clone(s.Minutes), func(m answer.Minute) bool { return !c.Grant.MaySee(m.Kind) })
	return s, err
}

type causesIn struct {
	Where string `query:"where" doc:"filter; without since: or until: those of the last 24 h"`
}

func getCauses(c *Call, in causesIn) (answer.Causes, error) {
	f, err := c.filter(in.Where, time.Now())
	if err != nil {
		return answer.Causes{}, err
	}
	now, err := c.Read.Now(c.Context())
	if err != nil {
		return answer.Causes{}, err
	}
	from := answer.Since(f)
	if !answer.Dated(f) {
		from = now.Add(-answer.FailingWindow)
	}
	w := &ledger.Walk{Filter: f.And(answer.Failing(from)), Order: order.Ended, Desc: true, Time: partTime}
	var causes report.Failures
	if !from.IsZero() { // with only until: there is no beginning
		causes.Over(from, answer.Until(f, now))
	}
	err = answer.AddFailures(c.Context(), c.Read, w, &causes)
	all := answer.Causes{Items: []answer.Cause{}, Since: report.Time(from), Whole: !w.Cut,
		From: report.Time(causes.From), To: report.Time(causes.To)}
	if w.Cut {
		all.Since = report.Time(w.Reached.At)
	}
	for _, g := range causes.List() {
		all.Items = append(all.Items, answer.NewCause(g))
	}
	return all, err
}

func listAgents(c *Call, _ none) (answer.List[answer.Agent], error) {
	rows, _, err := answer.Agents(c.Context(), c.Read)
	return answer.NewList(rows, ""), err
}

type leasesIn struct {
	From   string `query:"from" doc:"list those that ended since then: a duration such as 2h, or a time in RFC 3339"`
	To     string `query:"to" doc:"with from: those that ended before"`
	Limit  int64  `query:"limit" default:"100" range:"1 … 1000" doc:"at most this many leases"`
	Cursor string `query:"cursor" doc:"next of the part before"`
}

func listLeases(c *Call, in leasesIn) (answer.List[answer.Lease], error) {
	at, from, after, err := c.beginEnded(in.Cursor, in.From, in.To)
	switch {
	case err != nil:
		return answer.List[answer.Lease]{}, err
	case in.From == "":
		return c.heldLeases(at, int(in.Limit))
	}
	q := ledger.EndedQuery{Filter: c.visible(ledger.Filter{}), Desc: true, After: after, Limit: int(in.Limit)}
	ended, err := c.Read.Ended(c.Context(), q)
	var rows []answer.Lease
	for _, e := range ended {
		if e.FinishedAt.Before(from) {
			return answer.NewList(rows, ""), nil
		}
		rows = append(rows, answer.EndedLease(e))
	}
	next := ""
	if n := len(ended); n == int(in.Limit) {
		next = at.after(ended[n-1].Mark())
	}
	return answer.NewList(rows, next), err
}

// heldLeases lists the leases in force.
func (c *Call) heldLeases(at cursor, limit int) (answer.List[answer.Lease], error) {
	w := &ledger.Walk{Filter: c.visible(ledger.Filter{States: []ledger.State{ledger.StateLeased}}), After: at.mark(),
		Time: partTime}
	var rows []answer.Lease
	for it, err := range c.Read.Walk(c.Context(), w) {
		if err != nil {
			return answer.List[answer.Lease]{}, err
		}
		if rows = append(rows, answer.NewLease(it)); len(rows) == limit {
			return answer.NewList(rows, at.after(w.Reached)), nil
		}
	}
	next := ""
	if w.Cut {
		next = at.after(w.Reached)
	}
	return answer.NewList(rows, next), nil
}

// beginEnded begins or continues a list of attempts that ended between two times, the latest first. parts are the other
// parameters on which the list depends. since is the time of from; the part begins after the mark.
func (c *Call) beginEnded(text, from, to string, parts ...string) (at cursor, since time.Time, after ledger.Mark,
	err error) {
	at, err = begin(text, time.Now().UTC(), slices.Concat([]string{c.route.Path}, parts, []string{from, to})...)
	if err == nil {
		since, err = moment("from", from, at.Now)
	}
	if after = at.mark(); text == "" && err == nil {
		after.At, err = moment("to", to, at.Now)
	}
	return at, since, after, err
}

// moment reads a duration before now, or a time; "" is the zero time.
func moment(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if d, err := recurrence.ParseDuration(text); err == nil {
		return now.Add(-d), nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, bad(name, "", "%s: %q is neither a duration (2h) nor a time (2026-11-20T10:00:00Z)", name, text)
	}
	return at, nil
}

func listLocks(c *Call, _ none) (answer.List[answer.Lock], error) {
	held, err := locks.New(c.Read).Held(c.Context())
	rows := make([]answer.Lock, len(held))
	for i, h := range held {
		rows[i] = answer.NewLock(h)
	}
	return answer.NewList(rows, ""), err
}

type journalIn struct {
	Item   int64  `query:"item" doc:"only acts on the item with this id"`
	Actor  string `query:"actor" doc:"only acts of this actor"`
	Action string `query:"action" doc:"only this action"`
	Since  string `query:"since" doc:"only since then: a duration such as 2h, or a time in RFC 3339"`
	Limit  int64  `query:"limit" default:"100" range:"1 … 1000" doc:"at most this many entries; the last part may have more"`
	Cursor string `query:"cursor" doc:"next of the part before"`
}

func listJournal(c *Call, in journalIn) (answer.List[answer.Journal], error) {
	at, err := begin(in.Cursor, time.Now().UTC(), c.route.Path, strconv.FormatInt(in.Item, 10), in.Actor, in.Action,
		in.Since)
	if err != nil {
		return answer.List[answer.Journal]{}, err
	}
	since, err := moment("since", in.Since, at.Now)
	if err != nil {
		return answer.List[answer.Journal]{}, err
	}
	entries, below, err := c.Read.JournalPart(c.Context(), ledger.JournalQuery{Before: at.ID, From: at.Num, Since: since,
		Actor: in.Actor, Action: in.Action, Item: in.Item, Limit: int(in.Limit)}, partTime)
	entries, err = c.maskEntries(entries, err)
	rows := make([]answer.Journal, len(entries))
	for i, e := range entries {
		rows[i] = answer.NewJournal(e)
	}
	next := ""
	if below.Before > 0 {
		next = at.after(ledger.Mark{ItemID: below.Before, Number: below.From})
	}
	return answer.NewList(rows, next), err
}

// paced is an answer whose cost grows with the number of open items. One request at a time computes it, and at most a
// twentieth of the time is spent on that. All other requests get the answer that was computed last.
type paced[T any] struct {
	read func(context.Context) (T, error)

	mu      sync.Mutex
	value   T
	err     error
	next    time.Time     // when it may be read again
	running chan struct{} // closed when the present reading ends; nil: there is none
}

const (
	paceShare = 20          // the pause after a reading, in multiples of its time
	paceTime  = time.Minute // for one reading
	// failedPause is the longest time until the next reading after one that failed.
	failedPause = 5 * time.Second
	// outdated is how long after the time for its next reading a value is outdated: it was not asked for since.
	outdated = time.Minute
	// hurryTime is the longest time that a page waits for a value. With the rest of its work it stays below 300 ms.
	hurryTime = 100 * time.Millisecond
)

// get returns the newest value. It waits for the reading that gives one if there is none yet, or only an outdated one.
// It waits at most partTime for a newer value than it has. With wait false it waits at most hurryTime. If ctx ends
// before, an outdated value is better than none, unless wait is false or the last reading failed.
func (p *paced[T]) get(ctx context.Context, wait bool) (T, error) {
	p.mu.Lock()
	first := p.next.IsZero()
	has := !first && time.Since(p.next) <= outdated
	none := first || !has && (p.err != nil || !wait) // what it has is no answer
	if p.running == nil && !time.Now().Before(p.next) {
		p.running = make(chan struct{})
		go p.renew(context.WithoutCancel(ctx))
	}
	running := p.running
	p.mu.Unlock()
	if running != nil {
		if has || !wait {
			most := hurryTime
			if wait {
				most = partTime
			}
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, most)
			defer cancel()
		}
		select {
		case <-running:
		case <-ctx.Done():
			if none {
				var zero T
				return zero, ctx.Err()
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value, p.err
}

// renew reads the value once.
func (p *paced[T]) renew(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, paceTime)
	defer cancel()
	began := time.Now()
	value, err := p.read(ctx)
	if errors.Is(err, context.DeadlineExceeded) { // a caller that waits gets this error while the reading goes on
		err = fmt.Errorf("not counted within %s", paceTime)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pause := paceShare * time.Since(began)
	if p.err = err; err != nil {
		pause = min(pause, failedPause)
	} else {
		p.value = value
	}
	p.next = time.Now().Add(pause)
	close(p.running)
	p.running = nil
}
