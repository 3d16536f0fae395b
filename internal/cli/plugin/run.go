package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// trialFlags are what plugin run takes besides the plugin and INPUT.
type trialFlags struct {
	pluginFlags
	set     []string
	attempt int64
	timeout app.DurationFlag
}

func pluginRunCommand(a *app.App) *cobra.Command {
	var t trialFlags
	cmd := &cobra.Command{
		Use: "run NAME|PATH INPUT", Short: "Work one item with a plugin, without a ledger", Args: app.Arguments(2, 2),
		Long: `Starts the plugin as ledgerd would, hands it INPUT as one item, and shows its messages, the items that
it emits, and its result. Nothing is kept. Ctrl-C cancels the item; a second one ends the plugin. Exit 0
if the item is done or skipped, else 3.
Fields: {"plugin","version","key","payload","attempt","outcome","ending","final","delay_ms","code","error","output","emitted":
[{"kind","scope","key","fingerprint","payload","due","priority"}],"progress":[{"done","total","unit"}],"log","ms"}; outcome is
` + names(wire.Result_Outcome_name, outcomePrefix) + ` or crashed; ending ` + names(wire.Result_Ending_name, endingPrefix) + `.`,
		Example: "  ledgerd plugin run ./ledgerd-plugin-thumbs photo.jpg --set width=100\n  ledgerd plugin run urlcheck " +
			"https://example.com/",
		RunE: func(cmd *cobra.Command, args []string) error {
			return pluginRun(a, cmd, args[0], args[1], t)
		},
	}
	f := cmd.Flags()
	t.define(a, f)
	f.StringArrayVar(&t.set, "set", nil, "`NAME=VALUE` (or NAME:=JSON) of the payload; may be repeated")
	f.Int64Var(&t.attempt, "attempt", 1, "`number` of the attempt; the idempotency key is the same for all of them")
	f.Var(&t.timeout, "timeout", "time `limit` of the attempt (default: the plugin's own)")
	return cmd
}

// Prefixes of the names of outcomes and endings in the protocol.
const outcomePrefix, endingPrefix = "OUTCOME_", "ENDING_"

// nameOf returns a name of the protocol in the form for people: "done" of OUTCOME_DONE.
func nameOf(name, prefix string) string { return strings.ToLower(strings.TrimPrefix(name, prefix)) }

// names lists names of the protocol for people, in the order of their numbers.
func names(byNumber map[int32]string, prefix string) string {
	var all []string
	for _, n := range slices.Sorted(maps.Keys(byNumber)) {
		if name := nameOf(byNumber[n], prefix); name != "unspecified" {
			all = append(all, name)
		}
	}
	return strings.Join(all, ", ")
}

func pluginRun(a *app.App, cmd *cobra.Command, name, input string, f trialFlags) error {
	ctx := cmd.Context()
	if f.attempt < 1 {
		return failure.Usage("bad_flag", "", "--attempt %d: attempts count from 1", f.attempt)
	}
	if a.Printer().Format == report.CSV {
		return failure.Usage("bad_flag", "", "plugin run has more than rows: -o table, json or jsonl")
	}
	p, err := pluginAt(ctx, a, name, f.pluginFlags)
	if err != nil {
		return err
	}
	item, err := oneItem(a, cmd, p, input, f)
	if err != nil {
		return err
	}
	config, err := a.PluginConfig(p.Name, p, f.with)
	if err != nil {
		return err
	}
	req := &wire.ConfigureRequest{Concurrency: 1, ProgressMs: 100}
	if req.Config, req.Secrets, err = p.Config.Split(config); err != nil {
		return err
	}
	t := &trial{commentary: NewCommentary(a.Stderr, req.Secrets), quiet: a.Quiet, item: item,
		result: make(chan *wire.Result, 1)}
	res, err := t.run(ctx, a.Hard, p, req)
	if err != nil {
		return t.HideIn(err)
	}
	if err := showTrial(a, p, t, res); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if res.Outcome != wire.Result_OUTCOME_DONE && res.Outcome != wire.Result_OUTCOME_SKIPPED {
		return failure.Status(failure.ExitUnfinished)
	}
	return nil
}

