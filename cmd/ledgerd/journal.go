package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// journalRow is one act of an operator or a program.
type journalRow struct {
	ID      int64       `json:"id"`
	At      report.Time `json:"at"`
	Actor   string      `json:"actor"`
	Action  string      `json:"action"`
	Subject string      `json:"subject"`
	Detail  string      `json:"detail"`
	Changed int64       `json:"changed"`
}

func newJournalRow(e ledger.JournalEntry) journalRow {
	return journalRow{e.ID, report.Time(e.At), e.Actor, e.Action, e.Subject, e.Detail, e.Changed}
}

func (a *app) journalCommand() *cobra.Command {
	var q ledger.JournalQuery
	var item string
	var since duration
	cmd := &cobra.Command{
		Annotations: map[string]string{rowsAnnotation: "yes"},
		Use:         "journal", Short: "List what operators and programs changed: when, who, what", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Lists the journal, newest first: retries, cancels and decisions of people, changed policies, and the
settings that programs brought. An act on many items has an entry for every 500 of them.

Fields of a row: id, at, actor, action, subject, detail, changed. Actions: retry, reopen, cancel, release,
forget, decide, prune, set-kind, define, release-lock.`,
		Example: `  ledgerd journal
  ledgerd journal --item inbox/a.csv
  ledgerd journal --about urlcheck --since 7d -o csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.journal(cmd.Context(), q, since, item)
		},
	}
	f := cmd.Flags()
	f.StringVar(&item, "item", "", "only acts on this item: `ID` or KEY")
	f.StringVar(&q.About, "about", "", "only entries whose subject has this `text`, such as the name of a kind")
	f.StringVar(&q.Actor, "actor", "", "only acts of this `name`, such as operator:ann")
	f.StringVar(&q.Action, "action", "", "only this `action`")
	f.Var(&since, "since", "only the last 2h, 7d …")
	f.IntVar(&q.Limit, "limit", 100, "most `rows`")
	f.Int64Var(&q.Before, "before", 0, "only entries before the one with this `id`: to read on")
	return cmd
}

func (a *app) journal(ctx context.Context, q ledger.JournalQuery, since duration, item string) error {
	if q.Limit < 1 || q.Limit > ledger.MaxBatch || q.Before < 0 {
		return usage("bad_flag", "", "--limit is 1 … %d, --before at least 0", ledger.MaxBatch)
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if item != "" {
		it, err := find(ctx, l.Ledger, item, nil, nil)
		if err != nil {
			return err
		}
		q.Item = it.ID
	}
	if since.Duration > 0 {
		now, err := l.Now(ctx)
		if err != nil {
			return err
		}
		q.Since = now.Add(-since.Duration)
	}
	entries, err := l.Journal(ctx, q)
	if err != nil {
		return err
	}
	rows := make([]journalRow, len(entries))
	for i, e := range entries {
		rows[i] = newJournalRow(e)
	}
	n, err := report.List(a.printer(), each(rows), "at", "actor", "action", "subject", "detail", "changed")
	switch {
	case err != nil:
		return err
	case n == 0 && !a.quiet:
		fmt.Fprintln(a.stderr, "nothing found")
	case n == q.Limit && !a.quiet:
		fmt.Fprintf(a.stderr, "for more: --before %d\n", entries[n-1].ID)
	}
	if n == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return nil
}
