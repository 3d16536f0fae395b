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

// endedGroup is how many attempts of a group ended with each outcome, as numbers or, for people, as text. Fields that
// --by does not name are nil.
type endedGroup[N int64 | string] struct {
	Hour   report.Time `json:"hour,omitzero"`
	Kind   *string     `json:"kind,omitempty"`
	Scope  *string     `json:"scope,omitempty"`
	Code   *string     `json:"code,omitempty"`
	Worker *string     `json:"worker,omitempty"`
	endedCounts[N]
}

// endedCounts has a column for each outcome. A table that is too wide leaves out the columns with spare, 1 first.
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
	for field := range reflect.TypeFor[endedCounts[int64]]().Fields() {
		all = append(all, ledger.Outcome(field.Tag.Get("json")))
	}
	return all
}()

// newEndedCounts sets the column of each outcome to its count.
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

// shownGroup makes the row of a group for people. reached is the end of the earliest attempt that was counted, zero if
// all were. The figures have the mark ≥ if the hour of the group began before that.
func shownGroup(g stats.AttemptGroup, n map[ledger.Outcome]int64, by []string, reached time.Time) endedGroup[string] {
	mark := ""
	if !reached.IsZero() && !g.Hour.After(reached) {
		mark = "≥ "
	}
	row := newEndedGroup(g, n, by)
	return endedGroup[string]{row.Hour, row.Kind, row.Scope, row.Code, row.Worker,
		newEndedCounts(func(o ledger.Outcome) string { return mark + report.Count(n[o]) })}
}

// endedTime bounds the count of attempts for a table if --since is given.
const endedTime = 5 * lookTime

// byEnded returns the names of --by if they ask for attempts that ended; nil if they ask for items.
func byEnded(by string) ([]string, error) {
	names := strings.Split(by, ",")
	all := []string{stats.ByHour, stats.ByCode, stats.ByWorker, stats.ByKind, stats.ByScope}
	ofAttempts := all[:3] // items have kinds and scopes, too
	if !slices.ContainsFunc(ofAttempts, func(name string) bool { return slices.Contains(names, name) }) {
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

// endedGroups is stats --by with names of byEnded: it counts attempts that ended in the last 24 h, or since the time of
// --since or --where.
func endedGroups(ctx context.Context, a *app.App, f app.FilterFlags, by []string, last time.Duration, limit int) error {
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
	for _, g := range shortened(a, counts.Groups(), limit, slices.Contains(by, stats.ByHour)) {
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
		_, err = report.List(&p, report.Each(shown), columns...)
	default:
		_, err = report.List(&p, report.Each(rows), columns...)
	}
	if !reached.IsZero() && !a.Quiet {
		fmt.Fprintf(a.Stderr, "these ended since %s, as far back as it has counted in %s (≥: not all of the row); "+
			"-o csv counts all\n", report.Local(reached), report.Seconds(within))
	}
	return a.OrExitEmpty(len(rows), err)
}

// endedColumns returns the columns: the names of --by, then the outcomes. By code only failures are counted.
func endedColumns(by []string) []string {
	columns := slices.Clone(by)
	for _, o := range endedOutcomes {
		if o.FailedOrUncertain() || !slices.Contains(by, stats.ByCode) {
			columns = append(columns, string(o))
		}
	}
	return columns
}
