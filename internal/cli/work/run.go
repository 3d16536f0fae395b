package work

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/intake"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// runFlags are the flags of run.
type runFlags struct {
	input.SourceFlags
	with        []string
	concurrency int
	wait        app.DurationFlag
}

func RunCommand(a *app.App) *cobra.Command {
	var r runFlags
	cmd := &cobra.Command{
		Use: "run KIND INPUT…", Short: "Add inputs, work them, and report what became of them", GroupID: app.GroupWork,
		Long: `Adds the inputs as items of KIND, works all items of KIND that can be worked now, and reports on the
inputs. The kind decides what INPUT is: files, folders and globs; or URLs, or a file that lists URLs; or
lines of text. Each plugin works a kind of its own name: ledgerd plugin ls lists them.

Give the same command again to continue. Items that are done stay done. New and changed inputs are
worked, and items that had failed for good are tried again. The command ends when every input has ended.
It does not wait for inputs that are due later than --wait from now. For inputs that other agents hold
it waits up to --wait. Ctrl-C stops claiming and finishes the running items; a second Ctrl-C stops
at once.

Exit 0 if every input is done, skipped or cancelled. Exit 3 if one is not, or could not be taken: an
unreadable folder in a named one, a name that cannot be stored, a bad line.

With -o json the report is one object: see "The summary of run" in docs/cli.md. With -o jsonl or csv,
run prints a row for each input when the input ends: id, key, state, outcome, attempt, code, error, ms
(how long it was worked), output. The summary is the last line of jsonl; with csv it goes to stderr.`,
		Example: `  ledgerd run filecsv ./inbox
  ledgerd run filecsv 'in/**/*.dat' --set delimiter=';' --set required=email,name
  ledgerd run urlcheck links.txt -o csv > checked.csv`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return failure.Usage("usage", "the plugins here, each of a kind of its own name: ledgerd plugin ls",
					"ledgerd run needs a kind\nusage: %s", cmd.UseLine())
			}
			return runKind(app.Traced(cmd.Context()), a, r, args[0], args[1:])
		},
	}
	r.Define(a, cmd)
	f := cmd.Flags()
	f.StringArrayVar(&r.with, "with", nil, "a field of the plugin's config, as `NAME=VALUE`; the config tells "+
		"what this machine allows and has; kept on this machine for the next command, NAME= takes it back; may be repeated")
	f.IntVarP(&r.concurrency, "concurrency", "j", 0, "`number` of items at a time (0: the plugin's default)")
	r.wait.Duration = time.Minute
	f.Var(&r.wait, "wait", "how long to wait for inputs that are due later, or that other agents hold")
	app.FromEnv(f, "wait")
	app.FromConfig(f, "concurrency")
	helpWithFields(a, cmd, &r.SourceFlags)
	return cmd
}

// inputRun is one call of run.
type inputRun struct {
	*input.Job
	flags   runFlags
	agent   string
	host    *pluginhost.Host
	worker  *worker.Worker
	tracker *runner.Tracker // of the inputs
	adder   *intake.Adder
	began   time.Time
	latest  runner.LatestProgress
	rows    *rowWriter
	waits   *WaitsLine
	// failing are the inputs that have failed and are tried again, the first of them at retryAt.
	failing report.Failures
	retryAt time.Time
}

// runKind adds the inputs of a kind, works them and reports on them.
func runKind(ctx context.Context, a *app.App, flags runFlags, name string, args []string) error {
	if err := checkConcurrency(flags.concurrency); err != nil {
		return err
	}
	if err := a.RememberWith(); err != nil {
		return err
	}
	r := &inputRun{flags: flags, agent: kinds.AgentName(), tracker: runner.NewTracker(), began: time.Now()}
	j, err := input.Prepare(ctx, a, flags.SourceFlags, name, args, func(k *kinds.Kind) error {
		if k.Plugin == nil {
			return a.NoPluginFor(ctx, k, "add items: ledgerd add "+name+" INPUT…")
		}
		if flags.DryRun {
			return nil
		}
		h, err := a.StartPlugin(ctx, k, flags.with, pluginhost.Config{Concurrency: flags.concurrency, Progress: r.latest.Set,
			// r.Ledger is opened after the plugin has started.
			LastOutput: func(ctx context.Context, id int64) ([]byte, error) { return r.Ledger.LastOutput(ctx, id) }})
		r.host = h
		return err
	})
	if r.host != nil {
		defer r.host.Close(kinds.StopGrace)
	}
	if err != nil {
		return err
	}
	defer j.Close()
	r.Job = j
	j.Source.Template.Again.Dead = true // inputs that are dead are tried again
	if flags.DryRun {
		d, err := j.Adder(ctx)
		p := a.Printer()
		if err == nil {
			err = eachRow(p, d, func() error { return d.Run(ctx) })
		}
		if err != nil {
			return err
		}
		return reportAdd(a, p, j, d)
	}
	before := j.Kind.Policy.Config
	if err := a.CheckDropped(j.Kind, r.host, flags.with); err != nil {
		return err
	}
	if err := a.DefineKind(ctx, j.Ledger.Any, kinds.AsAgent(r.agent), j.Kind, r.host); err != nil {
		return err
	}
	a.SayChanged(j.Kind, before, r.host.Config())
	if err := a.KeepWith(name, j.Kind.Plugin, flags.with); err != nil {
		return err
	}
	if err := j.Remember(ctx); err != nil {
		return err
	}
	if r.rows, err = newRowWriter(a.Printer(), j.Kind, r.tracker); err != nil {
		return err
	}
	err = r.work(ctx)
	return errors.Join(r.report(ctx, err), r.rows.close())
}

