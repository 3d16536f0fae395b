package main

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// endedRow is an attempt that has ended.
type endedRow struct {
	Type    string         `json:"type"`
	Ended   report.Time    `json:"ended_at"`
	ID      int64          `json:"id"`
	Kind    string         `json:"kind"`
	Scope   string         `json:"scope"`
	Key     string         `json:"key"`
	Outcome ledger.Outcome `json:"outcome"`
	Attempt int64          `json:"attempt"`
	Round   string         `json:"round"`
	Agent   string         `json:"agent"`
	Plugin  string         `json:"plugin"`
	Code    string         `json:"code"`
	Error   string         `json:"error"`
	MS      *int64         `json:"ms"`
}

func newEndedRow(e ledger.Ended) endedRow {
	row := endedRow{"item", report.Time(e.FinishedAt), e.ItemID, e.Kind, e.Scope, e.Key, e.Outcome, e.Attempt.Attempt, e.Round, e.Agent, e.Worker, e.Code, e.Error, nil}
	if !e.LeasedAt.IsZero() {
		ms := e.FinishedAt.Sub(e.LeasedAt).Milliseconds()
		row.MS = &ms
	}
	return row
}

// watching are the flags of watch.
type watching struct {
	filter
	before, limit int
	failed        bool
	untilEnded    bool
	timeout       duration
}

const (
	tailEvery = time.Second
	// tailOverlap is how long a transaction may take from reading the clock to its commit and still be seen.
	tailOverlap = 5 * time.Second
)

