package item

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// retrying are the flags of retry, and what it has done.
type retrying struct {
	again, watch bool
	places       bool // items get priority
	keeps        bool // priority is also for later rounds
	priority     int16
	timeout      app.DurationFlag
	due          string
	placed       int64 // items that were ready, or waited, and got priority
}

// retried is what retry prints.
type retried struct {
	Acted
	Placed int64   `json:"placed"` // of the items that were changed
	IDs    []int64 `json:"ids"`
	Ended  *waited `json:"ended"` // with --watch
}

func RetryCommand(a *app.App) *cobra.Command {
	r := &retrying{}
	cmd := actCommand(a, "retry", "Make dead and doubtful items, and those that wait after a failure, ready now",
		`To try it on a few items first: --limit 10 --watch. With --watch it waits until the items that it took have ended,
and prints how they ended; other processes do the work (a daemon, ledgerd work). It exits with 0 if all are done, 3 if
some ended otherwise, 5 if --timeout was over before. While their kinds are paused it does not wait, and exits with 3.

Named items go first (--priority -2), unless --priority is given; so do items of a filter with --watch. This includes
items that are ready already. An item that waits for another reason than a failure goes first once it is due. Items of
a filter without --watch and --priority keep their priority, and ready ones stay as they are. An item that goes first
without --priority has its own priority again once its round is done or has failed for good. A priority that is given
with --priority is kept until the item is done, of a recurring item also in later rounds.

With --due it puts items off: items that are ready, wait or have failed are not worked before that time. Leased items
are not put off. failing_since does not change. The put-off round of a recurring item does not count as left to do
(round: put_off). If the round is done already, the next round begins at that time. --due now makes items ready that
were put off or wait; retry without --due does so for items that were put off.

With -o json: {"matched","changed","unchanged":{"done":3},"dry_run","placed","ids":[17,18],"ended"}, where placed is how
many of those that were changed were ready or waited, and ended is null without --watch, else as watch prints it.`,
		`  ledgerd retry inbox/march/leads-03.csv
  ledgerd retry --where 'state:dead code:http_503' --limit 10 --watch
  ledgerd retry --where 'state:dead code:http_503'
  ledgerd retry --due 8h --where 'key:https://shop.example/*'
  ledgerd retry --due now --where 'key:https://shop.example/*'`, func(f *app.FilterFlags, named bool) (bulk, error) {
			return retryAct(a, r, f, named)
		})
	fl := cmd.Flags()
	fl.BoolVar(&r.again, "again", false, "also items that are done or cancelled, in a new round, and recurring ones "+
		"whose round is done, in this round; not those of which the payload was pruned")
	fl.Int16Var(&r.priority, "priority", 0, "`-2` (first) … 2 (last): the priority that the items get (default: -2 for "+
		"items that are named, and with --watch; else the one that they have)")
	fl.BoolVar(&r.watch, "watch", false, "wait until the items have ended, and print how")
	fl.StringVar(&r.due, "due", "", "put the items off, also those that are ready, until this `time`: a duration (8h) "+
		"or 2026-11-20T06:00:00Z; now takes them back")
	fl.Var(&r.timeout, "timeout", "how long --watch waits at most (default: for ever)")
	return cmd
}

// retryAct makes the act of retry; named: arguments name the items.
func retryAct(a *app.App, r *retrying, f *app.FilterFlags, named bool) (bulk, error) {
	if f.Flags.Changed("due") {
		return putOffAct(a, r, f)
	}
	if f.Flags.Changed("timeout") && !r.watch {
		return bulk{}, failure.Usage("bad_flag", "ledgerd retry --where state:dead --limit 10 --watch --timeout 10m",
			"--timeout goes with --watch")
	}
	r.places = f.Flags.Changed("priority")
	r.keeps = r.places
	if r.priority < bounds.MinPriority || r.priority > bounds.MaxPriority {
		return bulk{}, failure.Usage("bad_flag", "", "--priority %d: must be %d … %d", r.priority, bounds.MinPriority,
			bounds.MaxPriority)
	}
	if !r.places && (named || r.watch) { // a person waits for just these items
		r.places, r.priority = true, bounds.MinPriority
	}
	failed := func(it ledger.Item) bool {
		return it.Attempt > 0 && it.Failures+it.Crashes > 0 || it.RoundState == ledger.RoundFailed
	}
	x := bulk{name: "retry", wakes: true, waits: r.watch,
		mayStay: []ledger.State{ledger.StateReady, ledger.StateLeased, ledger.StateWaiting},
		changes: map[ledger.State]eligible{ledger.StateDead: {}, ledger.StateDoubt: {}, ledger.StateWaiting: {
			only: func(it ledger.Item) bool {
				return it.PutOff || failed(it) || r.places && it.RoundState == ledger.RoundOpen ||
					r.again && it.RoundState == ledger.RoundDone // of a recurring item
			}}},
		hint: "what is done or cancelled stays so; --again works it once more", change: r.apply}
	if r.places {
		x.changes[ledger.StateReady] = eligible{}
		x.asked = fmt.Sprintf("--priority %d ", r.priority)
	}
	if r.again {
		reopen := eligible{only: func(it ledger.Item) bool { return !it.Pruned },
			barred: "their payload was pruned; add them again: ledgerd add KIND INPUT --again"}
		x.changes[ledger.StateDone], x.changes[ledger.StateCancelled] = reopen, reopen
	}
	x.print = func(ctx context.Context, l ledgers.Any, all ledger.Filter, res Acted) error {
		return tellRetried(ctx, a, l, x, r, f, all, res)
	}
	return x, nil
}

