package item

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/order"
)

func ErrorsCommand(a *app.App) *cobra.Command {
	var f app.FilterFlags
	cmd := &cobra.Command{
		Annotations: map[string]string{app.RowsAnnotation: "yes"},
		Use:         "errors", Short: "Group what failed by cause: how often, since when, where", GroupID: app.GroupLook,
		Args: app.Arguments(0, 0),
		Long: `Groups items by the code and message of their newest attempt that ended. An item counts if the outcome of this
attempt is failed, crashed, lost or unknown (it is not known whether the attempt took effect). Each item counts
once. An item that was tried again with success does not count. Two messages count as the same if they differ only
in keys, numbers, long ids and what is quoted; the message of the first example is shown. "first_seen" is the time at which the
first item of the group began to fail. A retry does not change it.

An item counts only if the attempt ended in the last 24 h, unless --where has since: or until:. A table (-o table)
begins with the latest attempts and stops after two seconds; it then names how far back it has looked. CSV, JSON and
tables with --columns look at all attempts.

Such a group is a cause. Its name has 12 hexadecimal digits and is the field "cause". --where cause:NAME matches the
items of a cause, so that they can be tried again or given up as a whole.

With -o json: [{"cause","code","message","count","for_good","share","first_seen","last_seen","kinds","plugins",
"examples":[{"id","key","error"}],"trend":[24 numbers]}], the most frequent first. for_good is how
many of the items are not tried again by themselves, share the part of all failures, 0 … 1. trend divides the time that was asked for into 24 equal parts: each number is how many ended in that part.

` + app.FilterHelp + `
For this command since: and until: are about the time at which the newest attempt ended.`,
		Example: "  ledgerd errors\n  ledgerd errors --where 'kind:urlcheck since:7d' -o json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return showErrors(cmd.Context(), a, f)
		},
	}
	f.Define(cmd)
	return cmd
}

func showErrors(ctx context.Context, a *app.App, f app.FilterFlags) error {
	l, chosen, err := a.OpenChosen(ctx, f)
	if err != nil {
		return err
	}
	defer l.Close()
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	from := answer.Since(chosen)
	if !answer.Dated(chosen) {
		from = now.Add(-answer.FailingWindow)
		if !a.Quiet {
			fmt.Fprintln(a.Stderr, "of the last 24 h; for longer: --where since:7d")
		}
	}
	p := a.Printer()
	w := &ledger.Walk{Filter: chosen.And(answer.Failing(from)), Order: order.Ended, Desc: true}
	whole := p.Format != report.Table || p.Columns != nil
	if !whole {
		w.Time = lookTime
	}
	var causes report.Failures
	if !from.IsZero() { // with only until: there is no beginning
		causes.Over(from, answer.Until(chosen, now))
	}
	if err := answer.AddFailures(ctx, l.Any, w, &causes); err != nil {
		return err
	}
	list := causes.List()
	rows := make([]answer.Cause, len(list))
	for i, c := range list {
		list[i].AtLeast = w.Cut
		rows[i] = answer.NewCause(c)
	}
	switch {
	case a.Quiet:
	case w.Cut:
		fmt.Fprintf(a.Stderr, "these failed since %s, as far back as it has looked in %s; -o json looks at all\n",
			report.Local(w.Reached.At), report.Seconds(lookTime))
	case len(rows) == 0:
		fmt.Fprintln(a.Stderr, "nothing failed")
	}
	if !whole {
		if err = p.Table(list, app.ShortKey()); err == nil && len(rows) > 0 && rows[0].Cause != "" && !a.Quiet {
			a.Advise(a.Stderr, "the items of the first cause: ledgerd ls --where cause:%[1]s   once it is mended: ledgerd retry --where "+
				"cause:%[1]s\n", rows[0].Cause)
		}
		line := report.Prefixed(" ", report.Safe(f.Line()))
		if err == nil && len(rows) > 1 && !a.Quiet {
			a.Advise(a.Stderr, "the names of all: ledgerd errors%s --columns cause,count,message\n", line)
		}
		if err == nil && report.Further(list) > 0 && !a.Quiet {
			a.Advise(a.Stderr, "all %d causes: ledgerd errors%s -o csv\n", len(list), line)
		}
	} else {
		_, err = report.List(p, report.Each(rows))
	}
	return a.OrExitEmpty(len(rows), err)
}