// work adds the inputs and works the kind until there is nothing left to wait for, or ctx ends.
func (r *inputRun) work(ctx context.Context) error {
	var err error
	r.worker, err = worker.New(worker.Config{
		Ledger: r.Ledger.Any, Handlers: map[string]worker.Handler{r.Kind.Name: r.host}, GiveUp: giveUpAfter,
		Agent: r.agent, Version: version.String(), Concurrency: r.App.Concurrency(r.Kind.Name, r.flags.concurrency),
		Grace: runGrace, Logger: r.App.Log, Observe: r.tracker.Observe, TracerProvider: r.App.TracerProvider(ctx),
	})
	if err != nil {
		return err
	}
	ctx, end := r.App.UntilAskedToStop(ctx)
	defer end()
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if r.adder, err = r.newAdder(ctx); err != nil {
		return err
	}
	added := make(chan error, 1)
	go func() { added <- r.Add(working, r.adder) }()
	defer func() {
		stop(nil)
		if added != nil {
			<-added
		}
	}()
	worked := make(chan error, 1)
	go func() { worked <- r.worker.Run(working) }()
	r.waits = &WaitsLine{Waits: &runner.Waits{Ledger: r.Ledger.Any, Kinds: []string{r.Kind.Name},
		Take: func(it ledger.Item) bool { return it.Agent == r.agent || r.tracker.IsOpen(it.ID) },
		Mine: func(agent string) bool { return agent == r.agent }}}
	p := r.App.StartProgress(r.progress)
	defer p.Stop()

	endAdding := func(err error) error {
		added = nil
		r.tracker.AllNamed()
		if err != nil && working.Err() == nil {
			stop(err)
		}
		return err
	}
	check := time.NewTimer(0)
	defer check.Stop()
	for {
		select {
		case err := <-added:
			if err := endAdding(err); err != nil {
				return errors.Join(r.stopWorker(worked), err)
			}
			check.Reset(0)
		case err := <-worked: // the worker ends by itself only if it cannot go on
			if err == nil {
				err = ctx.Err()
			}
			return err
		case <-ctx.Done():
			return r.stopWorker(worked)
		case <-r.rows.failed: // stdout cannot be written to any more
			stop(nil)
			return r.stopWorker(worked)
		case <-r.tracker.AllEnded:
			check.Reset(0)
		case <-check.C:
			over, err := r.over(ctx, added == nil)
			switch {
			case err != nil && ctx.Err() == nil && !errors.Is(err, ledger.ErrUnavailable): // else it checks again
				stop(err)
				return errors.Join(r.stopWorker(worked), err)
			case over:
				stop(nil)
				return r.stopWorker(worked)
			}
			check.Reset(lookEvery)
		}
	}
}

const (
	// runGrace is the grace of the worker. It is longer than any attempt: only stopWorker stops running items.
	runGrace = 30 * 24 * time.Hour
	// termGrace is how long running items may go on after SIGTERM. The system would soon kill this process anyway.
	termGrace = 30 * time.Second
	lookEvery = 250 * time.Millisecond
	// idleTime is how long nothing may change before the run assumes that its worker does not claim the ready items, for
	// example because the plugin crashes again and again. A worker looks for items every second.
	idleTime = 2500 * time.Millisecond
)

// stopWorker waits until the running items have ended. A second signal, or termGrace after SIGTERM, stops them.
func (r *inputRun) stopWorker(worked <-chan error) error {
	var late <-chan time.Time
	if r.App.Got.Load() == int32(syscall.SIGTERM) {
		late = time.After(termGrace)
	} else if r.App.Got.Load() != 0 {
		r.App.SayStopping()
	}
	select {
	case err := <-worked:
		return err
	case <-r.App.Hard.Done():
	case <-late:
	}
	r.worker.StopNow()
	return <-worked
}

