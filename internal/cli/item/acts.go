package item

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
)

// bulk describes a command that changes many items: retry, cancel, prune, or a form of finish.
type bulk struct {
	name  string // of the command
	asked string // flags besides the filter, for the journal; each is followed by a space
	// changes has the states in which items are changed. Items in other states stay as they are.
	changes map[ledger.State]eligible
	// change changes the items that match and can be changed. It passes their ids to tell.
	change    func(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.ActOption) error
	repeat    bool           // it is run again until it changes nothing more
	mayStay   []ledger.State // it is no error if a named item in these states is not changed
	hint      string         // of the error for items in other states
	final     bool           // it cannot be undone, so it asks for confirmation for a single item, too
	waits     bool           // it waits until the items that match have ended
	wakes     bool           // it makes items ready; they are not worked while their kind is paused
	onlyEnded bool           // it changes only items that have ended
	// print prints the result; nil prints it as Acted. unlimited is the filter before --limit.
	print func(ctx context.Context, l ledgers.Any, unlimited ledger.Filter, res Acted) error
}

// eligible describes which items of a state an act changes.
type eligible struct {
	only   func(it ledger.Item) bool // reports whether an item is changed; nil: all are
	barred string                    // why the others are not changed; "" needs no reason
}

// changesItem reports whether the act would change an item.
func (x bulk) changesItem(it ledger.Item) bool {
	how, ok := x.changes[it.State]
	return ok && (how.only == nil || how.only(it))
}

// Acted is the result of an act, as it is printed.
type Acted struct {
	Matched   int64                  `json:"matched"`
	Changed   int64                  `json:"changed"`
	Unchanged map[ledger.State]int64 `json:"unchanged"`
	DryRun    bool                   `json:"dry_run"`

	ids    []int64 // of the items that were changed, in order
	open   []int64 // of the items that matched and had not ended, before the act; only with bulk.waits
	leased int64   // items that were changed and are still leased
}

// reasonFlag returns a reason as a flag for bulk.asked; "" if there is none.
func reasonFlag(name, reason string) string {
	if reason == "" {
		return ""
	}
	return "--" + name + " " + shell.Quote(reason) + " "
}

// actCommand makes the command of an act; more is added to the help. build is told whether arguments name the items.
func actCommand(a *app.App, name, short, more, example string,
	build func(f *app.FilterFlags, named bool) (bulk, error)) *cobra.Command {
	var f app.FilterFlags
	var dryRun bool
	cmd := &cobra.Command{
		Use: name + " [ID|KEY]…", Short: short, GroupID: app.GroupLook, Example: example,
		Long: short + `.

Items are named by id or key, or chosen with --where, --kind, --scope, --state, --agent; --limit takes the first of
these by id, to try it on a few. Asks before it changes more than one, on a terminal; elsewhere that takes -y.

` + more,
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := build(&f, len(args) > 0)
			if err != nil {
				return err
			}
			return apply(cmd.Context(), a, x, f, args, dryRun)
		},
	}
	f.Define(cmd)
	f.DefineLimit(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be changed")
	return cmd
}

// choose returns the filter of the items that args name, or, without args, of the flags.
func choose(ctx context.Context, l ledgers.Any, f app.FilterFlags, args []string) (ledger.Filter, error) {
	chosen, err := f.Parse()
	if err != nil {
		return chosen, err
	}
	if len(args) == 0 {
		return app.CheckFilter(ctx, l, chosen)
	}
	var ids []int64
	for _, name := range args {
		it, err := app.Find(ctx, l, name, f.Kinds, f.Scopes)
		if err != nil {
			return chosen, err
		}
		ids = append(ids, it.ID)
	}
	return ledger.IDs(ids...), nil
}

