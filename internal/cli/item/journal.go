package item

import (
	"context"
	"fmt"
	"iter"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

func JournalCommand(a *app.App) *cobra.Command {
	var q ledger.JournalQuery
	var item string
	var since app.DurationFlag
	cmd := &cobra.Command{
		Annotations: map[string]string{app.RowsAnnotation: "yes"},
		Use:         "journal", Short: "List what operators and programs changed: when, who, what", GroupID: app.GroupLook,
		Args: app.Arguments(0, 0),
		Long: `Lists the journal, newest first: retries, cancels and decisions of people, changed policies, and the settings that
programs brought. A table has up to --limit entries; CSV and JSON have all, unless it is given. Acts of people are by
operator:USER, the name of their account; decisions by the name that --agent gave; those of programs by the name of the
agent. An act on many items is one entry: detail is what was asked for, ids are the first ones of the items that it
changed ("3 7-12"), keys the first ones of those that it removed.

Fields of a row: id, at, actor, action, subject, detail, changed, ids, keys. A table has the first of a long detail, the other
formats have all of it. Actions: retry, place, put-off, reopen, cancel, release, forget, decide, prune, pause,
resume, set-kind, define, release-lock.`,
		Example: `  ledgerd journal
  ledgerd journal --item inbox/a.csv
  ledgerd journal --action set-kind --since 7d -o csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all := a.Printer().Format != report.Table && !cmd.Flags().Changed("limit")
			return journal(cmd.Context(), a, q, since, item, all)
		},
	}
	f := cmd.Flags()
	f.StringVar(&item, "item", "", "only acts on this item: `ID` or KEY")
	f.StringVar(&q.Action, "action", "", "only this `action`")
	f.Var(&since, "since", "only the last 2h, 7d …")
	f.IntVar(&q.Limit, "limit", 100, "most `rows`; CSV and JSON have all unless it is given")
	return cmd
}

func journal(ctx context.Context, a *app.App, q ledger.JournalQuery, since app.DurationFlag, item string,
	all bool) error {
	if q.Limit < 1 || q.Limit > bounds.MaxBatch {
		return failure.Usage("bad_flag", "", "--limit is 1 … %d", bounds.MaxBatch)
	}
	l, err := a.Open(ctx, app.ToRead)
	if err != nil {
		return err
	}
	defer l.Close()
	if item != "" {
		it, err := app.Find(ctx, l.Any, item, nil, nil)
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
	if all {
		q.Limit = bounds.MaxBatch
	}
	p := a.Printer()
	n, err := report.List(p, journalRows(ctx, l.Any, q, all, func(row *answer.Journal) {
		if p.Format == report.Table {
			row.Detail = report.Cut(row.Detail, mostDetail)
		}
	}), "at", "actor", "action", "subject", "detail", "changed")
	switch {
	case err != nil:
		return err
	case n == 0 && !a.Quiet:
		fmt.Fprintln(a.Stderr, "nothing found")
	case n == q.Limit && !all && !a.Quiet:
		fmt.Fprintf(a.Stderr, "these are the newest %d; a greater --limit for more\n", n)
	}
	if n == 0 && a.ErrorOnEmpty {
		return failure.Status(failure.ExitEmpty)
	}
	return nil
}

// journalRows yields entries, up to the limit, or all: as many at a time. each changes a row before.
func journalRows(ctx context.Context, l ledgers.Any, q ledger.JournalQuery, all bool,
	each func(row *answer.Journal)) iter.Seq2[answer.Journal, error] {
	return func(yield func(answer.Journal, error) bool) {
		for {
			entries, err := l.Journal(ctx, q)
			if err != nil {
				yield(answer.Journal{}, err)
				return
			}
			for _, e := range entries {
				row := answer.NewJournal(e)
				if each(&row); !yield(row, nil) {
					return
				}
				q.Before = e.ID
			}
			if !all || len(entries) < q.Limit {
				return
			}
		}
	}
}
