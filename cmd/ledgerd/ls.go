package main

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// filter are the flags that choose items.
type filter struct {
	where                        []string
	kinds, states, scopes, agent []string
	flags                        *pflag.FlagSet
}

func (f *filter) define(cmd *cobra.Command) {
	fl := cmd.Flags()
	f.flags = fl
	fl.StringArrayVar(&f.where, "where", nil, "`filter`, such as \"state:dead code:http_404 since:2h\"; repeated: all must match")
	fl.StringSliceVar(&f.kinds, "kind", nil, "only these `kinds`")
	fl.StringSliceVar(&f.scopes, "scope", nil, "only these `scopes`")
}

// filterHelp is the filter language as the help of commands has it.
const filterHelp = `Terms of --where, joined by and; several values of one, separated by commas, by or:
  id:7,8   kind:K   scope:S   agent:A (who holds it)   code:http_404 (of the newest attempt)
  state:dead,doubt (waiting ready leased dead doubt done cancelled)   priority:-1,0 (of unfinished)
  key:K   key:/prefix*   key~part   error~part (of the newest attempt; case as given)
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

// itemRow is an item as ls shows it.
type itemRow struct {
	ID         int64             `json:"id"`
	Kind       string            `json:"kind"`
	Scope      string            `json:"scope"`
	Key        string            `json:"key"`
	State      ledger.State      `json:"state"`
	Round      string            `json:"round"`
	RoundState ledger.RoundState `json:"round_state"`
	Attempt    int64             `json:"attempt"`
	Failures   int               `json:"failures"`
	Priority   int16             `json:"priority"`
	Due        report.Time       `json:"due"`
	Agent      string            `json:"agent"`
	Expires    report.Time       `json:"expires"`
	Code       string            `json:"code"`
	Error      string            `json:"error"`
	Added      report.Time       `json:"added_at"`
	Ended      report.Time       `json:"ended_at"`
	Payload    report.Bytes      `json:"payload"`
}

func newItemRow(it ledger.Item) itemRow {
	return itemRow{ID: it.ID, Kind: it.Kind, Scope: it.Scope, Key: it.Key, State: it.State, Round: it.Round, RoundState: it.RoundState, Attempt: it.Attempt,
		Failures: it.Failures, Priority: it.Priority, Due: report.Time(it.Due), Agent: it.Agent, Expires: report.Time(it.ExpiresAt),
		Code: it.Code, Error: it.Error, Added: report.Time(it.CreatedAt), Ended: report.Time(it.EndedAt),
		Payload: it.Payload}
}

func (a *app) lsCommand() *cobra.Command {
	var f filter
	var limit int
	var cursor string
	cmd := &cobra.Command{
		Use: "ls", Short: "List items", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Lists items by id. Fields of a row with -o json, jsonl and csv: id, kind, scope, key, state,
round, round_state, attempt, failures, priority, due, agent, expires, code, error, added_at, ended_at, payload.
Of the payload --columns takes single fields, too: payload.NAME.

` + filterHelp,
		Example: `  ledgerd ls --state dead
  ledgerd ls --where 'kind:urlcheck code:http_404' -o csv --columns key,error
  ledgerd ls --kind filecsv --columns payload.path,payload.modified,payload.owner,round,state`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.ls(cmd, f, limit, cursor)
		},
	}
	f.define(cmd)
	cmd.Flags().StringSliceVar(&f.states, "state", nil, "only these `states`")
	cmd.Flags().StringSliceVar(&f.agent, "agent", nil, "only what these `agents` hold")
	cmd.Flags().IntVar(&limit, "limit", 100, "most `rows`")
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on after this `place`, as the last line of the list before says")
	return cmd
}

func (a *app) ls(cmd *cobra.Command, f filter, limit int, cursor string) error {
	var after int64
	var err error
	if cursor != "" {
		if after, err = strconv.ParseInt(cursor, 10, 64); err != nil || after < 0 {
			return usage("bad_flag", "it is what the last line of the list before says", "--cursor %s: not a cursor", cursor)
		}
	}
	if limit < 1 {
		return usage("bad_flag", "", "--limit %d: at least 1", limit)
	}
	chosen, err := f.parse()
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	if chosen, err = byPath(ctx, l.Ledger, chosen); err != nil {
		return err
	}
	last, more := after, false
	n, err := report.List(a.printer(), limited(l.List(ctx, chosen, after), limit, &last, &more), "id", "kind", "key", "state", "attempt", "due", "code", "error")
	if err == nil && n == 0 && !a.quiet {
		fmt.Fprintln(a.stderr, "nothing found")
	}
	switch {
	case err != nil:
		return err
	case n == 0 && a.errorOnEmpty:
		return status(exitEmpty)
	case more && !a.quiet:
		total, err := l.Count(ctx, chosen)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.stderr, "%s of ≈%s; --cursor %d for more\n", report.Count(int64(n)), report.Count(total), last)
	}
	return nil
}

// limited yields rows up to a limit, and says which was the last and whether there are more.
func limited(items iter.Seq2[ledger.Item, error], limit int, last *int64, more *bool) iter.Seq2[itemRow, error] {
	return func(yield func(itemRow, error) bool) {
		n := 0
		for it, err := range items {
			if n == limit {
				*more = true
				return
			}
			if n++; !yield(newItemRow(it), err) {
				return
			}
			*last = it.ID
		}
	}
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