// apply makes failed items ready, with again also items that have ended. If r.places, open items get the priority, too.
func (r *retrying) apply(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.ActOption) error {
	how := []ledger.ActOption{tell}
	if r.places {
		place := []ledger.ActOption{tell}
		if !r.keeps {
			place, how = append(place, ledger.ThisRound()), append(how, ledger.ThisRound())
		}
		how = append(how, ledger.WithPriority(r.priority))
		var err error
		if r.placed, err = l.Place(ctx, app.Actor(), f, r.priority, place...); err != nil {
			return err
		}
	}
	if r.again {
		if _, err := l.Reopen(ctx, app.Actor(), f, how...); err != nil {
			return err
		}
	}
	_, err := l.Retry(ctx, app.Actor(), f, how...)
	return err
}

// shownIDs is how many ids people see.
const shownIDs = 10

// tellRetried prints what was changed and, with --watch, how that ended.
func tellRetried(ctx context.Context, a *app.App, l ledgers.Any, x bulk, r *retrying, f *app.FilterFlags,
	all ledger.Filter, res Acted) error {
	out := retried{Acted: res, Placed: r.placed, IDs: report.OrEmpty(res.ids)}
	if !res.DryRun && !a.Quiet {
		if err := tellLater(ctx, a, l, f, res.ids); err != nil {
			return err
		}
	}
	ids := report.Prefixed("   ids ", strings.Trim(fmt.Sprint(res.ids[:min(len(res.ids), shownIDs)]), "[]"))
	if len(res.ids) > shownIDs {
		ids += " …"
	}
	if !r.watch || res.DryRun {
		return app.One(a, out, res.text()+report.Prefixed("   ", r.placedText())+ids)
	}
	watched := slices.Concat(res.ids, res.open)
	slices.Sort(watched)
	if paused, err := allPaused(ctx, l, watched); err != nil {
		return err
	} else if paused { // it would wait without end
		if err := app.One(a, out, res.text()+ids); err != nil {
			return err
		}
		return failure.Status(failure.ExitUnfinished)
	}
	if a.Output.String() == string(report.Table) {
		fmt.Fprintln(a.Stdout, res.text()+ids)
	}
	w := &waiter{ledger: l, open: slices.Compact(watched)}
	ended, err := followItems(ctx, a, w, r.timeout.Duration)
	if err != nil {
		return err
	}
	out.Ended = &ended
	if err := app.One(a, out, r.taken(res, ended.Items)+ended.endings()); err != nil {
		return err
	}
	if _, still, err := x.count(ctx, l, all, nil); f.Limit > 0 && ended.Left == 0 && still > 0 && err == nil && !a.Quiet {
		a.Advise(a.Stderr, "%s still match: ledgerd retry %s\n", report.Plural(still, "item"), report.Safe(f.Line()))
	}
	return ended.exit()
}

// allPaused reports whether no open item of the first waitPage ids is worked, because their kinds are paused.
func allPaused(ctx context.Context, l ledgers.Any, ids []int64) (bool, error) {
	items, err := roundsOf(ctx, l, ids[:min(len(ids), waitPage)])
	if err != nil {
		return false, err
	}
	all, err := l.Kinds(ctx)
	if err != nil {
		return false, err
	}
	paused := map[string]bool{}
	for _, k := range all {
		paused[k.Name] = k.Paused
	}
	open := 0
	for _, it := range items {
		if it.RoundState != ledger.RoundOpen {
			continue
		}
		if open++; !paused[it.Kind] || it.State == ledger.StateLeased {
			return false, nil
		}
	}
	return open > 0, nil
}