// apply does an act on the items that args or the filter choose, and prints its result.
func apply(ctx context.Context, a *app.App, x bulk, f app.FilterFlags, args []string, dryRun bool) error {
	if err := f.CheckChoice(x.name, args); err != nil {
		return err
	}
	if err := f.CheckLimit(args); err != nil {
		return err
	}
	if _, err := f.Parse(); err != nil { // before a ledger is opened
		return err
	}
	l, err := a.Open(ctx, app.ToAct(dryRun))
	if err != nil {
		return err
	}
	defer l.Close()
	ctx = ledger.OneAct(ctx, x.asked+f.Asked(args))
	unlimited, err := choose(ctx, l.Any, f, args)
	chosen := unlimited
	if err == nil && f.Limit > 0 {
		chosen, err = x.first(ctx, l.Any, chosen, f.Limit)
	}
	if err != nil {
		return err
	}
	var paused []string
	if x.wakes {
		if paused, err = x.pausedKinds(ctx, l.Any, chosen); err != nil {
			return err
		}
	}
	res := Acted{Unchanged: map[ledger.State]int64{}, DryRun: dryRun}
	counts, would, err := x.count(ctx, l.Any, chosen, func(it ledger.Item) bool {
		if x.waits && it.RoundState == ledger.RoundOpen {
			res.open = append(res.open, it.ID)
		}
		return true
	})
	if err != nil {
		return err
	}
	if !dryRun && (would > 1 || would == 1 && x.final) {
		if err := a.Confirm(fmt.Sprintf("%s %s?", x.name, report.Plural(would, "item")),
			"see what it would do: --dry-run"); err != nil {
			return err
		}
	}
	res.Changed = would
	if !dryRun {
		if res.ids, err = x.run(ctx, l.Any, chosen); err == nil {
			counts, _, err = x.count(ctx, l.Any, chosen, res.noteLeft)
		}
		if res.Changed = int64(len(res.ids)); err != nil {
			if res.Changed > 0 && !a.Quiet {
				fmt.Fprintf(a.Stderr, "%s: %s changed before that; the same command goes on\n", x.name, report.Plural(res.Changed,
					"item"))
			}
			return err
		}
	}
	res.Matched = res.Changed
	for state, s := range counts { // from before the act in a dry run, else of what it left
		left := s.matched
		if dryRun {
			left -= s.would
		}
		if res.Matched += left; left > 0 {
			res.Unchanged[state] = left
		}
	}
	x.sayBarred(a, counts, len(args) > 0)
	sayPaused(a, paused)
	sayUnended(a, x, f, res)
	if x.print != nil {
		err = x.print(ctx, l.Any, unlimited, res)
	} else {
		err = app.One(a, res, res.text())
	}
	return cmp.Or(err, endAct(a, x, res, len(args) > 0))
}

// sayBarred explains why items were not changed. For named items the reason becomes the hint of the error.
func (x *bulk) sayBarred(a *app.App, counts map[ledger.State]standing, named bool) {
	for _, state := range ledger.States {
		if s := counts[state]; s.matched > s.would && x.changes[state].barred != "" {
			x.hint = x.changes[state].barred
			if !named && !a.Quiet {
				fmt.Fprintf(a.Stderr, "%s %s not changed: %s\n", report.Plural(s.matched-s.would, "item"), state, x.hint)
			}
		}
	}
}

// maxPasses is how often an act with repeat is run, while new items that match come in.
const maxPasses = 10

