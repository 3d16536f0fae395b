package main

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// filter are the flags that choose items, the same in every command that has them.
type filter struct {
	where                        []string
	kinds, states, scopes, agent []string
	flags                        *pflag.FlagSet
	first                        int // --limit of a command that changes what matches; 0: all
}

func (f *filter) define(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.flags = fl
	fl.StringArrayVar(&f.where, "where", nil, "`filter`, such as \"state:dead code:http_404 since:2h\"; repeated: all must match")
	fl.StringSliceVar(&f.kinds, "kind", nil, "only these `kinds`")
	fl.StringSliceVar(&f.scopes, "scope", nil, "only these `scopes`")
	fl.StringSliceVar(&f.states, "state", nil, "only these `states`")
	if fl.Lookup("agent") == nil { // which of finish is who ends
		fl.StringSliceVar(&f.agent, "agent", nil, "only what these `agents` hold")
	}
}

// given says whether any of them was.
func (f *filter) given() bool {
	return len(f.kinds)+len(f.scopes)+len(f.states)+len(f.agent) > 0 || strings.TrimSpace(strings.Join(f.where, "")) != ""
}

// filterHelp is the filter language as the help of commands has it.
const filterHelp = `Terms of --where, joined by and; several values of one, separated by commas, by or (key: and source: take one):
  id:7,8   kind:K   scope:S   agent:A (who holds it)   priority:-1,0 (of unfinished)
  source:links (where it came from, as show says: a source, a file, a folder; of a list also source:links:17, the line)
  state:dead,doubt (waiting ready leased dead doubt done cancelled)   round:failed (the current one: open done failed doubt cancelled)
  key:K   key:/prefix*   key~part
  outcome:failed,done   code:http_404   error~part   of the newest attempt that ended; case as given
  output.FIELD:404   of the JSON output of the newest attempt that has one: also output.a.b:x,y   ~part   >10   <10
  payload.FIELD:de   of the JSON payload, in the same ways
  since:2h   until:2026-11-20   when something last happened: the newest attempt's end, else adding
  added:7d   added:2026-11-01..2026-11-08   when it was added
A value with spaces stands in double quotes: error~"not found". Times: 90s, 2h, 7d ago, or
2026-11-20, 2026-11-20T10:00, 2026-11-20T10:00:00Z; without a zone they are local.`

// parse makes the ledger's filter of the flags.
func (f *filter) parse() (ledger.Filter, error) {
	for name, values := range map[string][]string{"kind": f.kinds, "scope": f.scopes, "state": f.states, "agent": f.agent} {
		if f.flags != nil && f.flags.Changed(name) && len(values) == 0 { // which must not mean all there are
			return ledger.Filter{}, usage("usage", "perhaps a variable of a script is empty; the default scope is --where scope:", "--%s \"\" names none", name)
		}
	}
	all := ledger.Filter{Kinds: f.kinds, Scopes: f.scopes, Agents: f.agent}
	for _, s := range f.states {
		st := ledger.State(s)
		if !slices.Contains(ledger.States, st) {
			return all, badState(s)
		}
		all.States = append(all.States, st)
	}
	for _, w := range f.where {
		one, err := ledger.ParseFilter(w, time.Now())
		if err != nil {
			return all, err
		}
		all = all.And(one)
	}
	return all, nil
}

// badFilter shows where a filter is wrong, and what may have been meant.
func badFilter(bad *ledger.FilterError) *failure {
	var hint string
	if report.Safe(bad.Filter) == bad.Filter { // else the mark would be beside it
		hint = "  " + bad.Filter + "\n  " + strings.Repeat(" ", bad.Column-1) + strings.Repeat("^", bad.Length) + "\n"
	}
	if near := settings.Suggest(bad.Word, bad.Known); near != "" {
		hint += "did you mean " + near + "?\n"
	}
	return usage("bad_filter", hint+"terms: "+ledger.FilterTerms, "--where, column %d: %s", bad.Column, bad.Reason)
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
	return usage("bad_flag", hint, "--state %s: no state; there are %s", word, strings.Join(names, " "))
}
