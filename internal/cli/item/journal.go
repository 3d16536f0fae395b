package item

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/filter"
)

// journalFlags are the flags of journal: a query, and texts that are parsed into it.
type journalFlags struct {
	ledger.JournalQuery
	item, since, until string
	all                bool // ignore Limit
}

func JournalCommand(a *app.App) *cobra.Command {
	var q journalFlags
	cmd := &cobra.Command{
		Annotations: map[string]string{app.RowsAnnotation: "yes"},
		Use:         "journal", Short: "List what operators and programs changed: when, who, what", GroupID: app.GroupLook,
		Args: app.Arguments(0, 0),
		Long: `Lists the journal, newest first: retries, cancels and decisions of people, changed policies, and the settings that
programs brought. For people, an act is a line: when, who, what was done to how many items, and the filter as it was
typed; of settings the old and the new value. There are up to --limit lines; CSV and JSON have all, unless it
is given.

Fields of a row in CSV and JSON, and for --columns: id, at, actor, action, subject, detail, changed, ids, keys. Acts of
people are by operator:USER, the name of their account; decisions by the name that --agent gave; those of programs by
the name of the agent. An act on many items is one entry: detail is what was asked for, ids are the first ones of the
items that it changed ("3 7-12"), keys the first ones of those that it removed.

Actions: retry, place, put-off, reopen, cancel, release, forget, decide, prune, pause, resume, set-kind, define,
release-lock, restore, restored, moved, set-environment.`,
		Example: `  ledgerd journal
  ledgerd journal --item inbox/a.csv
  ledgerd journal --since '2026-11-20 22:00' --until 2026-11-21T06:00
  ledgerd journal --action set-kind --since 7d -o csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q.all = a.Printer().Format != report.Table && !cmd.Flags().Changed("limit")
			return journal(cmd.Context(), a, q)
		},
	}
	f := cmd.Flags()
	f.StringVar(&q.item, "item", "", "only acts on this item: `ID` or KEY")
	f.StringVar(&q.Action, "action", "", "only this `action`")
	f.StringVar(&q.since, "since", "", "only since this `time`: 2h or 7d ago, 2026-11-20, 2026-11-20T10:00 …")
	f.StringVar(&q.until, "until", "", "only before this `time`")
	f.IntVar(&q.Limit, "limit", 100, "most `rows`; CSV and JSON have all unless it is given")
	return cmd
}

// times parses --since and --until; durations count back from now.
func (q *journalFlags) times(now time.Time) (err error) {
	for _, flag := range []struct {
		name, value string
		into        *time.Time
	}{{"since", q.since, &q.Since}, {"until", q.until, &q.Until}} {
		if flag.value == "" {
			continue
		}
		if *flag.into, err = filter.Moment(flag.value, now); err != nil {
			return failure.Usage("bad_flag", "", "--%s: %v", flag.name, err)
		}
	}
	return nil
}

func journal(ctx context.Context, a *app.App, q journalFlags) error {
	if q.Limit < 1 || q.Limit > bounds.MaxBatch {
		return failure.Usage("bad_flag", "", "--limit is 1 … %d", bounds.MaxBatch)
	}
	if err := q.times(time.Now()); err != nil { // reports mistakes before a ledger is opened
		return err
	}
	l, err := a.Open(ctx, app.ToRead)
	if err != nil {
		return err
	}
	defer l.Close()
	if q.item != "" {
		it, err := app.Find(ctx, l.Any, q.item, nil, nil)
		if q.Item = it.ID; err != nil {
			q.Item, _ = strconv.ParseInt(q.item, 10, 64) // the journal knows items that were removed
			if failure.Explain(err).Code != "not_found" || q.Item < 1 || strconv.FormatInt(q.Item, 10) != q.item {
				return err
			}
		}
	}
	now, err := l.Now(ctx)
	if err == nil {
		err = q.times(now)
	}
	if err != nil {
		return err
	}
	if q.all {
		q.Limit = bounds.MaxBatch
	}
	n, err := printJournal(a.Printer(), journalRows(ctx, l.Any, q.JournalQuery, q.all))
	switch {
	case err != nil:
		return err
	case n == 0 && !a.Quiet:
		fmt.Fprintln(a.Stderr, "nothing found")
	case n == q.Limit && !q.all && !a.Quiet:
		fmt.Fprintf(a.Stderr, "these are the newest %d; a greater --limit for more\n", n)
	}
	return a.OrExitEmpty(n, nil)
}

// printJournal prints entries and returns how many. For people it writes sentences that the terminal wraps: cut to the
// width of a terminal, they would lose the filter.
func printJournal(p *report.Printer, entries iter.Seq2[answer.Journal, error]) (n int, err error) {
	if p.Format != report.Table || p.Columns != nil {
		return report.List(p, entries)
	}
	var lines [][]string
	for e, err := range entries {
		if err != nil {
			return 0, err
		}
		lines = append(lines, []string{report.Local(time.Time(e.At)), e.By(), e.Did()})
	}
	return len(lines), p.To(p.Out).Align("", lines)
}

// journalTime is about how long one part of the journal is looked for. A call over HTTP has 30 seconds.
const journalTime = 5 * time.Second

// journalRows yields q.Limit entries, or with all every entry, read q.Limit at a time.
func journalRows(ctx context.Context, l ledgers.Any, q ledger.JournalQuery,
	all bool) iter.Seq2[answer.Journal, error] {
	return func(yield func(answer.Journal, error) bool) {
		for left := q.Limit; ; {
			entries, next, err := l.JournalPart(ctx, q, journalTime)
			for _, e := range entries {
				if left--; left < 0 && !all || !yield(answer.NewJournal(e), nil) {
					return
				}
			}
			if err != nil {
				yield(answer.Journal{}, err)
				return
			}
			if q = next; q.Before == 0 || left <= 0 && !all {
				return
			}
		}
	}
}
