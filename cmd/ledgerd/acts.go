package main

import (
	"bufio"
	"context"
	"fmt"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// act is retry or cancel: what it does to items of which states.
type act struct {
	name string
	// on are the states that it changes, with how; of others nothing is changed.
	on map[ledger.State]change
	// fine are states of which nothing had to be changed.
	fine []ledger.State
	hint string // for items in other states
	// final says that it cannot be undone: it asks about a single item, too.
	final bool
	wakes bool // it makes items ready, which are not worked while their kind is paused
	ended bool // it is for what has ended, and leaves the rest
}

type change struct {
	apply func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error)
	// only says which items of the state are meant, for a dry run; nil means all.
	only func(it ledger.Item) bool
	// barred says of the others, if it is not "", why they cannot be changed.
	barred string
}

// acted is what act prints.
type acted struct {
	Matched   int64                  `json:"matched"`
	Changed   int64                  `json:"changed"`
	Unchanged map[ledger.State]int64 `json:"unchanged"`
	DryRun    bool                   `json:"dry_run"`
}

// actor is who acts, for the journal.
func actor() string {
	if u, err := user.Current(); err == nil {
		return "operator:" + u.Username
	}
	return "operator"
}

func (a *app) retryCommand() *cobra.Command {
	var again bool
	cmd := a.actCommand("retry", "Make dead and doubtful items, and those that wait after a failure, ready now",
		`  ledgerd retry inbox/march/leads-03.csv
  ledgerd retry --where 'state:dead code:http_503'`, func() act {
			retry := change{apply: func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error) {
				return l.Retry(ctx, actor(), f)
			}}
			failed := retry
			failed.only = func(it ledger.Item) bool {
				return it.Attempt > 0 && it.Failures+it.Crashes > 0 || it.RoundState == ledger.RoundFailed
			}
			x := act{name: "retry", wakes: true, fine: []ledger.State{ledger.StateReady, ledger.StateLeased, ledger.StateWaiting},
				on:   map[ledger.State]change{ledger.StateDead: retry, ledger.StateDoubt: retry, ledger.StateWaiting: failed},
				hint: "what is done or cancelled stays so; --again works it once more"}
			if again {
				reopen := change{apply: func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error) {
					return l.Reopen(ctx, actor(), f)
				}, only: func(it ledger.Item) bool { return !it.Pruned }, barred: "nothing says any more what is to be done with them: their payload was pruned; bring them in again: ledgerd add KIND INPUT --again"}
				x.on[ledger.StateDone], x.on[ledger.StateCancelled] = reopen, reopen
			}
			return x
		})
	cmd.Flags().BoolVar(&again, "again", false, "also items that are done or cancelled, in a new round; not those of which the payload was pruned")
	return cmd
}

func (a *app) cancelCommand() *cobra.Command {
	return a.actCommand("cancel", "Withdraw unfinished items, also running ones",
		`  ledgerd cancel 17 18
  ledgerd cancel --where 'kind:urlcheck key:https://old.example/*'`, func() act {
			cancel := change{apply: func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error) {
				return l.Cancel(ctx, actor(), f)
			}}
			return act{name: "cancel", fine: []ledger.State{ledger.StateCancelled, ledger.StateLeased}, hint: "what is done stays done",
				on: map[ledger.State]change{ledger.StateWaiting: cancel, ledger.StateReady: cancel, ledger.StateLeased: cancel,
					ledger.StateDead: cancel, ledger.StateDoubt: cancel}}
		})
}

