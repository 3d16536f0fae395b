// Package item has the commands that look at items and decide about them. acts.go has what cancel, retry, prune and
// finish share, bounds.go the bounds of commands, wait.go how watch and retry wait for items.
package item

import (
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/order"
)

// listing are the flags of ls.
type listing struct {
	app.FilterFlags
	limit  int
	sort   string
	all    bool  // list every item that matches
	count  bool  // print only the number of items that match
	atMost int64 // with count: it is an error if more match
}

func LsCommand(a *app.App) *cobra.Command {
	var q listing
	cmd := &cobra.Command{
		Annotations: map[string]string{app.RowsAnnotation: "yes"},
		Use:         "ls", SuggestFor: []string{"list"}, Short: "List items", GroupID: app.GroupLook,
		Args: app.Arguments(0, 0),
		Long: `Lists the items that match, by id or in the order of --sort. A table has the first --limit of them, or with --all
all of them. CSV and JSON have all of them unless --limit is given. Items are written as they are read, so memory
does not grow with the ledger.

Orders by id and ended (also -id, -ended) use an index, so they are fast with any number of items. The other
orders (added, due, took, key, priority) read every item that matches and list the first --limit of them; CSV and
JSON then need --limit.

A table stops after two seconds. Then it names how far it has come and how to go on. The terms id, key, state, agent
and since of --where use an index; others read item by item. The total below a table is counted up to 10,000.

--count prints the exact number of items that match instead of a list; with -o json {"count":N}. With --at-most N
it exits with 1 if more than N items match: an alert for cron.

` + rowHelp + `

` + app.FilterHelp,
		Example: `  ledgerd ls --state dead
  ledgerd ls --where 'outcome:failed output.status:404 payload.country:de' --sort -ended
  ledgerd ls --kind urlcheck --columns key,output.status,took,plugin,ended
  ledgerd ls --all --where since:7d -o csv > week.csv
  ledgerd ls --count --at-most 50 --state dead`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := a.Printer()
			if q.count && (q.all || cmd.Flags().Changed("limit") || p.Columns != nil) {
				return failure.Usage("bad_flag", "", "--count lists nothing: not with --all, --limit or --columns")
			}
			if q.atMost < 0 || cmd.Flags().Changed("at-most") && !q.count {
				return failure.Usage("bad_flag", "ledgerd ls --count --at-most 50 --state dead",
					"--at-most is 0 or more, and goes with --count")
			}
			if !cmd.Flags().Changed("at-most") {
				q.atMost = math.MaxInt64
			}
			if p.Format != report.Table && !cmd.Flags().Changed("limit") {
				q.all = true
			}
			return list(cmd.Context(), a, p, q)
		},
	}
	q.Define(cmd)
	fl := cmd.Flags()
	fl.IntVar(&q.limit, "limit", 100, "most `rows`; CSV and JSON have all unless it is given")
	fl.StringVar(&q.sort, "sort", "id", "`order`: id, ended, added, due, took, key or priority; -id the other way round")
	fl.BoolVar(&q.all, "all", false, "all that match, without limit")
	fl.BoolVar(&q.count, "count", false, "print how many match, exactly, instead of listing them")
	fl.Int64Var(&q.atMost, "at-most", 0, "with --count: exit with 1 if more than this `number` match")
	return cmd
}

// walk returns the walk that reads the items of a listing, without its filter.
func (q *listing) walk(p *report.Printer) (*ledger.Walk, error) {
	by, desc := strings.CutPrefix(q.sort, "-")
	w := &ledger.Walk{Order: order.By(by), Desc: desc, Output: showsOutput(p)}
	if !w.Order.Known() {
		names := make([]string, len(order.All))
		for i, o := range order.All {
			names[i] = string(o)
		}
		return nil, failure.Usage("bad_flag", "there are "+strings.Join(names, ", ")+", each also with a minus",
			"--sort %s: no order", q.sort)
	}
	if q.limit < 1 {
		return nil, failure.Usage("bad_flag", "", "--limit %d: at least 1", q.limit)
	}
	if p.Format == report.Table && !q.all {
		w.Time = lookTime
	}
	if !w.Order.Indexed() {
		if q.all {
			return nil, failure.Usage("bad_flag", "give a limit: --limit 100; --sort id and --sort ended list all",
				"--sort %s: only the first ones in this order are known", q.sort)
		}
		w.Top = q.limit + 1 // to know whether there are more
	}
	return w, nil
}

