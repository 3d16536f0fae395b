package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// endRow is what became of one end that was reported.
type endRow struct {
	Token    string       `json:"token"`
	Recorded bool         `json:"recorded"`
	State    ledger.State `json:"state,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Holder   string       `json:"holder,omitempty"`
}

// ending are the flags of finish.
type ending struct {
	filter
	agent                  string
	outcome                choice
	result                 string
	code, text             string
	expired, force, dryRun bool
}

const permanent = "permanent"

func (a *app) finishCommand() *cobra.Command {
	e := ending{outcome: choice{value: string(ledger.OutcomeDone),
		of: []string{string(ledger.OutcomeDone), string(ledger.OutcomeSkipped), string(ledger.OutcomeFailed), permanent, string(ledger.OutcomeReleased)}}}
	cmd := &cobra.Command{
		Use: "finish [TOKEN|ID|KEY]…", Short: "End claims, hand them back, or decide what is dead or in doubt", GroupID: groupWork,
		Long: `Ends claims by their tokens, ID.ATTEMPT. The token of a claim that was handed on ends nothing: the
item belongs to its new holder, and the error names the holder. The same end may be reported twice.

An item that is named by id or key takes --agent. If the item is dead or in doubt, this person decides
it (done or skipped). If the agent holds the item, its claim ends.

--outcome released hands claims back undone. Their items are ready again, which counts as no failure:
  by token         the holder's own claims
  --expired        all claims whose lease has ended; daemons and claim do that by themselves
  --where --force  claims of others, before their lease ends. A holder that still works is refused
                   when it reports; until then two may work on the item

With -o json: [{"token","recorded","state"}], and {"token","recorded":false,"reason","holder"} with exit 11;
{"released"} with --expired; {"matched","changed","unchanged","dry_run"} with --where.`,
		Example: `  ledgerd finish 17.3
  ledgerd finish 17.3 --result '{"verdict":"publish"}'
  ledgerd finish 18.1 --outcome failed --code too_short --error 'needs a second source'
  ledgerd finish https://a.example/post --agent alice --outcome skipped
  ledgerd finish 17.3 18.1 --outcome released
  ledgerd finish --outcome released --where agent:crawler-7 --force`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.check(args); err != nil {
				return err
			}
			switch ctx := cmd.Context(); {
			case e.expired:
				return a.releaseExpired(ctx)
			case len(args) == 0:
				return a.act(ctx, forced, e.filter, nil, e.dryRun)
			default:
				return a.finish(ctx, args, e)
			}
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.agent, "agent", "", "the `name` of the person or script that ends or decides it; required for items named by id or key")
	f.Var(&e.outcome, "outcome", "how it ended; permanent: failed, and not to be tried again; released: handed back undone")
	f.StringVar(&e.result, "result", "", "the result, kept as the output of the attempt: `JSON`, @FILE, or - for stdin")
	f.StringVar(&e.code, "code", "", "`class` of the failure, such as too_short")
	f.StringVar(&e.text, "error", "", "`text` of the failure, or the reason")
	f.BoolVar(&e.expired, "expired", false, "with --outcome released: all claims whose lease has ended")
	e.filter.define(cmd)
	e.filter.defineFirst(cmd)
	f.BoolVar(&e.force, "force", false, "with --outcome released and --where: also claims that others hold")
	f.BoolVar(&e.dryRun, "dry-run", false, "with --outcome released and --where: only say what would be changed")
	return cmd
}

// check refuses flags that do not go together: there are tokens and items, --expired, or --where with --force.
func (e *ending) check(args []string) error {
	released := e.outcome.value == string(ledger.OutcomeReleased)
	chosen := len(e.where) > 0 || len(args) == 0 && e.given()
	switch {
	case e.first > 0 && !chosen:
		return usage("usage", "", "--limit goes with --outcome released and --where")
	case !released && (e.expired || e.force || e.dryRun || chosen):
		return usage("usage", "", "--expired, --where, --force and --dry-run go with --outcome released")
	case e.expired && (chosen || len(args) > 0), chosen && len(args) > 0:
		return usage("usage", "", "name tokens, or choose with --where, or say --expired: one of them")
	case chosen && !e.force && !e.dryRun:
		return usage("not_forced", "a holder that still works is refused when it reports; until then two may work on the item\n"+
			"do it: --force   see what it would do: --dry-run", "--where takes items from their holders")
	case len(args) == 0 && !e.expired && !chosen:
		return usage("usage", "ledgerd finish 17.3   ledgerd finish --outcome released --expired", "finish what? name tokens or items")
	}
	return nil
}

func (a *app) finish(ctx context.Context, args []string, e ending) error {
	res := ledger.Result{Outcome: ledger.Outcome(e.outcome.value), Code: e.code, Error: e.text}
	if e.outcome.value == permanent {
		res.Outcome, res.Final = ledger.OutcomeFailed, true
	}
	var err error
	if res.Output, err = a.readResult(e.result); err != nil {
		return err
	}
	if released := e.outcome.value == string(ledger.OutcomeReleased); released {
		if err := onlyTokens(args); err != nil {
			return err
		}
		res = ledger.Release()
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	return a.end(args, func(name string) (endRow, error) {
		if id, attempt, err := ledger.ParseToken(name); err == nil {
			return endClaim(ctx, l.Ledger, id, attempt, res, e.agent)
		}
		it, err := find(ctx, l.Ledger, name, e.kinds, e.scopes)
		if err != nil {
			return endRow{}, err
		}
		if e.agent == "" {
			return endRow{}, usage("usage", "or give the token that claim printed", "who finishes item %d? --agent is missing", it.ID)
		}
		return finishItem(ctx, l.Ledger, it, e.agent, res)
	})
}

// readResult gives the bytes of --result.
func (a *app) readResult(given string) ([]byte, error) {
	file, named := strings.CutPrefix(given, "@")
	var in io.Reader
	switch {
	case given == "":
		return nil, nil
	case given == "-":
		in, file = a.stdin, "stdin"
	case named:
		f, err := os.Open(file)
		if err != nil {
			return nil, usage("bad_input", "", "--result %s: %v", given, errors.Unwrap(err))
		}
		defer f.Close()
		in = f
	default:
		if !json.Valid([]byte(given)) {
			return nil, usage("bad_flag", "text is written as JSON in quotes: --result '\"…\"'   a file: --result @FILE   stdin: --result -", "--result %s: not JSON", given)
		}
		return []byte(given), nil
	}
	output, err := io.ReadAll(io.LimitReader(in, ledger.MaxOutput+1))
	if err == nil && len(output) > ledger.MaxOutput {
		err = usage("bad_input", "keep it elsewhere, and put into the output where that is", "--result: %s holds more than %s bytes", file, report.Count(ledger.MaxOutput))
	}
	return output, err
}

// end ends one after the other and reports all; the first that was refused decides the exit code.
func (a *app) end(names []string, one func(name string) (endRow, error)) error {
	rows, err := report.NewRows[endRow](a.printer(), []string{"token", "recorded", "state"}, nil)
	if err != nil {
		return err
	}
	var first error
	for _, name := range names {
		row, err := one(name)
		if row.Token == "" {
			row.Token = name
		}
		if err != nil {
			f := explain(err)
			row.Reason = f.code
			if first == nil {
				first = f
			} else {
				a.tell(f)
			}
		}
		if err := rows.Write(row); err != nil {
			return err
		}
	}
	return errors.Join(first, rows.Close())
}

// endClaim ends the claim of a token, of this agent unless it is ""; a refusal says who has the item now.
func endClaim(ctx context.Context, l *ledger.Ledger, id, attempt int64, res ledger.Result, agent string) (endRow, error) {
	row := endRow{Token: fmt.Sprintf("%d.%d", id, attempt)}
	ls, err := l.Lease(ctx, id, attempt)
	if errors.Is(err, ledger.ErrNotFound) {
		return row, fail(exitError, "not_found", fmt.Sprintf("%s was not recorded: no item %d in this ledger", row.Token, id), "")
	}
	if err == nil && agent != "" && ls.Agent != agent {
		err = ledger.ErrLeaseLost
	}
	if err == nil {
		e := []ledger.Ending{{Lease: ls, Result: res}}
		if err = l.Finish(ctx, e...)[0]; err == nil {
			row.Recorded, row.State = true, e[0].State
			return row, nil
		}
	}
	if !errors.Is(err, ledger.ErrLeaseLost) {
		return row, flagOfResult(err)
	}
	it, itemErr := l.Get(ctx, id)
	if itemErr != nil {
		return row, itemErr
	}
	row.State = it.State
	if it.State == ledger.StateLeased {
		row.Holder = it.Agent
	}
	return row, lostClaim(ctx, l, ls, it, row.Token, attempt)
}

// lostClaim says why a claim ends nothing any more. ls is nil if there was none of this number.
func lostClaim(ctx context.Context, l *ledger.Ledger, ls *ledger.Lease, it ledger.Item, token string, attempt int64) error {
	why := "" // the claim ended this very moment
	switch {
	case ls == nil && attempt > it.Attempt:
		why = fmt.Sprintf("item %d has had no attempt %d, ", it.ID, attempt)
	case ls == nil:
		why = fmt.Sprintf("attempt %d was no claim, or its history was pruned, ", attempt)
	default:
		attempts, err := l.Attempts(ctx, it.ID)
		if err != nil {
			return err
		}
		for _, at := range attempts {
			if at.Attempt != attempt {
				continue
			}
			if why = fmt.Sprintf("it has ended as %s at %s, ", at.Outcome, clock(at.FinishedAt)); at.Outcome == ledger.OutcomeLost {
				why = fmt.Sprintf("your lease ended %s, ", clock(at.FinishedAt))
			}
		}
	}
	switch {
	case it.State == ledger.StateLeased:
		why += holding(it)
	case it.Attempt > attempt:
		why += fmt.Sprintf("item %d is %s since attempt %d", it.ID, it.State, it.Attempt)
	default:
		why += fmt.Sprintf("item %d is %s", it.ID, it.State)
	}
	return lost(token, it, why)
}

// lost is the refusal of an end by somebody who does not have the item.
func lost(token string, it ledger.Item, why string) error {
	f := fail(exitTaken, "lease_lost", fmt.Sprintf("%s was not recorded: %s", token, why), fmt.Sprintf("your work is not in the ledger; see ledgerd show %d", it.ID))
	f.cause = ledger.ErrLeaseLost
	return f
}

func holding(it ledger.Item) string {
	return fmt.Sprintf("%s holds item %d (attempt %d) until %s", it.Agent, it.ID, it.Attempt, clock(it.ExpiresAt))
}

func clock(t time.Time) string { return t.Local().Format("15:04") }

// finishItem ends what the agent holds, or decides what is dead or in doubt.
func finishItem(ctx context.Context, l *ledger.Ledger, it ledger.Item, agent string, res ledger.Result) (endRow, error) {
	row := endRow{Token: fmt.Sprint(it.ID), State: it.State}
	switch it.State {
	case ledger.StateLeased:
		if it.Agent == agent {
			return endClaim(ctx, l, it.ID, it.Attempt, res, agent)
		}
		row.Holder = it.Agent
		return row, lost(row.Token, it, holding(it))
	case ledger.StateDead, ledger.StateDoubt:
		if !res.Outcome.Completed() {
			return row, usage("wrong_outcome", fmt.Sprintf("try again: ledgerd retry %d   give up: ledgerd cancel %[1]d", it.ID), "item %d is %s: a person decides done or skipped", it.ID, it.State)
		}
		if err := l.Decide(ctx, it.ID, agent, res); err != nil {
			return row, flagOfResult(err)
		}
		row.Recorded, row.State = true, ledger.StateDone
		return row, nil
	}
	hint := ""
	if it.State == ledger.StateReady || it.State == ledger.StateWaiting {
		hint = fmt.Sprintf("take it first: ledgerd claim %s --agent %s   or withdraw it: ledgerd cancel %d", it.Kind, agent, it.ID)
	}
	return row, fail(exitError, "wrong_state", fmt.Sprintf("item %d is %s: there is nothing to finish", it.ID, it.State), hint)
}

// flagOfResult names the flag instead of the field.
func flagOfResult(err error) error {
	flags := map[string]string{"output": "--result", "code": "--code", "error": "--error", "agent": "--agent", "outcome": "--outcome"}
	if bad, ok := errors.AsType[*ledger.InvalidError](err); ok && flags[bad.Field] != "" {
		return usage("bad_flag", "", "%s: %s", flags[bad.Field], bad.Reason)
	}
	return err
}
