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

// act is retry or cancel: what it does to items of which states.
type act struct {
	name string
	// asked is what was asked for besides the filter, for the journal: flags, each followed by a space.
	asked string
	// on are the states that it changes; of others nothing is changed.
	on map[ledger.State]change
	// apply changes what matches and can be changed, and tells the ids.
	apply func(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.Acting) error
	// all means that it goes on until nothing that matches is left: what it changes does not come back.
	all bool
	// fine are states of which nothing had to be changed.
	fine []ledger.State
	hint string // for items in other states
	// final means that it cannot be undone: it asks about a single item, too.
	final bool
	waits bool // it waits for what matches to end
	wakes bool // it makes items ready; they are not worked while their kind is paused
	ended bool // it is for what has ended, and leaves the rest
	// tell prints what came of it, instead of acted by itself; all is what was chosen, before --limit. May be nil.
	tell func(ctx context.Context, l ledgers.Any, all ledger.Filter, res Acted) error
}

type change struct {
	// only reports which items of the state are meant, for a dry run; nil means all.
	only func(it ledger.Item) bool
	// barred is why the others cannot be changed, if it is not "".
	barred string
}

// Acted is what act prints.
type Acted struct {
	Matched   int64                  `json:"matched"`
	Changed   int64                  `json:"changed"`
	Unchanged map[ledger.State]int64 `json:"unchanged"`
	DryRun    bool                   `json:"dry_run"`

	ids    []int64 // of those that were changed, in order
	open   []int64 // of those that matched before and had not ended
	leased int64   // of those, that are leased
}

// reasonFlag is a reason as a flag of a command line, first in what the journal keeps of an act; "" if there is none.
func reasonFlag(name, reason string) string {
	if reason == "" {
		return ""
	}
	return "--" + name + " " + shell.Quote(reason) + " "
}