func (a *app) watchCommand() *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Annotations: map[string]string{rowsAnnotation: "yes"},
		Use:         "watch [ID|KEY]…", Short: "Follow attempts as they end, or wait until items have ended", GroupID: groupLook,
		Long: `Without items: prints the items that ended last, then each attempt as it ends, whichever agent works it,
until Ctrl-C. It asks once a second, by an index. An attempt whose end took more than 5 s to be written
may be missing. With -o jsonl and csv: type ("item"), ended_at, id, kind, scope, key, outcome, attempt,
round, agent, plugin, code, error, ms (since the claim).

With items, or with --until-ended: waits until the items that are named, or that match when it begins,
have ended: done, dead, in doubt or cancelled. A recurring item has ended when it waits for its next
round. Items that are added later are not waited for. On a terminal, or with --progress, it shows how many have
ended. The items are worked by other processes: a
daemon, or ledgerd work. Exits with 0 if all are done, 3 if some ended otherwise, 5 if --timeout was
over before. With -o json: {"items","done","dead","doubt","cancelled","left","timed_out","seconds"}.

` + filterHelp + `
Without items, code: and error~ are about each attempt, since: and until: about when it ended.`,
		Example: `  ledgerd watch --failed
  ledgerd watch --where kind:urlcheck -n 0 -o jsonl
  ledgerd watch inbox/a.csv --timeout 10m
  ledgerd watch --where scope:spring --until-ended --timeout 2h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.untilEnded || len(args) > 0 {
				for _, name := range []string{"lines", "limit", "failed"} {
					if cmd.Flags().Changed(name) {
						return usage("bad_flag", "", "--%s is for following attempts: without items and without --until-ended", name)
					}
				}
				return a.wait(cmd.Context(), w.filter, args, w.timeout.Duration)
			}
			if cmd.Flags().Changed("timeout") {
				return usage("bad_flag", "ledgerd watch ITEM --timeout 10m   ledgerd watch --where kind:urlcheck --until-ended --timeout 10m",
					"--timeout is for waiting: name items, or add --until-ended")
			}
			return a.tail(cmd.Context(), w)
		},
	}
	w.define(cmd)
	f := cmd.Flags()
	f.IntVarP(&w.before, "lines", "n", 10, "`items` that ended before, to begin with")
	f.IntVar(&w.limit, "limit", 0, "end after this number of `lines` (0: never)")
	f.BoolVar(&w.failed, "failed", false, "only attempts that failed, crashed, were lost, or are in doubt")
	f.BoolVar(&w.untilEnded, "until-ended", false, "wait until the items that match now have ended")
	f.Var(&w.timeout, "timeout", "how long to wait at most (default: for ever)")
	return cmd
}

func (a *app) tail(ctx context.Context, t watching) error {
	if a.output.String() == string(report.JSON) {
		return usage("bad_flag", "lines: -o jsonl", "watch has no end, so there is no one value: not -o json")
	}
	if t.before < 0 || t.before > ledger.MaxBatch || t.limit < 0 {
		return usage("bad_flag", "", "-n is 0 … %d, --limit at least 0", ledger.MaxBatch)
	}
	chosen, err := t.parse()
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
	out, err := a.lines()
	if err != nil {
		return err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	follow := follower{ledger: l.Ledger, query: ledger.EndedQuery{Filter: chosen, Failed: t.failed, Limit: followPage}, reached: now, seen: map[ledger.Mark]bool{}}
	left := t.limit
	tell := func(e ledger.Ended) error {
		if err := out(newEndedRow(e)); err != nil {
			return err
		}
		if left--; left == 0 {
			return status(exitOK)
		}
		return nil
	}
	if err := follow.begin(ctx, t.before, tell); err != nil {
		return err
	}
	for {
		if err := follow.poll(ctx, tell); err != nil {
			return err
		}
		if err := pause(ctx, tailEvery); err != nil {
			return err
		}
	}
}

// pause waits; an error is the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lines writes rows one at a time, also for people, who see them as they come.
func (a *app) lines() (func(endedRow) error, error) {
	p := a.printer()
	if p.Format != report.Table {
		rows, err := report.NewRows[endedRow](p, nil, nil)
		if err != nil {
			return nil, err
		}
		return rows.Write, nil
	}
	if p.Columns != nil {
		return nil, usage("bad_flag", "choose columns with -o csv", "watch has no table whose columns one could choose")
	}
	return func(r endedRow) error {
		text := fmt.Sprintf("%s  %-9s %s  %s", p.Local(time.Time(r.Ended)), r.Outcome, r.Kind, r.Key)
		if r.MS != nil {
			text += "  " + seconds(time.Duration(*r.MS)*time.Millisecond)
		}
		first, _, _ := strings.Cut(r.Error, "\n")
		text += prefixed("  ", strings.TrimSpace(r.Code+" "+first))
		_, err := fmt.Fprintln(a.stdout, report.Safe(text))
		return err
	}, nil
}

// followPage is how many attempts are read at a time.
const followPage = 250

// follower finds attempts as they end. Transactions do not commit in the order of their times, so
// it looks back a little each time, and remembers what it has told of that time.
type follower struct {
	ledger  *ledger.Ledger
	query   ledger.EndedQuery
	reached time.Time // the newest time seen
	seen    map[ledger.Mark]bool
}

// begin tells the items that ended last.
func (f *follower) begin(ctx context.Context, n int, tell func(ledger.Ended) error) error {
	if n == 0 {
		// What ended just now is not news.
		return f.poll(ctx, func(ledger.Ended) error { return nil })
	}
	last, err := f.ledger.Recent(ctx, f.query.Filter, n)
	if err != nil {
		return err
	}
	for _, e := range last {
		if f.query.Failed && !e.Outcome.Fails() {
			continue
		}
		f.seen[e.Mark()] = true
		if err := tell(e); err != nil {
			return err
		}
	}
	return nil
}

// poll tells what has ended since the last time, however much.
func (f *follower) poll(ctx context.Context, tell func(ledger.Ended) error) error {
	q := f.query
	q.After = ledger.Mark{At: f.reached.Add(-tailOverlap)}
	for {
		page, err := f.ledger.Ended(ctx, q)
		if err != nil {
			return err
		}
		for _, e := range page {
			m := e.Mark()
			if f.seen[m] {
				continue
			}
			f.seen[m] = true
			if m.At.After(f.reached) {
				f.reached = m.At
			}
			if err := tell(e); err != nil {
				return err
			}
		}
		maps.DeleteFunc(f.seen, func(m ledger.Mark, _ bool) bool { return m.At.Before(f.reached.Add(-tailOverlap)) })
		if len(page) < q.Limit {
			return nil
		}
		q.After = page[len(page)-1].Mark()
	}
}
