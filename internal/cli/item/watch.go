package item

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/follow"
)

// watching are the flags of watch.
type watching struct {
	app.FilterFlags
	before, limit int
	failed        bool
	untilEnded    bool
	timeout       app.DurationFlag
}

// tailEvery is the time between two reads of the attempts that have ended.
const tailEvery = time.Second

func WatchCommand(a *app.App) *cobra.Command {
	var w watching
	cmd := &cobra.Command{
		Annotations: map[string]string{app.RowsAnnotation: "yes"},
		Use:         "watch [ID|KEY]…", SuggestFor: []string{"logs"},
		Short:   "Follow attempts as they end, or wait until items have ended",
		GroupID: app.GroupLook,
		Long: `Follows attempts, or waits: with items or --until-ended it waits until items have ended.

Without items: prints the items that ended last, then each attempt as it ends, whichever agent works it,
until Ctrl-C, or --limit lines, or --timeout: exits with 5 if that was over before the --limit. It asks once a
second, by an index. An attempt whose end took more than 5 s to be written may be missing. With -o jsonl and csv:
type ("item"), ended_at, id, kind, scope, key, outcome, attempt, round, agent, plugin, code, error, ms (since the
claim).

With items, or with --until-ended: waits until the items that are named, or that match when it begins,
have ended: done, dead, in doubt or cancelled. A recurring item has ended when it waits for its next
round. Items that are added later are not waited for. On a terminal, or with --progress, it shows how many have
ended. The items are worked by other processes: a daemon, or ledgerd work. Exits with 0 if all are done, 3 if some
ended otherwise, 5 if --timeout was over before. With -o json: {"items","done","dead","doubt","cancelled","left","timed_out","seconds","codes":{"http_500":2}}.

` + app.FilterHelp + `
Without items, code: and error~ are about each attempt, since: and until: about when it ended.`,
		Example: `  ledgerd watch --failed
  ledgerd watch --where kind:urlcheck -n 0 -o jsonl
  ledgerd watch inbox/a.csv --timeout 10m
  ledgerd watch --where scope:spring --until-ended --timeout 2h`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if w.untilEnded || len(args) > 0 {
				for _, name := range []string{"lines", "limit", "failed"} {
					if cmd.Flags().Changed(name) {
						return failure.Usage("bad_flag", "", "--%s is for following attempts: without items and without --until-ended",
							name)
					}
				}
				return wait(cmd.Context(), a, w.FilterFlags, args, w.timeout.Duration)
			}
			return tail(cmd.Context(), a, w)
		},
	}
	w.Define(cmd)
	f := cmd.Flags()
	f.IntVarP(&w.before, "lines", "n", 10, "`items` that ended before, to begin with")
	f.IntVar(&w.limit, "limit", 0, "end after this number of `lines` (0: never)")
	f.BoolVar(&w.failed, "failed", false, "only attempts that failed, crashed, were lost, or are in doubt")
	f.BoolVar(&w.untilEnded, "until-ended", false, "wait until the items that match now have ended")
	f.Var(&w.timeout, "timeout", "how long to wait at most (default: for ever)")
	return cmd
}

// tail is watch without items: it prints attempts as they end.
func tail(ctx context.Context, a *app.App, t watching) error {
	if a.Output.String() == string(report.JSON) {
		return failure.Usage("bad_flag", "lines: -o jsonl", "watch has no end, so there is no one value: not -o json")
	}
	if t.before < 0 || t.before > bounds.MaxBatch || t.limit < 0 {
		return failure.Usage("bad_flag", "", "-n is 0 … %d, --limit at least 0", bounds.MaxBatch)
	}
	l, chosen, err := a.OpenChosen(ctx, t.FilterFlags)
	if err != nil {
		return err
	}
	defer l.Close()
	out, err := lines(a)
	if err != nil {
		return err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	f := follow.New(l.Any, ledger.EndedQuery{Filter: chosen, Failed: t.failed}, now)
	left := t.limit
	tell := func(e ledger.Ended) error {
		if err := out(answer.NewEnded(e)); err != nil {
			return err
		}
		if left--; left == 0 {
			return failure.Status(failure.ExitOK)
		}
		return nil
	}
	if err := f.Begin(ctx, t.before, tell); err != nil {
		return err
	}
	if t.limit > 0 && t.timeout.Duration == 0 && !a.Quiet {
		fmt.Fprintf(a.Stderr, "waits for %s more; end it with Ctrl-C or --timeout\n", report.Plural(int64(left), "line"))
	}
	return pollOn(ctx, f, t, tell)
}

// pollOn passes each attempt that ends from now on to tell, until its error or --timeout.
func pollOn(ctx context.Context, f *follow.Follower, t watching, tell func(ledger.Ended) error) error {
	for end := time.Now().Add(t.timeout.Duration); ; {
		if err := f.Poll(ctx, tell); err != nil {
			return err
		}
		wait := tailEvery
		if t.timeout.Duration > 0 {
			wait = min(wait, time.Until(end))
		}
		if wait <= 0 && t.limit > 0 {
			return failure.Status(failure.ExitTemporary)
		}
		if wait <= 0 {
			return nil
		}
		if err := intake.Sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// lines returns a function that prints the row of one attempt, as a line for people or in the format of -o.
func lines(a *app.App) (func(answer.Ended) error, error) {
	p := a.Printer()
	if p.Format != report.Table {
		rows, err := report.NewRows[answer.Ended](p, nil, nil)
		if err != nil {
			return nil, err
		}
		return rows.Write, nil
	}
	if p.Columns != nil {
		return nil, failure.Usage("bad_flag", "choose columns with -o csv",
			"watch has no table whose columns one could choose")
	}
	return func(r answer.Ended) error {
		text := fmt.Sprintf("%s  %-9s %s  %s", report.Local(time.Time(r.Ended)), r.Outcome, r.Kind, r.Key)
		if r.MS != nil {
			text += "  " + report.Seconds(time.Duration(*r.MS)*time.Millisecond)
		}
		first, _, _ := strings.Cut(r.Error, "\n")
		text += report.Prefixed("  ", strings.TrimSpace(r.Code+" "+first))
		_, err := fmt.Fprintln(a.Stdout, report.Safe(text))
		return err
	}, nil
}
