package item

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// endedGroup is how many attempts of a group ended with each outcome, as numbers or, for people, as text. A field by
// which they are not counted is null.
type endedGroup[N int64 | string] struct {
	Hour   report.Time `json:"hour,omitzero"`
	Kind   *string     `json:"kind,omitempty"`
	Scope  *string     `json:"scope,omitempty"`
	Code   *string     `json:"code,omitempty"`
	Worker *string     `json:"worker,omitempty"`
	endedCounts[N]
}

// endedCounts are the outcomes as columns: what fails first, then what is left out first of a table that is too wide.
type endedCounts[N int64 | string] struct {
	Done      N `json:"done"`
	Skipped   N `json:"skipped" spare:"4"`
	Failed    N `json:"failed"`
	Crashed   N `json:"crashed"`
	Lost      N `json:"lost"`
	Unknown   N `json:"unknown"`
	Snoozed   N `json:"snoozed" spare:"3"`
	Released  N `json:"released" spare:"2"`
	Cancelled N `json:"cancelled" spare:"1"`
}

// endedOutcomes are the outcomes in the order of their columns.
var endedOutcomes = func() (all []ledger.Outcome) {
	of := reflect.TypeFor[endedCounts[int64]]()
	for field := range of.Fields() {
		all = append(all, ledger.Outcome(field.Tag.Get("json")))
	}
	return all
}()

// newEndedCounts fills in the column of each outcome.
func newEndedCounts[N int64 | string](count func(ledger.Outcome) N) (counts endedCounts[N]) {
	columns := reflect.ValueOf(&counts).Elem()
	for i, o := range endedOutcomes {
		columns.Field(i).Set(reflect.ValueOf(count(o)))
	}
	return counts
}

func newEndedGroup(g stats.AttemptGroup, n map[ledger.Outcome]int64, by []string) endedGroup[int64] {
	row := endedGroup[int64]{Hour: report.Time(g.Hour),
		endedCounts: newEndedCounts(func(o ledger.Outcome) int64 { return n[o] })}
	for _, c := range []struct {
		name, value string
		into        **string
	}{{stats.ByKind, g.Kind, &row.Kind}, {stats.ByScope, g.Scope, &row.Scope}, {stats.ByCode, g.Code, &row.Code},
		{stats.ByWorker, g.Worker, &row.Worker}} {
		if slices.Contains(by, c.name) {
			*c.into = &c.value
		}
	}
	return row
}

// shownGroup is a group for people. Its figures have a mark unless it is whole: everything that ended later than
// reached was counted, and that is all of its hour. A zero time is all.
func shownGroup(g stats.AttemptGroup, n map[ledger.Outcome]int64, by []string, reached time.Time) endedGroup[string] {
	mark := ""
	if !reached.IsZero() && !g.Hour.After(reached) {
		mark = "≥ "
	}
	row := newEndedGroup(g, n, by)
	return endedGroup[string]{row.Hour, row.Kind, row.Scope, row.Code, row.Worker,
		newEndedCounts(func(o ledger.Outcome) string { return mark + report.Count(n[o]) })}
}

// endedTime is for how long attempts of a time that was asked for are counted for people.
const endedTime = 5 * lookTime

// byEnded are the names of --by if they ask for attempts that ended, else nil: for items.
func byEnded(by string) ([]string, error) {
	names := strings.Split(by, ",")
	all := []string{stats.ByHour, stats.ByCode, stats.ByWorker, stats.ByKind, stats.ByScope}
	if !slices.ContainsFunc(all[:3], func(name string) bool { return slices.Contains(names, name) }) {
		if len(names) > 1 {
			return nil, failure.Usage("bad_flag", "attempts by several: --by hour,"+by,
				"--by %q: items are counted by one; several names go with hour, code or worker", by)
		}
		return nil, nil
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, failure.Usage("bad_flag", "", "--by %q: %s comes twice", by, name)
		}
		if !slices.Contains(all, name) {
			return nil, failure.Usage("bad_flag", "a field of the payload that is named code: --by payload.code",
				"--by %q: attempts are counted by %s", by, strings.Join(all, ", "))
		}
	}
	return names, nil
}

// endedGroups counts attempts that ended, of the last 24 h unless --since or --where has another start.
func endedGroups(ctx context.Context, a *app.App, f app.Filter, by []string, last time.Duration) error {
	l, chosen, err := a.OpenChosen(ctx, f)
	if err != nil {
		return err
	}
	defer l.Close()
	within := lookTime
	if last > 0 || !answer.Since(chosen).IsZero() {
		within = endedTime
	}
	if last > 0 || answer.Since(chosen).IsZero() {
		now, err := l.Now(ctx)
		if err != nil {
			return err
		}
		if last == 0 {
			last = answer.FailingWindow
			if !a.Quiet {
				fmt.Fprintln(a.Stderr, "of the last 24 h; for longer: --since 7d")
			}
		}
		chosen = chosen.And(ledger.Filter{Since: now.Add(-last)})
	}
	p := *a.Printer()
	if p.Format != report.Table {
		within = 0 // to the end
	}
	counts, reached, err := l.AttemptGroups(ctx, chosen, by, within)
	if err != nil {
		return err
	}
	rows, shown := []endedGroup[int64]{}, []endedGroup[string]{}
	for _, g := range counts.Groups() {
		rows = append(rows, newEndedGroup(g, counts[g], by))
		shown = append(shown, shownGroup(g, counts[g], by, reached))
	}
	columns := endedColumns(by)
	if p.Format == report.CSV && p.Columns == nil {
		p.Columns = columns
	}
	switch p.Format {
	case report.JSON:
		err = p.Object(struct {
			Groups []endedGroup[int64] `json:"groups"`
		}{rows})
	case report.Table:
		_, err = report.List(&p, app.Each(shown), columns...)
	default:
		_, err = report.List(&p, app.Each(rows), columns...)
	}
	if !reached.IsZero() && !a.Quiet {
		fmt.Fprintf(a.Stderr, "these ended since %s, as far back as it has counted in %s (≥: not all of the row); "+
			"-o csv counts all\n", report.Local(reached), report.Seconds(within))
	}
	return a.OrExitEmpty(len(rows), err)
}

// endedColumns are what attempts are counted by, and the outcomes of those that are counted.
func endedColumns(by []string) []string {
	columns := slices.Clone(by)
	for _, o := range endedOutcomes {
		if o.Fails() || !slices.Contains(by, stats.ByCode) {
			columns = append(columns, string(o))
		}
	}
	return columns
}
