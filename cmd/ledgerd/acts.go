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
}

type change struct {
	apply func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error)
	// only says which items of the state are meant, for a dry run; nil means all.
	only func(it ledger.Item) bool
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
			failed.only = func(it ledger.Item) bool { return it.Attempt > 0 && it.Failures+it.Crashes > 0 || it.RoundFailed() }
			x := act{name: "retry", fine: []ledger.State{ledger.StateReady, ledger.StateLeased, ledger.StateWaiting},
				on:   map[ledger.State]change{ledger.StateDead: retry, ledger.StateDoubt: retry, ledger.StateWaiting: failed},
				hint: "what is done or cancelled stays so; --again works it once more"}
			if again {
				reopen := change{apply: func(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (int64, error) {
					return l.Reopen(ctx, actor(), f)
				}}
				x.on[ledger.StateDone], x.on[ledger.StateCancelled] = reopen, reopen
			}
			return x
		})
	cmd.Flags().BoolVar(&again, "again", false, "also items that are done or cancelled, in a new round")
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

Items are named by id or key, or chosen with --where, --kind, --scope. Asks before it changes
more than one, on a terminal; elsewhere that takes -y.

With -o json: {"matched","changed","unchanged":{"done":3},"dry_run"}.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd.Context(), make(), f, args, dryRun)
		},
	}
	f.define(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "only say what would be changed")
	return cmd
}

func (a *app) act(ctx context.Context, x act, f filter, args []string, dryRun bool) error {
	if len(args)+len(f.kinds)+len(f.scopes) == 0 && strings.TrimSpace(strings.Join(f.where, "")) == "" {
		return usage("usage", fmt.Sprintf("ledgerd %s 17   ledgerd %s --where state:dead", x.name, x.name), "%s what? name items, or choose them with --where", x.name)
	}
	if len(args) > 0 && len(f.where) > 0 {
		return usage("usage", "", "name items or choose them with --where, not both")
	}
	chosen, err := f.parse()
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
	for _, name := range args {
		it, err := find(ctx, l.Ledger, name, f.kinds, f.scopes)
		if err != nil {
			return err
		}
		chosen.IDs = append(chosen.IDs, it.ID)
	}
	if len(args) > 0 {
		chosen = ledger.IDs(chosen.IDs...)
	}
	counts, would, err := x.count(ctx, l.Ledger, chosen)
	if err != nil {
		return err
	}
	if !dryRun && would > 1 {
		if err := a.confirm(fmt.Sprintf("%s %s?", x.name, plural(would, "item")), "see what it would do: --dry-run"); err != nil {
			return err
		}
	}
	res := acted{Unchanged: map[ledger.State]int64{}, DryRun: dryRun, Changed: would}
	if !dryRun {
		res.Changed = 0
	}
	for _, state := range ledger.States {
		if res.Matched += counts[state].matched; counts[state].matched == 0 {
			continue
		}
		n := counts[state].would
		if how, ok := x.on[state]; ok && !dryRun {
			g := chosen
			g.States = []ledger.State{state}
			if n, err = how.apply(ctx, l.Ledger, g); err != nil {
				return err
			}
			res.Changed += n
		}
		if left := counts[state].matched - n; left > 0 {
			res.Unchanged[state] = left
		}
	}
	return a.reportAct(x, res, len(args) > 0)
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