// newAdder makes the adder of the job, and lets the tracker observe its calls.
func (r *inputRun) newAdder(ctx context.Context) (*intake.Adder, error) {
	d, err := r.Job.Adder(ctx)
	if err != nil {
		return nil, err
	}
	plain := d.Add
	d.Add = func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
		r.tracker.BeginAdd()
		added, err := plain(ctx, items)
		r.tracker.EndAdd(added)
		return added, err
	}
	return d, nil
}

// over reports whether the run has nothing left to do or to wait for. added: all inputs have been added.
func (r *inputRun) over(ctx context.Context, added bool) (bool, error) {
	if !added {
		return false, nil
	}
	total, left, changed := r.tracker.Progress()
	quiet := time.Since(changed)
	if left > 0 && quiet < lookEvery { // attempts are ending now
		return false, nil
	}
	mine, err := r.Ledger.Count(ctx, ledger.Filter{Kinds: []string{r.Kind.Name},
		States: []ledger.State{ledger.StateLeased}, Agents: []string{r.agent}})
	if err != nil || mine > 0 {
		return false, err
	}
	st, err := r.Ledger.Standing(ctx, r.Kind.Name)
	if err != nil || st.Ready > 0 && !r.Kind.Policy.Paused && quiet < idleTime {
		return false, err
	}
	if left == 0 || total == 0 {
		return true, nil
	}
	worth, err := r.worthWaiting(ctx, st.Now, quiet)
	return !worth, err
}

// page is how many inputs one query reads.
const page = 500

// worthWaiting reports whether an open input is worth waiting for: it is due within --wait; or it is ready or leased,
// and something has changed within --wait. quiet is the time since the last change. Inputs that other processes have
// ended meanwhile are passed to the tracker.
func (r *inputRun) worthWaiting(ctx context.Context, now time.Time, quiet time.Duration) (bool, error) {
	wait := r.flags.wait.Duration
	for ids := range slices.Chunk(r.tracker.OpenIDs(), page) {
		for it, err := range r.Ledger.List(ctx, ledger.IDs(ids...), 0) {
			if err != nil {
				return false, err
			}
			switch {
			case it.State == ledger.StateWaiting && it.RoundState == ledger.RoundOpen:
				if !it.Due.After(now.Add(wait)) {
					return true, nil
				}
			case it.State == ledger.StateReady, it.State == ledger.StateLeased:
				if quiet < wait && !r.Kind.Policy.Paused {
					return true, nil
				}
			default:
				r.tracker.RecordState(it)
			}
		}
	}
	return false, nil
}

// progress returns the progress for the display.
func (r *inputRun) progress() runner.Progress {
	t := r.tracker
	waits := ""
	if _, left, changed := t.Progress(); left > 0 && time.Since(changed) > idleTime {
		waits = r.App.Typed(r.waits.Text())
	}
	t.Mu.Lock()
	defer t.Mu.Unlock()
	p := runner.Progress{Waits: waits, Total: int64(len(t.Inputs)), Done: t.Counts[runner.Done] + t.Counts[runner.Skipped],
		Failed: t.Counts[runner.Dead] + t.Counts[runner.Doubt], Failing: t.Ended[ledger.OutcomeFailed]}
	for _, n := range t.Ended {
		p.Attempts += n
	}
	p.Ended = p.Total - t.Counts[runner.Open]
	p.Item = r.latest.Item()
	return p
}

// report prints how the inputs ended. err is the error of work; after a signal it is ignored.
func (r *inputRun) report(ctx context.Context, err error) error {
	interrupted := r.App.Got.Load() != 0
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !interrupted {
		return err
	}
	sum, err := r.summary(context.WithoutCancel(ctx), interrupted)
	if err != nil {
		return err
	}
	p := r.App.Printer()
	switch p.Format {
	case report.JSON:
		err = p.Object(sum)
	case report.JSONL:
		err = r.rows.last(sum)
	case report.Table:
		err = r.tell(context.WithoutCancel(ctx), p, sum)
	case report.CSV: // the summary is no row, so it goes to stderr
		if !r.App.Quiet {
			err = r.tell(context.WithoutCancel(ctx), p.To(r.App.Stderr), sum)
			if sum.Inputs.Total > 0 && len(r.tracker.Ended) == 0 {
				r.App.Advise(r.App.Stderr, "no rows: no input ended in this run; all answers: ledgerd ls --kind %s --all -o csv\n",
					sum.Kind)
			}
		}
	}
	if err != nil || sum.Exit == failure.ExitOK {
		return err
	}
	return failure.Status(sum.Exit)
}