// run changes the items that match and returns their ids, in order and each once. One pass is over all states together,
// so that an item that goes from one state to another meanwhile is not missed.
func (x bulk) run(ctx context.Context, l ledgers.Any, f ledger.Filter) (ids []int64, err error) {
	states := slices.DeleteFunc(slices.Clone(ledger.States), func(s ledger.State) bool {
		_, changes := x.changes[s]
		return !changes || len(f.States) > 0 && !slices.Contains(f.States, s)
	})
	if len(states) == 0 {
		return nil, nil
	}
	f.States = states
	tell := ledger.OnChanged(func(page []int64) { ids = append(ids, page...) })
	for pass := 0; ; pass++ {
		if pass == maxPasses {
			err = failure.New(failure.ExitError, "unfinished",
				fmt.Sprintf("%s: after %d passes there are still new items that match", x.name, pass),
				"stop what adds them, then run the same command again")
			break
		}
		before := len(ids)
		if err = x.change(ctx, l, f, tell); err != nil || !x.repeat || len(ids) == before {
			break
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// standing is how many items of a state match, and how many of them the act would change.
type standing struct{ matched, would int64 }

// noteLeft reports whether the act did not change an item, and counts changed items that are still leased.
func (r *Acted) noteLeft(it ledger.Item) bool {
	_, changed := slices.BinarySearch(r.ids, it.ID)
	if changed && it.State == ledger.StateLeased {
		r.leased++
	}
	return !changed
}

// count counts the items that match, by state, and those that the act would change, in all. Only items for which
// include returns true are counted; nil includes all.
func (x bulk) count(ctx context.Context, l ledgers.Any, f ledger.Filter,
	include func(ledger.Item) bool) (counts map[ledger.State]standing, would int64, err error) {
	counts = map[ledger.State]standing{}
	for it, err := range l.List(ctx, f, 0) {
		if err != nil {
			return nil, 0, err
		}
		if include != nil && !include(it) {
			continue
		}
		s := counts[it.State]
		s.matched++
		if x.changesItem(it) {
			s.would++
			would++
		}
		counts[it.State] = s
	}
	return counts, would, nil
}

// text returns the result for people.
func (r Acted) text() string {
	verb := "changed"
	if r.DryRun {
		verb = "would change"
	}
	var left []string
	for _, s := range ledger.States {
		if n := r.Unchanged[s]; n > 0 {
			left = append(left, report.Count(n)+" "+string(s))
		}
	}
	return fmt.Sprintf("matched %s   %s %s%s", report.Count(r.Matched), verb, report.Count(r.Changed),
		report.Prefixed("   left as they are: ", strings.Join(left, ", ")))
}

// endAct returns the error or exit status of an act: it is an error if a named item was not changed, unless its state
// is one of mayStay.
func endAct(a *app.App, x bulk, res Acted, named bool) error {
	var refused int64
	for s, n := range res.Unchanged {
		if !slices.Contains(x.mayStay, s) {
			refused += n
		}
	}
	switch {
	case named && refused > 0:
		return failure.New(failure.ExitError, "wrong_state", fmt.Sprintf("%s: %s not changed", x.name,
			report.Plural(refused, "item")), x.hint)
	case res.Matched == 0 && a.ErrorOnEmpty:
		return failure.Status(failure.ExitEmpty)
	}
	return nil
}

// first returns a filter of the first n items, by id, that match and that the act would change.
func (x bulk) first(ctx context.Context, l ledgers.Any, f ledger.Filter, n int) (ledger.Filter, error) {
	var ids []int64
	for it, err := range l.List(ctx, f, 0) {
		if err != nil {
			return f, err
		}
		if x.changesItem(it) {
			ids = append(ids, it.ID)
		}
		if len(ids) == n {
			break
		}
	}
	return f.And(ledger.IDs(ids...)), nil
}

// pausedKinds returns the paused kinds of items that match and that the act would change.
func (x bulk) pausedKinds(ctx context.Context, l ledgers.Any, f ledger.Filter) (names []string, err error) {
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if !k.Paused {
			continue
		}
		_, would, err := x.count(ctx, l, f.And(ledger.Filter{Kinds: []string{k.Name}}), nil)
		if err != nil {
			return nil, err
		}
		if would > 0 {
			names = append(names, k.Name)
		}
	}
	return names, nil
}

// sayPaused warns that items became ready and are not worked, because their kinds are paused.
func sayPaused(a *app.App, kinds []string) {
	if len(kinds) == 0 || a.Quiet {
		return
	}
	what := "kind " + kinds[0] + " is"
	if len(kinds) > 1 {
		what = "kinds " + strings.Join(kinds, ", ") + " are"
	}
	a.Advise(a.Stderr, "%s paused: these items wait until ledgerd kind resume %s\n", what, strings.Join(kinds, " "))
}

// sayUnended names the items that prune has left because they have not ended, and how to cancel them.
func sayUnended(a *app.App, x bulk, f app.FilterFlags, res Acted) {
	var left []string
	for _, state := range ledger.States {
		if _, changes := x.changes[state]; !changes && res.Unchanged[state] > 0 {
			left = append(left, report.Count(res.Unchanged[state])+" "+string(state))
		}
	}
	if x.onlyEnded && len(left) > 0 && !a.Quiet {
		a.Advise(a.Stderr, "what has not ended is left (%s); withdraw it first, then prune again: ledgerd cancel %s\n",
			strings.Join(left, ", "), report.Safe(f.Line()))
	}
}