// list prints items.
func list(ctx context.Context, a *app.App, p *report.Printer, q listing) error {
	w, err := q.walk(p)
	if err != nil {
		return err
	}
	l, chosen, err := a.OpenChosen(ctx, q.FilterFlags)
	if err != nil {
		return err
	}
	defer l.Close()
	w.Filter = chosen
	if q.count {
		n, err := l.Count(ctx, w.Filter)
		if err = tellCount(a, n, err); err == nil && n > q.atMost {
			return failure.New(failure.ExitError, "too_many", fmt.Sprintf("%s match, more than %s", report.Plural(n, "item"),
				report.Count(q.atMost)), report.Prefixed("see them: ledgerd ls ", report.Safe(q.Line())))
		}
		return err
	}
	more := false
	n, err := report.List(p, q.rows(l.Walk(ctx, w), &more), "id", "kind", "key", "state", "attempt",
		"due", "code", "error")
	if err != nil {
		return err
	}
	if err := tellList(ctx, a, l.Any, w, int64(n), more); err != nil {
		return err
	}
	return a.OrExitEmpty(n, nil)
}

// tellCount prints how many items match.
func tellCount(a *app.App, n int64, err error) error {
	if err != nil {
		return err
	}
	err = app.One(a, struct {
		Count int64 `json:"count"`
	}{n}, strconv.FormatInt(n, 10))
	return a.OrExitEmpty(int(n), err)
}

// rows yields items up to the limit, and sets more if there are others.
func (q *listing) rows(items iter.Seq2[ledger.Item, error], more *bool) iter.Seq2[answer.Item, error] {
	return func(yield func(answer.Item, error) bool) {
		n := 0
		for it, err := range items {
			if n == q.limit && !q.all {
				*more = true
				return
			}
			if n++; !yield(answer.NewItem(it), err) {
				return
			}
		}
	}
}

// tellList prints below a list of n items what is not in it: how many more there are, or how far the walk came in its
// time.
func tellList(ctx context.Context, a *app.App, l ledgers.Any, w *ledger.Walk, n int64, more bool) error {
	if a.Quiet {
		return nil
	}
	text := report.Count(n)
	switch {
	case more && !w.Cut:
		total, whole, err := l.CountUpTo(ctx, w.Filter, totalMost, totalTime)
		if err != nil {
			return err
		}
		switch {
		case whole:
			text += " of " + report.Count(total)
		case total > n:
			text += " of more than " + report.Count(total)
		default:
			text += " and more"
		}
	case more:
	case n == 0 && !w.Cut:
		text = "nothing found"
	case !w.Cut:
		return nil
	}
	switch indexed := w.Order.Indexed(); {
	case w.Cut && indexed && !more:
		if n == 0 {
			text = "nothing"
		}
		text += fmt.Sprintf(" found in the first %s of looking; --all looks to the end", report.Seconds(lookTime))
	case w.Cut:
		text = fmt.Sprintf("these are the first of the items up to id %d, as far as it has looked in %s; a narrower "+
			"--where looks at fewer", w.Reached.ItemID, report.Seconds(lookTime))
	case more && indexed:
		text += "; --all lists all"
	case more:
		text += "; a greater --limit for more"
	}
	fmt.Fprintln(a.Stderr, text)
	return nil
}

// Bounds of the count of all items that match.
const (
	totalMost = 10_000
	totalTime = 100 * time.Millisecond
)

// rowHelp describes the fields of a row.
const rowHelp = `A row has these fields: all of them with -o json, jsonl and csv, or only those that --columns names:
  id, kind, scope, key, state, round, round_state, attempt (how many), failures (in the current round), priority, due, added_at, source (where it came from), shard_key (empty: its key), trace_id (see docs/tracing.md)
  failing_since: when the first attempt failed after the last completion; retries and new rounds do not change it
  recovered_at: when the item was completed after that; the next failure clears it
  agent, leased_at, expires: who holds it, since when and until when
  outcome, code, cause (see errors), error, worker (the agent of that attempt), plugin (NAME@VERSION), started_at, ended_at, took_s (seconds):
  of the newest attempt that ended
  payload, payload.FIELD, output, output.FIELD: output is that of the newest attempt that has one
--columns also takes names without _at or _s: --columns key,output.status,took,ended. A FIELD that an item does not
have is empty.`

// showsOutput reports whether the output of items is printed. Only then it is read.
func showsOutput(p *report.Printer) bool {
	if p.Columns == nil {
		return p.Format != report.Table
	}
	return slices.ContainsFunc(p.Columns, func(c string) bool { return c == "output" || strings.HasPrefix(c, "output.") })
}