// oneItem makes the item of INPUT, as run does. It is an error if INPUT holds none or several.
func oneItem(a *app.App, cmd *cobra.Command, p *kinds.Plugin, typed string, f trialFlags) (*wire.Item, error) {
	k := &kinds.Kind{Name: p.Name, Config: a.Config.Kind(p.Name), Plugin: p, Schema: p.Payload}
	source, err := input.Source(a, k, input.SourceFlags{Flags: cmd.Flags(), Set: f.set}, []string{typed})
	if err != nil {
		return nil, err
	}
	if err := source.Check(); err != nil {
		return nil, err
	}
	var found []ledger.NewItem
	for next, err := range source.Items(cmd.Context()) {
		if left, ok := errors.AsType[*intake.NotTaken](err); ok {
			return nil, failure.Usage("bad_input", "name a file itself to take it anyway", "%s: %s", left.Input, left.Reason)
		}
		if bad, ok := errors.AsType[*intake.BadLine](err); ok {
			return nil, failure.Usage("bad_input", "", "%s:%d: %s", bad.File, bad.Line, bad.Reason)
		}
		if err != nil {
			return nil, err
		}
		if found = append(found, next.Item); len(found) > 1 {
			return nil, failure.Usage("bad_input", "name one file, URL or line; many: ledgerd run "+p.Name,
				"%s holds more than one item", typed)
		}
	}
	if len(found) == 0 {
		return nil, failure.Usage("bad_input", "", "%s holds no item", typed)
	}
	n := found[0]
	timeout := p.Policy(p.Name).Timeout
	if f.timeout.Duration > 0 {
		timeout = f.timeout.Duration
	}
	const id = 1
	return &wire.Item{
		// The idempotency key is the same for all attempts, as in a ledger.
		Id: id, Attempt: f.attempt, Kind: p.Name, Key: n.Key, IdempotencyKey: fmt.Sprintf("%s//%s/1", p.Name, n.Key),
		Payload: n.Payload, LockId: []byte("trial"), TimeoutMs: timeout.Milliseconds(),
	}, nil
}

// trial is one item on its way through a plugin.
type trial struct {
	*commentary
	quiet    bool
	item     *wire.Item
	result   chan *wire.Result // holds one
	progress []*wire.Progress
	took     time.Duration
}

type task = pluginproc.Task[struct{}]

const (
	checkEvery = 100 * time.Millisecond // between two checks of the item's time limit
	overrun    = 5 * time.Second        // time that the plugin has to end the item after its limit or a cancel
)

// run works the item and returns its result. A crash of the plugin is a result, too.
func (t *trial) run(ctx, hard context.Context, p *kinds.Plugin, req *wire.ConfigureRequest) (*wire.Result, error) {
	spec := p.Spec.Proc()
	spec.OnLog = func(source, line string) {
		if !t.quiet {
			t.Say("%s: %s", source, line)
		}
	}
	proc, err := pluginproc.Start(ctx, spec)
	if err != nil {
		return nil, kinds.PluginError(p.Spec.Place, err)
	}
	defer proc.Kill()
	defer context.AfterFunc(hard, proc.Kill)()
	if _, err := proc.Describe(ctx, &wire.DescribeRequest{}); err != nil {
		return nil, err
	}
	problems, err := proc.Configure(ctx, req)
	if err != nil {
		return nil, err
	}
	if len(problems) > 0 {
		var lines []string
		for _, pr := range problems {
			lines = append(lines, p.Name+": "+strings.TrimPrefix(pr.Field+": "+pr.Message, ": "))
		}
		return nil, failure.Usage("bad_setting", fmt.Sprintf("fields: ledgerd run %s --help", p.Name), "%s",
			strings.Join(lines, "\n"))
	}
	session, err := pluginproc.OpenSession(proc, pluginproc.SessionConfig[struct{}]{Places: 1,
		Reason: func(error) wire.Cancel_Reason { return wire.Cancel_REASON_CANCELLED },
		Settle: func(_ *task, r *wire.Result) { t.result <- r }, Report: t.report, Stray: t.stray})
	if err != nil {
		return nil, err
	}
	item := &task{Item: t.item, Context: ctx, Timeout: time.Duration(t.item.TimeoutMs) * time.Millisecond}
	session.Add(item)
	if _, err := session.Wait(ctx, (*task).Sent, item); err != nil {
		return nil, errors.Join(fmt.Errorf("plugin %s takes no item: %w", p.Name, err), proc.Err())
	}
	began := time.Now()
	res := t.await(ctx, proc, session)
	t.took = time.Since(began)
	proc.Stop(hard, kinds.StopGrace)
	return res, nil
}