// tellLater prints how many of the first waitPage items are not due yet: retry only changed their priority.
func tellLater(ctx context.Context, a *app.App, l ledgers.Any, f *app.FilterFlags, ids []int64) error {
	items, err := roundsOf(ctx, l, ids[:min(len(ids), waitPage)])
	if err != nil {
		return err
	}
	var first time.Time
	var later []string
	for _, id := range slices.Sorted(maps.Keys(items)) {
		if it := items[id]; it.State == ledger.StateWaiting {
			later, first = append(later, strconv.FormatInt(id, 10)), runner.Earliest(first, it.Due)
		}
	}
	if len(later) == 0 {
		return nil
	}
	a.Advise(a.Stderr, "%s not due yet, the first at %s; to have them worked now: ledgerd retry --due now %s\n",
		report.Plural(int64(len(later)), "item"), report.Local(first),
		report.Safe(cmp.Or(f.Line(), strings.Join(later, " "))))
	return nil
}

// placedText describes how many items got a priority, "" if none.
func (r *retrying) placedText() string {
	switch {
	case r.placed == 0:
		return ""
	case r.priority == bounds.MinPriority:
		return report.Count(r.placed) + " placed first"
	}
	return fmt.Sprintf("%s placed at priority %d", report.Count(r.placed), r.priority)
}

// taken describes what retry did to the items that --watch waits for.
func (r *retrying) taken(res Acted, items int64) string {
	var parts []string
	if n := res.Changed - r.placed; n > 0 || items == 0 {
		parts = append(parts, report.Count(n)+" reopened")
	}
	if r.placed > 0 {
		parts = append(parts, r.placedText())
	}
	if n := items - res.Changed; n > 0 {
		parts = append(parts, report.Count(n)+" in work")
	}
	return strings.Join(parts, ", ")
}

// endings describes how the items that were waited for ended, for people.
func (w *waited) endings() string {
	failed := "failed"
	if len(w.Codes) > 0 {
		failed += " (" + strings.Join(causes(w.Codes), ", ") + ")"
	}
	var parts []string
	for _, c := range []struct {
		n    int64
		what string
	}{{w.Done, "done"}, {w.Dead, failed}, {w.Doubt, "in doubt"}, {w.Cancelled, "cancelled"}, {w.Left, "left"}} {
		if c.n > 0 {
			parts = append(parts, report.Count(c.n)+" "+c.what)
		}
	}
	return report.Prefixed(": ", strings.Join(parts, ", ")) + w.end()
}

// putOffAct makes the act of retry --due. It puts items off, or makes them ready if the time is not in the future.
func putOffAct(a *app.App, r *retrying, f *app.FilterFlags) (bulk, error) {
	for _, flag := range []string{"again", "watch", "priority", "timeout"} {
		if f.Flags.Changed(flag) {
			return bulk{}, failure.Usage("bad_flag", "ledgerd retry --due 8h --where 'key:https://shop.example/*'",
				"--due goes without --%s", flag)
		}
	}
	until, err := app.ParseDue(r.due)
	if err != nil {
		return bulk{}, err
	}
	wakes := !until.After(time.Now())
	x := bulk{name: "retry", wakes: wakes,
		mayStay: []ledger.State{ledger.StateReady, ledger.StateLeased, ledger.StateWaiting},
		hint:    "what is done, cancelled or in doubt stays so",
		changes: map[ledger.State]eligible{ledger.StateDead: {}, ledger.StateWaiting: {only: func(it ledger.Item) bool {
			return it.PutOff || it.RoundState != ledger.RoundDone || until.After(it.Due)
		}}}}
	if !wakes {
		x.changes[ledger.StateReady] = eligible{}
	}
	x.change = func(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.ActOption) error {
		_, err := l.PutOff(ctx, app.Actor(), f, until, tell)
		return err
	}
	x.print = func(_ context.Context, _ ledgers.Any, _ ledger.Filter, res Acted) error {
		return app.One(a, retried{Acted: res, IDs: report.OrEmpty(res.ids)}, res.text())
	}
	return x, nil
}
