package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
)

// defineFirst adds --limit to a command that changes what a filter matches.
func (f *filter) defineFirst(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.first, "limit", 0, "only the first `items` by id of those that it would change")
}

// checkFirst refuses a --limit that limits nothing.
func (f *filter) checkFirst(args []string) error {
	switch {
	case f.first < 0 || f.flags != nil && f.flags.Changed("limit") && f.first == 0:
		return usage("bad_flag", "", "--limit %d: at least 1", f.first)
	case f.first > 0 && len(args) > 0:
		return usage("usage", "", "--limit goes with --where, not with items that are named")
	}
	return nil
}

// first are the first n items by id of those that match and that the act would change.
func (x act) first(ctx context.Context, l *ledger.Ledger, f ledger.Filter, n int) (ledger.Filter, error) {
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

// pausedKinds are those of the paused kinds, of what matches, whose items the act would change.
func (x act) pausedKinds(ctx context.Context, l *ledger.Ledger, f ledger.Filter) (names []string, err error) {
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	for _, k := range kinds {
		if !k.Paused {
			continue
		}
		_, would, err := x.count(ctx, l, f.And(ledger.Filter{Kinds: []string{k.Name}}))
		if err != nil {
			return nil, err
		}
		if would > 0 {
			names = append(names, k.Name)
		}
	}
	return names, nil
}

// sayPaused says that what became ready is not worked, because its kind is paused.
func (a *app) sayPaused(kinds []string) {
	if len(kinds) == 0 || a.quiet {
		return
	}
	what := "kind " + kinds[0] + " is"
	if len(kinds) > 1 {
		what = "kinds " + strings.Join(kinds, ", ") + " are"
	}
	fmt.Fprintf(a.stderr, "%s paused: these items wait until ledgerd kind resume %s\n", what, strings.Join(kinds, " "))
}

// sayUnended says what makes unfinished items prunable.
func (a *app) sayUnended(x act, f filter, res acted) {
	var left []string
	for _, state := range ledger.States {
		if _, ends := x.on[state]; !ends && res.Unchanged[state] > 0 {
			left = append(left, report.Count(res.Unchanged[state])+" "+string(state))
		}
	}
	if x.ended && len(left) > 0 && !a.quiet {
		fmt.Fprintf(a.stderr, "what has not ended is left (%s); withdraw it first, then prune again: ledgerd cancel %s\n", strings.Join(left, ", "), report.Safe(f.line()))
	}
}

// line is the filter as flags of a command line.
func (f *filter) line() string {
	var words []string
	for _, flag := range []struct {
		name   string
		values []string
	}{{"where", f.where}, {"kind", f.kinds}, {"scope", f.scopes}, {"state", f.states}, {"agent", f.agent}} {
		for _, value := range flag.values {
			words = append(words, "--"+flag.name+" "+shell.Quote(value))
		}
	}
	return strings.Join(words, " ")
}
