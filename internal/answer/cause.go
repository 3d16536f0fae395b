package answer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// Cause is a cause of failures.
type Cause struct {
	Cause    string           `json:"cause"`
	Code     string           `json:"code"`
	Message  string           `json:"message"`
	Count    int64            `json:"count"`
	ForGood  int64            `json:"for_good"` // of these: items that are not tried again by themselves
	Share    float64          `json:"share"`
	First    report.Time      `json:"first_seen"`
	Last     report.Time      `json:"last_seen"`
	Kinds    []string         `json:"kinds"`
	Plugins  []string         `json:"plugins"`
	Examples []report.Example `json:"examples"`
	Trend    []int64          `json:"trend"` // how many ended in each 24th of the time from trend_from to trend_to
}

// NewCause makes a Cause from the failures of a report.
func NewCause(c report.Failure) Cause {
	return Cause{Cause: c.Cause, Code: c.Code, Message: c.Message, Count: c.Count, ForGood: c.ForGood, Share: c.Share,
		First: report.Time(c.First), Last: report.Time(c.Last), Kinds: report.OrEmpty(c.Kinds),
		Plugins: report.OrEmpty(c.Plugins), Examples: report.OrEmpty(c.Examples), Trend: report.OrEmpty(c.Trend)}
}

// Causes are the causes of what failed, the most frequent first.
type Causes struct {
	Items []Cause `json:"items"`
	// Since is the time from which failures were counted. Whole is false if the counting took too long: then older
	// failures that match are not counted.
	Since report.Time `json:"since"`
	Whole bool        `json:"whole"`
	// From and To are the range of time of the trends. If the filter has until: and no since:, there are no trends and
	// both are null.
	From report.Time `json:"trend_from"`
	To   report.Time `json:"trend_to"`
}

// Failing matches the items of which the newest attempt failed, from a time on.
func Failing(from time.Time) ledger.Filter {
	return ledger.Filter{Since: from, Outcomes: slices.DeleteFunc(slices.Clone(ledger.Outcomes),
		func(o ledger.Outcome) bool { return !o.FailedOrUncertain() })}
}

// FailingWindow is how far back failures are looked for by default.
const FailingWindow = 24 * time.Hour

// Since returns the since of a filter and all its parts, the latest if there are several; zero if there is none.
func Since(f ledger.Filter) time.Time {
	from := f.Since
	for _, g := range f.Also {
		if at := Since(g); at.After(from) {
			from = at
		}
	}
	return from
}

// Until returns the until of a filter and all its parts, the earliest if there are several; at most now.
func Until(f ledger.Filter, now time.Time) time.Time {
	if !f.Until.IsZero() && f.Until.Before(now) {
		now = f.Until
	}
	for _, g := range f.Also {
		now = Until(g, now)
	}
	return now
}

// Dated reports whether a filter or a part of it has since or until.
func Dated(f ledger.Filter) bool {
	return !f.Since.IsZero() || !f.Until.IsZero() || slices.ContainsFunc(f.Also, Dated)
}

// AddFailures adds the items of a walk to causes. It does not keep the items.
func AddFailures(ctx context.Context, l ledgers.Any, w *ledger.Walk, causes *report.Failures) error {
	for it, err := range l.Walk(ctx, w) {
		if err != nil {
			return err
		}
		g := causes.Add(it.ID, it.Key, it.Code, cmp.Or(it.Error, string(it.Outcome)))
		g.Seen(cmp.Or(it.FailingSince, it.EndedAt), it.EndedAt, it.Kind, it.Worker)
		causes.Ended(g, it.EndedAt)
		if it.RoundState == ledger.RoundFailed || it.RoundState == ledger.RoundDoubt {
			g.ForGood++
		}
	}
	return nil
}