// actCommand makes a command that acts on items; more ends its help. make is told whether items are named.
func actCommand(a *app.App, name, short, more, example string,
	make func(f *app.Filter, named bool) (act, error)) *cobra.Command {
	var f app.Filter
	var dryRun bool
	cmd := &cobra.Command{
		Use: name + " [ID|KEY]…", Short: short, GroupID: app.GroupLook, Example: example,
		Long: short + `.

Items are named by id or key, or chosen with --where, --kind, --scope, --state, --agent; --limit takes the first of
these by id, to try it on a few. Asks before it changes more than one, on a terminal; elsewhere that takes -y.

` + more,
		RunE: func(cmd *cobra.Command, args []string) error {
			x, err := make(&f, len(args) > 0)
			if err != nil {
				return err
			}
			return apply(cmd.Context(), a, x, f, args, dryRun)
		},
	}
	f.Define(cmd)
	f.DefineFirst(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only print what would be changed")
	return cmd
}

// choose makes the ledger's filter of names or of flags: one of them, and not nothing at all.
func choose(ctx context.Context, l ledgers.Any, f app.Filter, args []string) (ledger.Filter, error) {
	chosen, err := f.Parse()
	if err != nil || len(args) == 0 {
		if err == nil {
			chosen, err = app.In(ctx, l, chosen)
		}
		return chosen, err
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

func apply(ctx context.Context, a *app.App, x act, f app.Filter, args []string, dryRun bool) error {
	if err := f.CheckChoice(x.name, args); err != nil {
		return err
	}
	if err := f.CheckFirst(args); err != nil {
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
	all, err := choose(ctx, l.Any, f, args)
	chosen := all
	if err == nil && f.First > 0 {
		chosen, err = x.first(ctx, l.Any, chosen, f.First)
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
			counts, _, err = x.count(ctx, l.Any, chosen, res.left)
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
	for state, s := range counts {
		left := s.matched
		if dryRun {
			left -= s.would
		}
		if res.Matched += left; left > 0 {
			res.Unchanged[state] = left
		}
	}
	for _, state := range ledger.States {
		if s := counts[state]; s.matched > s.would && x.on[state].barred != "" {
			x.hint = x.on[state].barred
			if len(args) == 0 && !a.Quiet {
				fmt.Fprintf(a.Stderr, "%s %s not changed: %s\n", report.Plural(s.matched-s.would, "item"), state, x.hint)
			}
		}
	}
	sayPaused(a, paused)
	sayUnended(a, x, f, res)
	if x.tell != nil {
		err = x.tell(ctx, l.Any, all, res)
	} else {
		err = app.One(a, res, res.text())
	}
	return cmp.Or(err, endAct(a, x, res, len(args) > 0))
}

// mostPasses is how often an act goes over what matches before it gives up on an end.
const mostPasses = 10

// run changes what matches and returns the ids, in order and each once. One pass is over all states together, so an
// item that goes from one to another meanwhile is not missed.
func (x act) run(ctx context.Context, l ledgers.Any, f ledger.Filter) (ids []int64, err error) {
	states := slices.DeleteFunc(slices.Clone(ledger.States), func(s ledger.State) bool {
		_, on := x.on[s]
		return !on || len(f.States) > 0 && !slices.Contains(f.States, s)
	})
	if len(states) == 0 {
		return nil, nil
	}
	f.States = states
	tell := ledger.Telling(func(page []int64) { ids = append(ids, page...) })
	for pass := 0; ; pass++ {
		if pass == mostPasses {
			err = failure.New(failure.ExitError, "unfinished",
				fmt.Sprintf("%s: after %d passes there are still new items that match", x.name, pass),
				"stop what adds them, then run the same command again")
			break
		}
		before := len(ids)
		if err = x.apply(ctx, l, f, tell); err != nil || !x.all || len(ids) == before {
			break
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids), err
}

// standing is how many items of a state matched, and how many would be changed.
type standing struct{ matched, would int64 }

// left reports whether an act has left an item as it was.
func (r *Acted) left(it ledger.Item) bool {
	_, changed := slices.BinarySearch(r.ids, it.ID)
	if changed && it.State == ledger.StateLeased {
		r.leased++
	}
	return !changed
}

// count counts what matches by state, each item once, though items change their states meanwhile: those with which
// take agrees, nil is all.
func (x act) count(ctx context.Context, l ledgers.Any, f ledger.Filter,
	take func(ledger.Item) bool) (counts map[ledger.State]standing, would int64, err error) {
	counts = map[ledger.State]standing{}
	for it, err := range l.List(ctx, f, 0) {
		if err != nil {
			return nil, 0, err
		}
		if take != nil && !take(it) {
			continue
		}
		s := counts[it.State]
		s.matched++
		if how, ok := x.on[it.State]; ok && (how.only == nil || how.only(it)) {
			s.would++
			would++
		}
		counts[it.State] = s
	}
	return counts, would, nil
}

// text is what people read.
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

// endAct describes how the program ends: items that are named must be in a state for it.
func endAct(a *app.App, x act, res Acted, named bool) error {
	var refused int64
	for s, n := range res.Unchanged {
		if !slices.Contains(x.fine, s) {
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

// first are the first n items by id of those that match and that the act would change.
func (x act) first(ctx context.Context, l ledgers.Any, f ledger.Filter, n int) (ledger.Filter, error) {
	var ids []int64
	for it, err := range l.List(ctx, f, 0) {
		if err != nil {
			return f, err
		}
		if how, ok := x.on[it.State]; ok && (how.only == nil || how.only(it)) {
			ids = append(ids, it.ID)
		}
		if len(ids) == n {
			break
		}
	}
	return f.And(ledger.IDs(ids...)), nil
}

// pausedKinds are the paused kinds of items that match and that the act would change.
func (x act) pausedKinds(ctx context.Context, l ledgers.Any, f ledger.Filter) (names []string, err error) {
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

// sayPaused means that what became ready is not worked, because its kind is paused.
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

// sayUnended describes what makes unfinished items prunable.
func sayUnended(a *app.App, x act, f app.Filter, res Acted) {
	var left []string
	for _, state := range ledger.States {
		if _, ends := x.on[state]; !ends && res.Unchanged[state] > 0 {
			left = append(left, report.Count(res.Unchanged[state])+" "+string(state))
		}
	}
	if x.ended && len(left) > 0 && !a.Quiet {
		a.Advise(a.Stderr, "what has not ended is left (%s); withdraw it first, then prune again: ledgerd cancel %s\n",
			strings.Join(left, ", "), report.Safe(f.Line()))
	}
}
