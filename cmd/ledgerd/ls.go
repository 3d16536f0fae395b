package main

import (
	"context"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// listing is what a list of items is to be.
type listing struct {
	filter
	limit  int
	cursor string
	sort   string
	all    bool // every item that matches
	count  bool // how many there are, exactly
	bom    bool
}

const (
	// lookTime is for how long a list for people looks for what matches.
	lookTime = 2 * time.Second
	// totalMost and totalTime bound how far it counts what matches.
	totalMost = 10_000
	totalTime = 100 * time.Millisecond
)

func (a *app) lsCommand() *cobra.Command {
	var q listing
	cmd := &cobra.Command{
		Annotations: map[string]string{rowsAnnotation: "yes"},
		Use:         "ls", Short: "List items", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Lists items by id, or as --sort says: up to --limit of them, or with --all every one that matches. In CSV and
JSON, items are written as they are read, so memory does not grow with the ledger.

By id and by ended, both also with a minus for the other way round, goes by an index, however many items
there are, and can be gone on with (--cursor). By added, due, took, key or priority all that matches is
looked at, and the first --limit of it are listed.

For people (-o table) it looks for at most two seconds, then says how far it has come and how to go on. Filters by
id, key, state, agent and since: are found by an index; others are looked for item by item. How many match
is counted up to 10,000. --count prints how many match instead of listing them, counted to the end: a number,
with -o json {"count":N}.

` + rowHelp + `

` + filterHelp,
		Example: `  ledgerd ls --state dead
  ledgerd ls --where 'outcome:failed output.status:404 payload.country:de' --sort -ended
  ledgerd ls --kind urlcheck --columns key,output.status,took,plugin,ended
  ledgerd ls --all --where since:7d -o csv > week.csv`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p := a.printer()
			if q.count && (q.all || q.bom || q.cursor != "" || cmd.Flags().Changed("limit") || p.Columns != nil) {
				return usage("bad_flag", "", "--count lists nothing: not with --all, --limit, --cursor, --columns or --bom")
			}
			if q.bom && p.Format != report.CSV {
				return usage("bad_flag", "", "--bom goes with -o csv")
			}
			return a.list(cmd.Context(), p, q)
		},
	}
	q.define(cmd)
	fl := cmd.Flags()
	fl.IntVar(&q.limit, "limit", 100, "most `rows`")
	fl.StringVar(&q.cursor, "cursor", "", "go on after this `place`, as the last line of the list before says")
	fl.StringVar(&q.sort, "sort", "id", "`order`: id, ended, added, due, took, key or priority; -id the other way round")
	fl.BoolVar(&q.all, "all", false, "all that match, without limit")
	fl.BoolVar(&q.count, "count", false, "print how many match, exactly, instead of listing them")
	fl.BoolVar(&q.bom, "bom", false, "begin CSV with a byte order mark, by which Excel knows that it is UTF-8")
	return cmd
}

// walk is the walk that a listing asks for.
func (q *listing) walk(p *report.Printer) (*ledger.Walk, error) {
	order, desc := strings.CutPrefix(q.sort, "-")
	w := &ledger.Walk{Order: ledger.Order(order), Desc: desc, Output: showsOutput(p)}
	if !w.Order.Known() {
		names := make([]string, len(ledger.Orders))
		for i, o := range ledger.Orders {
			names[i] = string(o)
		}
		return nil, usage("bad_flag", "there are "+strings.Join(names, ", ")+", each also with a minus", "--sort %s: no order", q.sort)
	}
	if q.limit < 1 {
		return nil, usage("bad_flag", "", "--limit %d: at least 1", q.limit)
	}
	if p.Format == report.Table && !q.all {
		w.Time = lookTime
	}
	if !w.Order.Indexed() {
		if q.all || q.cursor != "" {
			return nil, usage("bad_flag", "with --all and --cursor: --sort id or --sort ended", "--sort %s: only the first ones in this order are known", q.sort)
		}
		w.Top = q.limit + 1 // to know whether there are more
	}
	var err error
	w.After, err = placeOf(q.cursor, w.Order)
	return w, err
}

// placeOf reads a cursor: an id, or the end of an attempt as microseconds, item and number.
func placeOf(cursor string, order ledger.Order) (m ledger.Mark, err error) {
	if cursor == "" {
		return m, nil
	}
	var at int64
	if order == ledger.ByEnd {
		_, err = fmt.Sscanf(cursor, "%d.%d.%d", &at, &m.ItemID, &m.Number)
		m.At = time.UnixMicro(at).UTC()
	} else {
		m.ItemID, err = strconv.ParseInt(cursor, 10, 64)
	}
	if err != nil || m.ItemID < 0 || at < 0 || cursor != cursorOf(m, order) {
		return m, usage("bad_flag", "it is what the last line of the list before says, with the same --sort", "--cursor %s: not a cursor", cursor)
	}
	return m, nil
}

func cursorOf(m ledger.Mark, order ledger.Order) string {
	if order == ledger.ByEnd {
		return fmt.Sprintf("%d.%d.%d", m.At.UnixMicro(), m.ItemID, m.Number)
	}
	return strconv.FormatInt(m.ItemID, 10)
}

// list prints items.
func (a *app) list(ctx context.Context, p *report.Printer, q listing) error {
	w, err := q.walk(p)
	if err != nil {
		return err
	}
	if w.Filter, err = q.parse(); err != nil {
		return err
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if w.Filter, err = byPath(ctx, l.Ledger, w.Filter); err != nil {
		return err
	}
	if q.count {
		return a.tellCount(l.Count(ctx, w.Filter))
	}
	if q.bom {
		if _, err := io.WriteString(a.stdout, "\uFEFF"); err != nil {
			return err
		}
	}
	var end listEnd
	n, err := report.List(p, q.rows(l.Walk(ctx, w), w, &end), "id", "kind", "key", "state", "attempt", "due", "code", "error")
	if err != nil {
		return err
	}
	if err := a.tellList(ctx, l.Ledger, q, w, int64(n), end); err != nil {
		return err
	}
	if n == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return nil
}

// tellCount prints how many items match.
func (a *app) tellCount(n int64, err error) error {
	if err != nil {
		return err
	}
	err = one(a, struct {
		Count int64 `json:"count"`
	}{n}, strconv.FormatInt(n, 10))
	if err == nil && n == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}

// listEnd is where a list ended.
type listEnd struct {
	last ledger.Mark // the place of the last row
	more bool        // rows are left
}

// rows yields items up to the limit.
func (q *listing) rows(items iter.Seq2[ledger.Item, error], w *ledger.Walk, end *listEnd) iter.Seq2[itemRow, error] {
	return func(yield func(itemRow, error) bool) {
		n := 0
		for it, err := range items {
			if n == q.limit && !q.all {
				end.more = true
				return
			}
			if n++; !yield(newItemRow(it), err) {
				return
			}
			end.last = w.Reached
		}
	}
}

// tellList says what is not in a list that people see: how many more there are, or how far it has looked.
func (a *app) tellList(ctx context.Context, l *ledger.Ledger, q listing, w *ledger.Walk, n int64, end listEnd) error {
	if a.quiet {
		return nil
	}
	text := report.Count(n)
	switch {
	case end.more && !w.Cut:
		total, whole, err := l.CountUpTo(ctx, w.Filter, totalMost, totalTime)
		if err != nil {
			return err
		}
		switch {
		case whole:
			text += " of " + report.Count(total)
		case total > n:
			text += " of more than " + report.Count(min(total, totalMost))
		default:
			text += " and more"
		}
	case end.more:
	case n == 0 && !w.Cut:
		text = "nothing found"
	case !w.Cut:
		return nil
	}
	switch indexed := w.Order.Indexed(); {
	case w.Cut && indexed && !end.more:
		text = fmt.Sprintf("%s found in the first %s of looking; --cursor %s looks on, --all looks to the end", orNothing(n), seconds(lookTime), cursorOf(w.Reached, w.Order))
	case w.Cut:
		text = fmt.Sprintf("these are the first of the items up to id %d, as far as it has looked in %s; a narrower --where looks at fewer", w.Reached.ItemID, seconds(lookTime))
	case end.more && indexed:
		text += "; --cursor " + cursorOf(end.last, w.Order) + " for more"
	case end.more:
		text += "; a greater --limit for more"
	}
	fmt.Fprintln(a.stderr, text)
	return nil
}

func orNothing(n int64) string {
	if n == 0 {
		return "nothing"
	}
	return report.Count(n)
}