// await waits for the result of the item, and ends the process if the item overruns.
func (t *trial) await(ctx context.Context, proc *pluginproc.Proc, session *pluginproc.Session[struct{}]) *wire.Result {
	tick := time.Tick(checkEvery)
	cancelled := ctx.Done()
	for {
		select {
		case r := <-t.result:
			return r
		case <-cancelled:
			t.Say("cancelling the item; again: ending the plugin")
			cancelled = nil
			session.End(overrun)
		case <-tick:
			if _, overran := session.End(overrun); overran {
				proc.Kill()
				return crashed(fmt.Sprintf("it did not end within %v after %s", overrun, why(ctx)), "")
			}
		case <-proc.Done():
			select {
			case r := <-t.result: // sent just before the process ended
				return r
			default:
			}
			if end, ok := errors.AsType[*pluginproc.CrashError](proc.Err()); ok {
				return crashed(end.OfItem(), end.Stderr)
			}
			return crashed("the plugin was ended", "")
		}
	}
}

// why names the reason for which the item should have ended.
func why(ctx context.Context) string {
	if ctx.Err() != nil {
		return "it was cancelled"
	}
	return "its time limit"
}

// outcomeCrashed is the outcome of an item whose process has ended. It is not in the protocol: no plugin can report it.
const outcomeCrashed = wire.Result_Outcome(-1)

// crashed makes the result of an item whose process has ended.
func crashed(why, stderr string) *wire.Result {
	return &wire.Result{Outcome: outcomeCrashed, Error: why, Log: stderr}
}

// stray prints that a result belongs to no item, or is the second one of the item.
func (t *trial) stray(r *wire.Result) {
	if r.Id == t.item.Id && r.Attempt == t.item.Attempt {
		t.Say("the plugin sent a second result: %s", pluginproc.JSON(r))
	} else {
		t.Say("the plugin sent a result of item %d, attempt %d, which it does not have", r.Id, r.Attempt)
	}
}

// report prints and keeps a report of progress.
func (t *trial) report(_ *task, p *wire.Progress) {
	t.mu.Lock()
	t.progress = append(t.progress, p)
	if over := len(t.progress) - maxReports; over > 0 {
		t.progress = slices.Delete(t.progress, 0, over)
	}
	t.mu.Unlock()
	switch {
	case t.quiet:
	case p.Total > 0:
		t.Say("progress: %s of %s %s", report.Count(p.Done), report.Count(p.Total), p.Unit)
	default:
		t.Say("progress: %s %s", report.Count(p.Done), p.Unit)
	}
}

// maxReports is how many reports of progress are kept: the newest ones.
const maxReports = 100

