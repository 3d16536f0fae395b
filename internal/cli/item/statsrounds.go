package item

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// byRound is the name of --by that counts rounds.
const byRound = "round"

// roundGroup counts the recurring items of a kind by how they ended in a round. NewlyFailed and Recovered compare each
// item with the round that it ended before.
type roundGroup struct {
	Kind        string      `json:"kind"`
	Round       string      `json:"round"`
	Done        int64       `json:"done"`
	Failed      int64       `json:"failed"`
	NewlyFailed int64       `json:"newly_failed"`
	Recovered   int64       `json:"recovered"`
	LastEnded   report.Time `json:"last_ended_at"`
	period      time.Time
}

// roundsWindow is how far back rounds are counted by default.
const roundsWindow = 7 * 24 * time.Hour

// readEnded is how many attempts are read at a time.
const readEnded = 1000

// roundCounter counts attempts that closed rounds. They are added from the latest to the earliest.
type roundCounter struct {
	groups map[[2]string]*roundGroup // by kind and round
	later  map[int64]closedRound     // by item: the round that was added last, and so follows the next to be added
}

// closedRound is the round of an item, with how it ended.
type closedRound struct {
	group *roundGroup
	state ledger.RoundState
}

// add counts an attempt if it closed a round. If several attempts closed the same round of an item, the latest counts.
func (c *roundCounter) add(e ledger.Ended) {
	state := e.ClosedAs()
	if state == ledger.RoundOpen {
		return
	}
	at := [2]string{e.Kind, e.Round}
	g := c.groups[at]
	if g == nil {
		g = &roundGroup{Kind: e.Kind, Round: e.Round, LastEnded: report.Time(e.FinishedAt), period: e.Period}
		c.groups[at] = g
	}
	later, known := c.later[e.ItemID]
	switch {
	case known && later.group == g:
		return
	case known && later.state == ledger.RoundFailed && state == ledger.RoundDone:
		later.group.NewlyFailed++
	case known && later.state == ledger.RoundDone && state == ledger.RoundFailed:
		later.group.Recovered++
	}
	if c.later[e.ItemID] = (closedRound{g, state}); state == ledger.RoundFailed {
		g.Failed++
	} else {
		g.Done++
	}
}

// sorted returns the groups, the earliest round first.
func (c *roundCounter) sorted() []roundGroup {
	rows := []roundGroup{}
	for _, g := range c.groups {
		rows = append(rows, *g)
	}
	slices.SortFunc(rows, func(a, b roundGroup) int {
		return cmp.Or(a.period.Compare(b.period), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Round, b.Round))
	})
	return rows
}

// roundGroups counts the rounds of recurring items that were closed in the last days, by kind and round.
func roundGroups(ctx context.Context, a *app.App, f app.FilterFlags, last time.Duration, limit int) error {
	l, chosen, err := a.OpenChosen(ctx, f)
	if err != nil {
		return err
	}
	defer l.Close()
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	since := answer.Since(chosen)
	if last > 0 || since.IsZero() {
		since = now.Add(-cmp.Or(last, roundsWindow))
	}
	p := a.Printer()
	c := roundCounter{groups: map[[2]string]*roundGroup{}, later: map[int64]closedRound{}}
	q := ledger.EndedQuery{Filter: chosen, Desc: true, Limit: readEnded}
	reached, began := time.Time{}, time.Now()
	for more := true; more; {
		ended, err := l.Ended(ctx, q)
		if err != nil {
			return err
		}
		more = len(ended) == q.Limit
		for _, e := range ended {
			if more = more && !e.FinishedAt.Before(since); !e.FinishedAt.Before(since) {
				c.add(e)
			}
			q.After = e.Mark()
		}
		if more && p.Format == report.Table && time.Since(began) > endedTime {
			reached, more = q.After.At, false
		}
	}
	rows := shortened(a, c.sorted(), limit, true)
	if p.Format == report.JSON {
		err = p.Object(struct {
			Groups []roundGroup `json:"groups"`
		}{rows})
	} else {
		_, err = report.List(p, report.Each(rows))
	}
	switch {
	case !reached.IsZero() && !a.Quiet:
		fmt.Fprintf(a.Stderr, "these ended since %s, as far back as it has counted in %s; -o csv counts all\n",
			report.Local(reached), report.Seconds(endedTime))
	case !a.Quiet && last == 0 && answer.Since(chosen).IsZero():
		fmt.Fprintln(a.Stderr, "of the last 7 days; for longer: --since 30d")
	}
	return a.OrExitEmpty(len(rows), err)
}
