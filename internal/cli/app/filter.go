package app

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// FilterFlags are the flags that choose items, the same in every command that has them.
type FilterFlags struct {
	Where                         []string
	Kinds, States, Scopes, Agents []string
	Flags                         *pflag.FlagSet
	Limit                         int // --limit of a command that changes what matches; 0: all
}

// Define adds the flags to a command, except --limit.
func (f *FilterFlags) Define(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.Flags = fl
	fl.StringArrayVar(&f.Where, "where", nil, "`filter`, such as \"state:dead code:http_404 since:2h\"; repeated: all "+
		"must match")
	fl.StringSliceVar(&f.Kinds, "kind", nil, "only these `kinds`")
	fl.StringSliceVar(&f.Scopes, "scope", nil, "only these `scopes`")
	fl.StringSliceVar(&f.States, "state", nil, "only these `states`")
	if fl.Lookup("agent") == nil { // --agent of finish is the person that ends the attempt
		fl.StringSliceVar(&f.Agents, "agent", nil, "only what these `agents` hold")
	}
}

// Given reports whether the flags choose items at all.
func (f *FilterFlags) Given() bool {
	return len(f.Kinds)+len(f.Scopes)+len(f.States)+len(f.Agents) > 0 || strings.TrimSpace(strings.Join(f.Where, "")) != ""
}

// FilterHelp is the filter language as the help of commands has it.
var FilterHelp = `Terms of --where. An item must match all of them. A term with several values (a,b) matches any of
them; key:, source: and shard_key: take one value.
` + filter.Help + `Quote a value with spaces: error~"not found". A time is a duration back from now (90s, 2h, 7d), a day
(2026-11-20) or a moment (2026-11-20T10:00, 2026-11-20T10:00:00Z). Without a time zone it is local time.`

// mayBeEmpty are the flags for which an empty value has a meaning.
var mayBeEmpty = []string{"code", "error", "holder", "key", "listen", "plugin", "prefix", "reason", "result", "scope",
	"seed", "shard-key", "zone"}

// RefuseEmpty refuses flags that are given without a value: that must not mean all, none, or the default.
func RefuseEmpty(flags *pflag.FlagSet) (err error) {
	flags.Visit(func(f *pflag.Flag) {
		empty := f.Value.Type() == "string" && f.Value.String() == "" && !slices.Contains(mayBeEmpty, f.Name)
		if list, is := f.Value.(pflag.SliceValue); is {
			blank := func(s string) bool { return strings.TrimSpace(s) == "" }
			all := list.GetSlice()
			empty = len(all) == 0 || slices.ContainsFunc(all, blank)
		}
		if empty && err == nil {
			hint := "perhaps a variable of a script is empty"
			if f.Name == "scope" && flags.Lookup("where") != nil {
				hint += "; the default scope is --where scope:"
			}
			err = failure.Usage("usage", hint, "--%s \"\" names none", f.Name)
		}
	})
	return err
}

// Parse returns the filter that the flags describe. The ledger is not needed for it.
func (f *FilterFlags) Parse() (ledger.Filter, error) {
	all := ledger.Filter{Kinds: f.Kinds, Scopes: f.Scopes, Agents: f.Agents}
	for _, s := range f.States {
		st := ledger.State(s)
		if !slices.Contains(ledger.States, st) {
			return all, badState(s)
		}
		all.States = append(all.States, st)
	}
	for _, w := range f.Where {
		term, err := filter.Parse(w, time.Now())
		if err != nil {
			return all, err
		}
		all = all.And(term)
	}
	return all, nil
}

func badState(word string) error {
	names := make([]string, len(ledger.States))
	for i, s := range ledger.States {
		names[i] = string(s)
	}
	hint := ""
	if near := settings.Suggest(word, names); near != "" {
		hint = "did you mean " + near + "?"
	}
	if word == string(ledger.OutcomeFailed) {
		hint = "failed for good: --state dead, or of items that recur: --where round:failed"
	}
	return failure.Usage("bad_flag", hint, "--state %s: no state; there are %s", word, strings.Join(names, " "))
}

// DefineLimit adds --limit to a command that changes what a filter matches.
func (f *FilterFlags) DefineLimit(cmd *cobra.Command) {
	cmd.Flags().IntVar(&f.Limit, "limit", 0, "only the first `items` by id of those that it would change")
}

// CheckLimit refuses a --limit that limits nothing.
func (f *FilterFlags) CheckLimit(args []string) error {
	switch {
	case f.Limit < 0 || f.Flags != nil && f.Flags.Changed("limit") && f.Limit == 0:
		return failure.Usage("bad_flag", "", "--limit %d: at least 1", f.Limit)
	case f.Limit > 0 && len(args) > 0:
		return failure.Usage("usage", "", "--limit goes with --where, not with items that are named")
	}
	return nil
}

// Line returns the flags as they are written on a command line, without --limit.
func (f *FilterFlags) Line() string {
	var words []string
	for _, flag := range []struct {
		name   string
		values []string
	}{{"where", f.Where}, {"kind", f.Kinds}, {"scope", f.Scopes}, {"state", f.States}, {"agent", f.Agents}} {
		for _, value := range flag.values {
			words = append(words, "--"+flag.name+" "+shell.Quote(value))
		}
	}
	return strings.Join(words, " ")
}

// Asked returns the flags and names of items as they were typed, for the journal.
func (f *FilterFlags) Asked(args []string) string {
	line := f.Line()
	if f.Limit > 0 {
		line += fmt.Sprintf(" --limit %d", f.Limit)
	}
	if f.Flags != nil && f.Flags.Changed("due") { // of retry
		line += " --due " + shell.Quote(f.Flags.Lookup("due").Value.String())
	}
	for _, name := range args {
		line += " " + shell.Quote(name)
	}
	return strings.TrimSpace(line)
}

// CheckChoice refuses a command that chooses no items, or both by name and by filter. name is the name of the command.
func (f *FilterFlags) CheckChoice(name string, args []string) error {
	if len(args) == 0 && !f.Given() {
		return failure.Usage("usage", fmt.Sprintf("ledgerd %s 17   ledgerd %s --where kind:urlcheck", name, name),
			"%s what? name items, or choose them with --where", name)
	}
	if len(args) > 0 && len(f.Where)+len(f.States)+len(f.Agents) > 0 {
		return failure.Usage("usage", "several terms of a filter are one word: --where 'kind:mail state:dead'",
			"name items or choose them with --where, --state and --agent, not both")
	}
	return nil
}
