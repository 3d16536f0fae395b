package item

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// endRow is what finish prints for one claim or item.
type endRow struct {
	Token    string       `json:"token"`
	Recorded bool         `json:"recorded"`
	State    ledger.State `json:"state,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Holder   string       `json:"holder,omitempty"`
}

// ending has the flags of finish. Filter is that of --where.
type ending struct {
	app.FilterFlags
	agent                  string
	outcome                app.ChoiceFlag
	result                 string
	code, text             string
	expired, force, dryRun bool
}

const permanent = "permanent"

func FinishCommand(a *app.App) *cobra.Command {
	e := ending{outcome: app.ChoiceFlag{Value: string(ledger.OutcomeDone),
		Of: []string{string(ledger.OutcomeDone), string(ledger.OutcomeSkipped), string(ledger.OutcomeFailed), permanent,
			string(ledger.OutcomeCancelled), string(ledger.OutcomeReleased)}}}
	cmd := &cobra.Command{
		Use: "finish [TOKEN|ID|KEY]…", Short: "End claims, hand them back, or decide what is dead or in doubt",
		GroupID: app.GroupWork,
		Long: `Ends claims by their tokens, ID.ATTEMPT. The token of a claim that was handed on ends nothing: the
item belongs to its new holder, and the error names the holder. The same end may be reported twice.

An item that is named by id or key takes --agent. If the item is dead or in doubt, this person decides
it: done, skipped or cancelled, and in doubt also failed, which makes it dead. If the agent holds the item, its claim ends.

--where and --outcome decide all that is dead or in doubt and matches, in one act; --agent is the user of the account
then, unless it is given. --error is the reason: the items have it, and the journal. An item that is decided keeps the
code of its last failure unless --code is given, and one that is done keeps none.

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
  ledgerd finish --where 'state:dead code:bad_rows' --outcome skipped --error 'the sender was told'
  ledgerd finish 17.3 18.1 --outcome released
  ledgerd finish --outcome released --where agent:crawler-7 --force`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := e.check(args, cmd.Flags().Changed("outcome")); err != nil {
				return err
			}
			switch ctx := cmd.Context(); {
			case e.expired:
				return releaseExpired(ctx, a)
			case len(args) == 0 && e.released():
				x := forceRelease
				x.asked = e.journalText()
				return apply(ctx, a, x, e.FilterFlags, nil, e.dryRun)
			case len(args) == 0:
				return decideAll(ctx, a, e)
			default:
				return finish(ctx, a, args, e)
			}
		},
	}
	f := cmd.Flags()
	f.StringVar(&e.agent, "agent", "", "the `name` of the person or script that ends or decides it; required for items "+
		"named by id or key")
	f.Var(&e.outcome, "outcome",
		"how it ended; required with --where. permanent: failed, and never tried again; cancelled: only for items that are "+
			"dead or in doubt; released: handed back undone")
	f.StringVar(&e.result, "result", "", "the result, kept as the output of the attempt: `JSON`, @FILE, or - for stdin")
	f.StringVar(&e.code, "code", "", "`class` of the failure, such as too_short")
	f.StringVar(&e.text, "error", "", "`text` of the failure, or the reason")
	f.BoolVar(&e.expired, "expired", false, "with --outcome released: all claims whose lease has ended")
	e.FilterFlags.Define(cmd)
	e.FilterFlags.DefineLimit(cmd)
	f.BoolVar(&e.force, "force", false, "with --outcome released and --where: also claims that others hold")
	f.BoolVar(&e.dryRun, "dry-run", false, "with --where: only print what would be changed")
	return cmd
}

func (e *ending) released() bool { return e.outcome.Value == string(ledger.OutcomeReleased) }

// check refuses flags that do not go together. finish has three forms: with tokens and items (args), with --expired,
// and with --where. outcomeTyped: --outcome was typed.
func (e *ending) check(args []string, outcomeTyped bool) error {
	chosen := len(e.Where) > 0 || len(args) == 0 && e.Given()
	switch {
	case e.Limit > 0 && !chosen:
		return failure.Usage("usage", "", "--limit goes with --where")
	case !e.released() && (e.expired || e.force):
		return failure.Usage("usage", "", "--expired and --force go with --outcome released")
	case e.dryRun && !chosen:
		return failure.Usage("usage", "", "--dry-run goes with --where")
	case e.expired && (chosen || len(args) > 0), chosen && len(args) > 0:
		return failure.Usage("usage", "", "give one of tokens, --where and --expired")
	case chosen && !outcomeTyped:
		return failure.Usage("usage", "was it done? --outcome done   is it given up? --outcome skipped --error REASON",
			"--where decides about many items, so --outcome must be given")
	case chosen && e.released() && !e.force && !e.dryRun:
		return failure.Usage("not_forced", "a holder that still works is refused when it reports; until then two may work "+
			"on the item\ndo it: --force   see what it would do: --dry-run", "--where takes items from their holders")
	case e.released() && len(args) == 0 && e.agent != "":
		return failure.Usage("usage", "claims of one agent: --where agent:"+shell.Quote(e.agent)+" --force",
			"--agent goes with tokens and items")
	case e.released() && e.result+e.code != "":
		return failure.Usage("usage", "", "--result and --code are of a claim that ended, not of one that is handed back")
	case len(args) > 0 && (len(e.States) > 0 || e.Flags.Changed("limit")):
		return failure.Usage("usage", "", "--state and --limit choose items with --where; here items are named")
	case len(args) == 0 && !e.expired && !chosen:
		return failure.Usage("usage", "ledgerd finish 17.3   ledgerd finish --outcome released --expired",
			"finish what? name tokens or items")
	}
	return nil
}

// ledgerResult returns the result that the flags describe.
func (e *ending) ledgerResult(a *app.App) (res ledger.Result, err error) {
	res = ledger.Result{Outcome: ledger.Outcome(e.outcome.Value), Code: e.code, Error: e.text}
	if e.outcome.Value == permanent {
		res.Outcome, res.Final = ledger.OutcomeFailed, true
	}
	res.Output, err = readResult(a, e.result)
	return res, err
}

// journalText returns the flags for the journal, the reason first.
func (e *ending) journalText() string {
	return reasonFlag("error", e.text) + "--outcome " + e.outcome.Value + " "
}

// decideAll decides the items that match and are dead or in doubt.
func decideAll(ctx context.Context, a *app.App, e ending) error {
	res, err := e.ledgerResult(a)
	if err != nil {
		return err
	}
	x := bulk{name: "finish", asked: e.journalText(), mayStay: ledger.States, final: true,
		changes: map[ledger.State]eligible{ledger.StateDead: {}, ledger.StateDoubt: {}},
		change: func(ctx context.Context, l ledgers.Any, f ledger.Filter, tell ledger.ActOption) error {
			_, err := l.DecideAll(ctx, cmp.Or(e.agent, app.Actor()), f, res, tell)
			return app.FieldError(err, "bad_flag", resultNames)
		}}
	if res.Outcome == ledger.OutcomeFailed {
		delete(x.changes, ledger.StateDead)
	}
	return apply(ctx, a, x, e.FilterFlags, nil, e.dryRun)
}

// finish ends the claims of tokens, and ends or decides items, as the arguments name them.
func finish(ctx context.Context, a *app.App, args []string, e ending) error {
	res, err := e.ledgerResult(a)
	if err != nil {
		return err
	}
	if e.released() {
		if err := onlyTokens(args); err != nil {
			return err
		}
		res = ledger.Result{Outcome: ledger.OutcomeReleased, Error: e.text}
	}
	l, err := a.Open(ctx, app.ToWork)
	if err != nil {
		return err
	}
	defer l.Close()
	ctx = ledger.OneAct(ctx, e.journalText()+e.Asked(args))
	return endEach(a, args, func(name string) (endRow, error) {
		if id, attempt, err := ledger.ParseToken(name); err == nil {
			return endClaim(ctx, l.Any, id, attempt, res, e.agent)
		}
		it, err := app.Find(ctx, l.Any, name, e.Kinds, e.Scopes)
		if err != nil {
			return endRow{}, err
		}
		if e.agent == "" {
			return endRow{}, failure.Usage("usage", "or give the token that claim printed",
				"who finishes item %d? --agent is missing", it.ID)
		}
		return finishItem(ctx, l.Any, it, e.agent, res)
	})
}

// readResult returns the bytes of --result.
func readResult(a *app.App, given string) ([]byte, error) {
	file, named := strings.CutPrefix(given, "@")
	var in io.Reader
	switch {
	case given == "":
		return nil, nil
	case given == "-":
		in, file = a.Stdin, "stdin"
	case named:
		f, err := os.Open(file)
		if err != nil {
			return nil, failure.Usage("bad_input", "", "--result %s: %v", given, errors.Unwrap(err))
		}
		defer f.Close()
		in = f
	default:
		if !json.Valid([]byte(given)) {
			return nil, failure.Usage("bad_flag", "text is written as JSON in quotes: --result '\"…\"'   a file: --result "+
				"@FILE   stdin: --result -", "--result %s: not JSON", given)
		}
		return []byte(given), nil
	}
	var output []byte
	var err error
	if stop := a.Await(func() { output, err = io.ReadAll(io.LimitReader(in, bounds.MaxOutput+1)) }); stop != nil {
		return nil, stop
	}
	if err == nil && len(output) > bounds.MaxOutput {
		err = failure.Usage("bad_input", "keep it elsewhere, and put into the output where that is",
			"--result: %s holds more than %s bytes", file, report.Count(bounds.MaxOutput))
	}
	return output, err
}

// endEach calls end for each name and prints its row. It returns the first error of end, and prints the others.
func endEach(a *app.App, names []string, end func(name string) (endRow, error)) error {
	rows, err := report.NewRows[endRow](a.Printer(), []string{"token", "recorded", "state"}, nil)
	if err != nil {
		return err
	}
	var first error
	for _, name := range names {
		row, err := end(name)
		row.Token = cmp.Or(row.Token, name)
		if err != nil {
			f := failure.Explain(err)
			row.Reason = f.Code
			if first == nil {
				first = f
			} else {
				a.Tell(f)
			}
		}
		if err := rows.Write(row); err != nil {
			return err
		}
	}
	return errors.Join(first, rows.Close())
}

// endClaim ends the claim of a token. Unless agent is "", the claim must be that of agent; else the error names the
// holder of the item.
func endClaim(ctx context.Context, l ledgers.Any, id, attempt int64, res ledger.Result, agent string) (endRow,
	error) {
	row := endRow{Token: fmt.Sprintf("%d.%d", id, attempt)}
	ls, err := l.Lease(ctx, id, attempt)
	if errors.Is(err, ledger.ErrNotFound) {
		return row, failure.New(failure.ExitError, "not_found", fmt.Sprintf("%s was not recorded: no item %d in this ledger",
			row.Token, id), "")
	}
	if err == nil && agent != "" && ls.Agent != agent {
		err = ledger.ErrLeaseLost
	}
	if err == nil {
		e := []ledger.Ending{{Lease: ls, Result: res}}
		if err = l.Finish(ctx, e...)[0]; err == nil {
			if now, err := l.Now(ctx); err == nil { // a tally that is lost is no error: the claim has ended
				_ = l.AddTallies(ctx, e[0].Tally(now))
			}
			row.Recorded, row.State = true, e[0].State
			return row, nil
		}
	}
	if !errors.Is(err, ledger.ErrLeaseLost) {
		return row, app.FieldError(err, "bad_flag", resultNames)
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

// lostClaim explains why a token ends no claim. ls is its lease, nil if the item has none of this attempt.
func lostClaim(ctx context.Context, l ledgers.Any, ls *ledger.Lease, it ledger.Item, token string,
	attempt int64) error {
	why := "" // stays so if the claim ended just now
	switch {
	case ls == nil && attempt > it.Attempt:
		why = fmt.Sprintf("item %d has had no attempt %d, ", it.ID, attempt)
	case ls == nil:
		why = fmt.Sprintf("attempt %d was no claim, or its history was pruned, ", attempt)
	default:
		attempts, err := l.AttemptsBefore(ctx, it.ID, attempt+1, 1)
		if err != nil {
			return err
		}
		for _, at := range attempts {
			switch ended := report.Local(at.FinishedAt); {
			case at.Attempt != attempt:
			case at.Outcome.TakenBack():
				why = fmt.Sprintf("your lease ended at %s, ", ended)
			default:
				why = fmt.Sprintf("it has ended as %s at %s, ", at.Outcome, ended)
			}
		}
	}
	switch {
	case it.State == ledger.StateLeased:
		why += holding(it)
	case it.Attempt > attempt:
		why += fmt.Sprintf("item %d has been %s since attempt %d", it.ID, it.State, it.Attempt)
	default:
		why += fmt.Sprintf("item %d is %s", it.ID, it.State)
	}
	return lost(token, it, why)
}

// lost returns the error of an end by an agent that does not hold the item.
func lost(token string, it ledger.Item, why string) error {
	f := failure.New(failure.ExitTaken, "lease_lost", fmt.Sprintf("%s was not recorded: %s", token, why),
		fmt.Sprintf("your work is not in the ledger; see ledgerd show %d", it.ID))
	f.Cause = ledger.ErrLeaseLost
	return f
}

func holding(it ledger.Item) string {
	return fmt.Sprintf("%s holds item %d (attempt %d) until %s", it.Agent, it.ID, it.Attempt, report.Local(it.ExpiresAt))
}

// finishItem ends the claim of an item that the agent holds, or decides an item that is dead or in doubt.
func finishItem(ctx context.Context, l ledgers.Any, it ledger.Item, agent string, res ledger.Result) (endRow,
	error) {
	row := endRow{Token: fmt.Sprint(it.ID), State: it.State}
	switch it.State {
	case ledger.StateLeased:
		if it.Agent == agent {
			return endClaim(ctx, l, it.ID, it.Attempt, res, agent)
		}
		row.Holder = it.Agent
		return row, lost(row.Token, it, holding(it))
	case ledger.StateDead, ledger.StateDoubt:
		if res.Outcome == ledger.OutcomeFailed && it.State == ledger.StateDead {
			return row, failure.Usage("wrong_outcome", fmt.Sprintf("try again: ledgerd retry %d   give up: ledgerd cancel %[1]d",
				it.ID), "item %d is dead: a person decides done, skipped or cancelled", it.ID)
		}
		if err := l.Decide(ctx, it.ID, agent, res); err != nil {
			return row, app.FieldError(err, "bad_flag", resultNames)
		}
		it, err := l.Get(ctx, it.ID)
		row.Recorded, row.State = true, it.State
		return row, err
	}
	hint := ""
	if it.State == ledger.StateReady || it.State == ledger.StateWaiting {
		hint = fmt.Sprintf("take it first: ledgerd claim %s --agent %s   or withdraw it: ledgerd cancel %d", it.Kind, agent,
			it.ID)
	}
	return row, failure.New(failure.ExitError, "wrong_state", fmt.Sprintf("item %d is %s: there is nothing to finish",
		it.ID, it.State), hint)
}

// resultNames are for [app.FieldError].
var resultNames = map[string]string{"output": "--result", "state": "state"}