// trialRow is what plugin run prints as JSON.
type trialRow struct {
	Plugin   string          `json:"plugin"`
	Version  string          `json:"version"`
	Key      string          `json:"key"`
	Payload  report.Bytes    `json:"payload"`
	Attempt  int64           `json:"attempt"`
	Outcome  string          `json:"outcome"`
	Ending   string          `json:"ending"`
	Final    bool            `json:"final"`
	DelayMS  int64           `json:"delay_ms"`
	Code     string          `json:"code"`
	Error    string          `json:"error"`
	Output   report.Bytes    `json:"output"`
	Emitted  []trialChild    `json:"emitted"`
	Progress []trialProgress `json:"progress"`
	Log      string          `json:"log"`
	MS       float64         `json:"ms"`
}

type trialChild struct {
	Kind        string       `json:"kind"`
	Scope       string       `json:"scope"`
	Key         string       `json:"key"`
	Fingerprint string       `json:"fingerprint"`
	Payload     report.Bytes `json:"payload"`
	Due         report.Time  `json:"due"`
	Priority    int32        `json:"priority"`
}

type trialProgress struct {
	Done  int64  `json:"done"`
	Total int64  `json:"total"`
	Unit  string `json:"unit"`
}

// showTrial prints the result of a trial, without secrets.
func showTrial(a *app.App, p *kinds.Plugin, t *trial, r *wire.Result) error {
	row := trialRow{
		Plugin: p.Name, Version: p.Version, Key: t.item.Key, Payload: t.item.Payload, Attempt: t.item.Attempt,
		Outcome: nameOf(r.Outcome.String(), outcomePrefix), Ending: nameOf(r.Ending.String(), endingPrefix),
		Final: r.Final, DelayMS: r.DelayMs, Code: r.Code, Error: t.hide(r.Error), Output: r.Output, Log: t.hide(r.Log),
		Emitted: []trialChild{}, Progress: []trialProgress{}, MS: float64(t.took.Microseconds()) / 1000,
	}
	if r.Outcome == outcomeCrashed {
		row.Outcome, row.Ending = "crashed", ""
	}
	for _, c := range r.Emit {
		child := trialChild{c.Kind, c.Scope, c.Key, c.Fingerprint, c.Payload, report.Time{}, c.Priority}
		if c.DueUs != 0 {
			child.Due = report.Time(time.UnixMicro(c.DueUs))
		}
		row.Emitted = append(row.Emitted, child)
	}
	for _, pr := range t.progress {
		row.Progress = append(row.Progress, trialProgress{pr.Done, pr.Total, pr.Unit})
	}
	if out := a.Printer(); out.Format != report.Table {
		return out.Object(row)
	}
	return showTrialText(a, row)
}

// showTrialText prints the result for people.
func showTrialText(a *app.App, row trialRow) error {
	var b strings.Builder
	field := func(name, value string) {
		for line := range strings.SplitSeq(strings.TrimRight(value, "\n"), "\n") {
			if line != "" {
				fmt.Fprintf(&b, "%-8s %s\n", name, report.Safe(line))
				name = ""
			}
		}
	}
	outcome := row.Outcome
	if row.Final {
		outcome += " for good"
	}
	if row.DelayMS > 0 {
		outcome += fmt.Sprintf(", again after %v", time.Duration(row.DelayMS)*time.Millisecond)
	}
	if row.Ending != "" && row.Ending != "returned" {
		outcome += " (" + strings.ReplaceAll(row.Ending, "_", " ") + ")"
	}
	field("outcome", fmt.Sprintf("%s   %.1f ms   %s@%s", outcome, row.MS, row.Plugin, row.Version))
	field("key", row.Key)
	field("error", strings.TrimPrefix(row.Code+": "+row.Error, ": "))
	field("output", report.OneLine(row.Output))
	for _, c := range row.Emitted {
		field("emitted", fmt.Sprintf("%s %s %s", c.Kind, c.Key, report.OneLine(c.Payload)))
	}
	field("log", row.Log)
	_, err := io.WriteString(a.Stdout, b.String())
	return err
}
