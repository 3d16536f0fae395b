package main

import (
	"context"
	"fmt"
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
		Use: "errors", Short: "Group what failed by cause: how often, since when, where", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Groups items of which the newest attempt failed, crashed, was lost or may or may not have taken effect, by its
code and message. Each counts once, and one that was repeated with success does not. What differs from item to
item, as its key, numbers and long ids, does not matter; the message shown is that of the first example.
Attempts of the last 24 h, unless --where says since: or until:.

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
	causes, err := failures(ctx, l.Ledger, chosen, from)
	if err != nil {
		return err
	}
	list := causes.List()
	rows := make([]errorRow, len(list))
	for i, c := range list {
		rows[i] = errorRow{c.Code, c.Message, c.Count, c.Share, report.Time(c.First), report.Time(c.Last), orEmpty(c.Kinds), orEmpty(c.Plugins), c.Examples}
	}
	if len(rows) == 0 && !a.quiet {
		fmt.Fprintln(a.stderr, "nothing failed")
	}
	if p := a.printer(); p.Format == report.Table && p.Columns == nil {
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

// endedPage is how many attempts are read at a time.
const endedPage = 250

// failures groups the items of which the newest attempt failed from a time on. It keeps no more than the groups.
func failures(ctx context.Context, l *ledger.Ledger, f ledger.Filter, from time.Time) (report.Failures, error) {
	var causes report.Failures
	q := ledger.EndedQuery{Filter: f, Failed: true, Newest: true, Limit: endedPage, After: ledger.Mark{At: from}}
	for {
		page, err := l.Ended(ctx, q)
		if err != nil {
			return causes, err
		}
		for _, e := range page {
			message := e.Error
			if message == "" {
				message = string(e.Outcome)
			}
			causes.Add(e.ItemID, e.Key, e.Code, message).Seen(e.FinishedAt, e.Kind, e.Worker)
		}
		if len(page) < endedPage {
			return causes, nil
		}
		q.After = page[len(page)-1].Mark()
	}
}