func (a *app) actCommand(name, short, example string, make func() act) *cobra.Command {
	var f filter
	var dryRun bool
	cmd := &cobra.Command{
		Use: name + " [ID|KEY]…", Short: short, GroupID: groupLook, Example: example,
		Long: short + `.

Items are named by id or key, or chosen with --where, --kind, --scope, --state, --agent; --limit takes the first of
these by id, to try it on a few. Asks before it changes more than one, on a terminal; elsewhere that takes -y.

With -o json: {"matched","changed","unchanged":{"done":3},"dry_run"}.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd.Context(), make(), f, args, dryRun)
		},
	}
	f.define(cmd)
	f.defineFirst(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be changed")
	return cmd
}

// choose makes the ledger's filter of names or of flags: one of them, and not nothing at all.
func choose(ctx context.Context, l *ledger.Ledger, f filter, args []string) (ledger.Filter, error) {
	chosen, err := f.parse()
	if err != nil || len(args) == 0 {
		if err == nil {
			chosen, err = byPath(ctx, l, chosen)
		}
		return chosen, err
	}
	var ids []int64
	for _, name := range args {
		it, err := find(ctx, l, name, f.kinds, f.scopes)
		if err != nil {
			return chosen, err
		}
		ids = append(ids, it.ID)
	}
	return ledger.IDs(ids...), nil
}

// checkChoice refuses to act on nothing in particular.
func (f *filter) checkChoice(name string, args []string) error {
	if len(args) == 0 && !f.given() {
		return usage("usage", fmt.Sprintf("ledgerd %s 17   ledgerd %s --where kind:urlcheck", name, name), "%s what? name items, or choose them with --where", name)
	}
	if len(args) > 0 && len(f.where)+len(f.states)+len(f.agent) > 0 {
		return usage("usage", "", "name items or choose them with --where, --state and --agent, not both")
	}
	return nil
}

func (a *app) act(ctx context.Context, x act, f filter, args []string, dryRun bool) error {
	if err := f.checkChoice(x.name, args); err != nil {
		return err
	}
	if err := f.checkFirst(args); err != nil {
		return err
	}
	if _, err := f.parse(); err != nil { // before a ledger is opened
		return err
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	chosen, err := choose(ctx, l.Ledger, f, args)
	if err == nil && f.first > 0 {
		chosen, err = x.first(ctx, l.Ledger, chosen, f.first)
	}
	if err != nil {
		return err
	}
	var paused []string
	if x.wakes {
		if paused, err = x.pausedKinds(ctx, l.Ledger, chosen); err != nil {
			return err
		}
	}
	counts, would, err := x.count(ctx, l.Ledger, chosen)
	if err != nil {
		return err
	}
	if !dryRun && (would > 1 || would == 1 && x.final) {
		if err := a.confirm(fmt.Sprintf("%s %s?", x.name, plural(would, "item")), "see what it would do: --dry-run"); err != nil {
			return err
		}
	}
	res := acted{Unchanged: map[ledger.State]int64{}, DryRun: dryRun, Changed: would}
	if !dryRun {
		res.Changed = 0
	}
	left, surplus := map[ledger.State]int64{}, int64(0)
	for _, state := range ledger.States {
		n := counts[state].would
		// Also of a state in which none was: items go on while they are counted.
		if how, ok := x.on[state]; ok && !dryRun && (chosen.States == nil || slices.Contains(chosen.States, state)) {
			g := chosen
			g.States = []ledger.State{state}
			n, err = how.apply(ctx, l.Ledger, g)
			if res.Changed += n; err != nil {
				if res.Changed > 0 && !a.quiet {
					fmt.Fprintf(a.stderr, "%s: %s changed before that; the same command goes on\n", x.name, plural(res.Changed, "item"))
				}
				return err
			}
		}
		res.Matched += counts[state].matched
		left[state] = max(0, counts[state].matched-n)
		surplus += max(0, n-counts[state].matched)
	}
	for _, state := range ledger.States {
		moved := min(surplus, left[state])
		surplus -= moved
		if n := left[state] - moved; n > 0 {
			res.Unchanged[state] = n
		}
	}
	res.Matched += surplus // that came after the count
	for _, state := range ledger.States {
		if s := counts[state]; s.matched > s.would && x.on[state].barred != "" {
			x.hint = x.on[state].barred
			if len(args) == 0 && !a.quiet {
				fmt.Fprintf(a.stderr, "%s %s not changed: %s\n", plural(s.matched-s.would, "item"), state, x.hint)
			}
		}
	}
	err = a.reportAct(x, res, len(args) > 0)
	a.sayPaused(paused)
	a.sayUnended(x, f, res)
	return err
}

// standing is how many items of a state matched, and how many would be changed.
type standing struct{ matched, would int64 }

func (x act) count(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (counts map[ledger.State]standing, would int64, err error) {
	counts = map[ledger.State]standing{}
	states := f.States
	if states == nil {
		states = ledger.States
	}
	for _, state := range states {
		g := f
		g.States = []ledger.State{state}
		n, err := l.Count(ctx, g)
		if err != nil {
			return nil, 0, err
		}
		s := standing{matched: n}
		if how, ok := x.on[state]; ok && how.only == nil {
			s.would = n
		} else if ok && n > 0 {
			for it, err := range l.List(ctx, g, 0) {
				if err != nil {
					return nil, 0, err
				}
				if how.only(it) {
					s.would++
				}
			}
		}
		counts[state] = s
		would += s.would
	}
	return counts, would, nil
}

func (a *app) reportAct(x act, res acted, named bool) error {
	var left []string
	var refused int64
	for _, s := range ledger.States {
		if n := res.Unchanged[s]; n > 0 {
			left = append(left, report.Count(n)+" "+string(s))
			if !slices.Contains(x.fine, s) {
				refused += n
			}
		}
	}
	verb := "changed"
	if res.DryRun {
		verb = "would change"
	}
	if err := one(a, res, fmt.Sprintf("matched %s   %s %s%s", report.Count(res.Matched), verb, report.Count(res.Changed), prefixed("   left as they are: ", strings.Join(left, ", ")))); err != nil {
		return err
	}
	switch {
	case named && refused > 0:
		return fail(exitError, "wrong_state", fmt.Sprintf("%s: %s not changed", x.name, plural(refused, "item")), x.hint)
	case res.Matched == 0 && a.errorOnEmpty:
		return status(exitEmpty)
	}
	return nil
}

// confirm asks on a terminal; elsewhere only -y is an answer. look says how to see what is asked about.
func (a *app) confirm(question, look string) error {
	if a.yes {
		return nil
	}
	if !isTerminal(a.stdin) || !isTerminal(a.stderr) {
		return usage("not_confirmed", look+"   do it: -y", "%s nobody can be asked here", question)
	}
	fmt.Fprintf(a.stderr, "%s [y/N] ", question)
	answer, _ := bufio.NewReader(a.stdin).ReadString('\n')
	if s := strings.ToLower(strings.TrimSpace(answer)); s != "y" && s != "yes" {
		return fail(exitError, "not_confirmed", "nothing was changed", "")
	}
	return nil
}
