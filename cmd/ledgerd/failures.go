package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// errorRow is a cause of failures.
type errorRow struct {
	Code     string           `json:"code"`
	Message  string           `json:"message"`
	Count    int64            `json:"count"`
	Share    float64          `json:"share"`
	First    report.Time      `json:"first_seen"`
	Last     report.Time      `json:"last_seen"`
	Kinds    []string         `json:"kinds"`
	Plugins  []string         `json:"plugins"`
	Examples []report.Example `json:"examples"`
}

// errorsWindow is how far errors looks back unless it is told.
const errorsWindow = 24 * time.Hour

func (a *app) errorsCommand() *cobra.Command {
	var f filter
	cmd := &cobra.Command{
		Annotations: map[string]string{rowsAnnotation: "yes"},
		Use:         "errors", Short: "Group what failed by cause: how often, since when, where", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Groups items of which the newest attempt failed, crashed, was lost or may or may not have taken effect, by its
code and message. Each counts once, and one that was repeated with success does not. What differs from item to
item, as its key, numbers and long ids, does not matter; the message shown is that of the first example.
Attempts of the last 24 h, unless --where says since: or until:. For people (-o table) it looks for at most
two seconds, the latest attempts first, and says how far back it has come; in CSV and JSON, it looks at all.

With -o json: [{"code","message","count","share","first_seen","last_seen","kinds","plugins",
"examples":[{"id","key","error"}]}], the most frequent first; share is 0 … 1.

` + filterHelp + `
Here since: and until: are about when the newest attempt ended.`,
		Example: "  ledgerd errors\n  ledgerd errors --where 'kind:urlcheck since:7d' -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.errors(cmd.Context(), f)
		},
	}
	f.define(cmd)
	return cmd
}

func (a *app) errors(ctx context.Context, f filter) error {
	chosen, err := f.parse()
	if err != nil {
		return err
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if chosen, err = byPath(ctx, l.Ledger, chosen); err != nil {
		return err
	}
	from := since(chosen)
	if from.IsZero() {
		now, err := l.Now(ctx)
		if err != nil {
			return err
		}
		from = now.Add(-errorsWindow)
		if !a.quiet {
			fmt.Fprintln(a.stderr, "of the last 24 h; for longer: --where since:7d")
		}
	}
	p := a.printer()
	w := &ledger.Walk{Filter: chosen.And(failing(from)), Order: ledger.ByEnd, Desc: true}
	if p.Format == report.Table {
		w.Time = lookTime
	}
	causes, err := failures(ctx, l.Ledger, w)
	if err != nil {
		return err
	}
	list := causes.List()
	rows := make([]errorRow, len(list))
	for i, c := range list {
		list[i].AtLeast = w.Cut
		rows[i] = errorRow{c.Code, c.Message, c.Count, c.Share, report.Time(c.First), report.Time(c.Last), orEmpty(c.Kinds), orEmpty(c.Plugins), c.Examples}
	}
	switch {
	case a.quiet:
	case w.Cut:
		fmt.Fprintf(a.stderr, "these failed since %s, as far back as it has looked in %s; -o json looks at all\n", p.Local(w.Reached.At), seconds(lookTime))
	case len(rows) == 0:
		fmt.Fprintln(a.stderr, "nothing failed")
	}
	if p.Format == report.Table && p.Columns == nil {
		err = p.Table(list, shortKey())
	} else {
		_, err = report.List(p, each(rows))
	}
	if err == nil && len(rows) == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}

// since is the time from which on a filter asks what happened; zero if it does not.
func since(f ledger.Filter) time.Time {
	from := f.Since
	for _, g := range f.Also {
		if at := since(g); at.After(from) {
			from = at
		}
	}
	return from
}

// failing matches the items of which the newest attempt failed, from a time on.
func failing(from time.Time) ledger.Filter {
	return ledger.Filter{Since: from, Outcomes: slices.DeleteFunc(slices.Clone(ledger.Outcomes), func(o ledger.Outcome) bool { return !o.Fails() })}
}

// failures groups the items of a walk by cause. It keeps no more than the groups.
func failures(ctx context.Context, l *ledger.Ledger, w *ledger.Walk) (report.Failures, error) {
	var causes report.Failures
	for it, err := range l.Walk(ctx, w) {
		if err != nil {
			return causes, err
		}
		causes.Add(it.ID, it.Key, it.Code, cmp.Or(it.Error, string(it.Outcome))).Seen(it.EndedAt, it.Kind, it.Worker)
	}
	return causes, nil
}
