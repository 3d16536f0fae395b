package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// runFlags are the flags of run.
type runFlags struct {
	sourceFlags
	with        []string
	concurrency int
	timeout     duration
	wait        duration
	maxDuration duration
	shard       shard
}

func (a *app) runCommand() *cobra.Command {
	var r runFlags
	cmd := &cobra.Command{
		Use: "run KIND INPUT…", Short: "Add inputs, work them, and report what became of them", GroupID: groupWork,
		Long: `Adds the inputs, works everything of KIND that can be worked now, and reports on the inputs.
What INPUT is depends on the kind: files, folders and globs; URLs or a file with a list of them;
lines of text. Without KIND it lists the kinds there are here; in other formats, as plugin ls does.

The same command again goes on where the last one ended: what is done stays done, what is new or
changed is worked, what had failed for good is tried again. It returns when every input has
ended, or the rest is due, or held by others, for longer than --wait. Ctrl-C stops claiming and
finishes what runs; a second one stops at once.

Exit 0 if every input is done or skipped, else 3. With --shard this is about the inputs of the own part.

With -o json the report is one object (see docs/cli.md); with -o jsonl or csv there is a row for
each input when it ends: id, key, state, outcome, attempt, code, error, ms, output; with jsonl
the last line is the summary, with csv it is told on stderr.`,
		Example: `  ledgerd run filecsv ./inbox
  ledgerd run filecsv 'in/**/*.dat' --set delimiter=';' --set required=email,name
  ledgerd run urlcheck links.txt -o csv > checked.csv`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return a.listKinds(cmd.Context(), r.dirs)
			}
			return a.runKind(cmd.Context(), r, args[0], args[1:])
		},
	}
	r.define(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&r.with, "with", nil, "`NAME=VALUE` of the plugin's config: what this machine allows and has; repeated")
	f.IntVarP(&r.concurrency, "concurrency", "j", 0, "`number` of items at a time (0: as the plugin says)")
	f.Var(&r.timeout, "timeout", "of one attempt (default: as the kind says)")
	r.wait.Duration = time.Minute
	f.Var(&r.wait, "wait", "how long to wait for inputs that are due later or held by others")
	f.Var(&r.maxDuration, "max-duration", "stop claiming after this time")
	f.Var(&r.shard, "shard", "work only part i of n, from 0")
	fromEnv(f, "wait")
	fromConfig(f, "concurrency")
	a.helpWithFields(cmd, &r.sourceFlags)
	return cmd
}

func checkConcurrency(n int) error {
	if n < 0 {
		return usage("bad_flag", "", "--concurrency (-j) %d: must not be negative", n)
	}
	return nil
}

// process is this process, for the journal.
func process() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return fmt.Sprintf("%.200s/%d", host, os.Getpid())
}

// asAgent is this process under a name of its own.
func asAgent(name string) ledger.Agent {
	host, _ := os.Hostname() // "" says that it is not known
	return ledger.Agent{Name: name, Host: host, PID: os.Getpid(), Process: ledger.ThisProcess(), Version: programVersion(), Kinds: map[string]string{},
		Configs: map[string]string{}}
}

// agentName is a name that no other process has had.
func agentName() string { return fmt.Sprintf("%s/%06x", process(), rand.IntN(1<<24)) }

// runner is one run.
type runner struct {
	*job
	flags   runFlags
	agent   string
	host    *pluginhost.Host
	worker  *worker.Worker
	tracker *tracker
	adder   *adder
	began   time.Time
	now     nowAt
	rows    *rowWriter
	waits   *waits
	// failing are inputs that have failed and are tried again, the first of them at retryAt.
	failing report.Failures
	retryAt time.Time
}

func (a *app) runKind(ctx context.Context, flags runFlags, name string, args []string) error {
	if err := checkConcurrency(flags.concurrency); err != nil {
		return err
	}
	r := &runner{flags: flags, agent: agentName(), tracker: newTracker(), began: time.Now()}
	j, err := a.prepare(ctx, flags.sourceFlags, name, args, func(k *kind) error {
		if k.plugin == nil {
			return a.noPluginFor(ctx, k, flags.dirs, "add items: ledgerd add "+name+" INPUT…")
		}
		if flags.dryRun {
			return nil
		}
		h, err := a.startPlugin(ctx, k, flags.with, pluginhost.Config{Concurrency: flags.concurrency, Progress: r.now.set,
			LastOutput: func(ctx context.Context, id int64) ([]byte, error) { return r.ledger.LastOutput(ctx, id) }}) // it may not be there yet
		r.host = h
		return err
	})
	if r.host != nil {
		defer r.host.Close(stopGrace)
	}
	if err != nil {
		return err
	}
	defer j.close()
	r.job = j
	j.source.Template.Again.Dead = true // whoever names an input wants it worked
	if flags.dryRun {
		d, err := j.adder(ctx)
		if err == nil {
			err = d.run(ctx)
		}
		if err != nil {
			return err
		}
		return a.reportAdd(a.printer(), j, d)
	}
	r.tracker.sums = newSums(j.kind.plugin.Output)
	before := j.kind.policy.Config
	if err := a.define(ctx, j.ledger.Ledger, asAgent(r.agent), j.kind, r.host); err != nil {
		return err
	}
	a.sayChanged(j.kind, before, r.host.Config())
	if err := j.kind.remember(ctx, j.ledger.Ledger, flags.set); err != nil {
		return err
	}
	if r.rows, err = newRowWriter(a.printer(), j.kind, r.tracker); err != nil {
		return err
	}
	err = r.work(ctx)
	return errors.Join(r.report(ctx, err), r.rows.close())
}

// work adds and works until there is nothing left to wait for, or ctx ends. What it returns is
// why it could not go on.
func (r *runner) work(ctx context.Context) error {
	if r.flags.maxDuration.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.flags.maxDuration.Duration)
		defer cancel()
	}
	var err error
	r.worker, err = worker.New(worker.Config{
		Ledger: r.ledger.Ledger, Handlers: map[string]worker.Handler{r.kind.name: r.host}, GiveUp: giveUpAfter, Agent: r.agent, Version: programVersion(),
		Concurrency: r.app.concurrency(r.kind.name, r.flags.concurrency), Shard: r.flags.shard.Shard, Grace: runGrace, Logger: r.app.logger(), Observe: r.tracker.observe,
		Kinds: map[string]worker.KindConfig{r.kind.name: {Timeout: r.flags.timeout.Duration}},
	})
	if err != nil {
		return err
	}
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if r.adder, err = r.newAdder(ctx); err != nil {
		return err
	}
	added := make(chan error, 1)
	go func() { added <- r.adder.run(working) }()
	defer func() {
		stop(nil)
		if added != nil {
			<-added
		}
	}()
	worked := make(chan error, 1)
	go func() { worked <- r.worker.Run(working) }()
	r.waits = &waits{ledger: r.ledger.Ledger, kinds: []string{r.kind.name}, shard: r.flags.shard.Shard, take: func(it ledger.Item) bool { return it.Agent == r.agent || r.tracker.isOpen(it.ID) },
		mine: func(agent string) bool { return agent == r.agent }}
	p := r.app.startProgress(r.progress)
	defer p.stop()

	endAdding := func(err error) error {
		added = nil
		r.tracker.allNamed()
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
		case err := <-worked: // it ends by itself only if it cannot go on
			if err == nil {
				err = ctx.Err()
			}
			return err
		case <-ctx.Done():
			return r.stopWorker(worked)
		case <-r.rows.failed: // nobody reads on
			stop(nil)
			return r.stopWorker(worked)
		case <-r.tracker.quiet:
			check.Reset(0)
		case <-check.C:
			over, err := r.over(ctx, added == nil)
			switch {
			case err != nil && ctx.Err() == nil && !errors.Is(err, ledger.ErrUnavailable): // which the worker waits for
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
	// runGrace: what runs is finished, however long it takes; see stopWorker.
	runGrace = 30 * 24 * time.Hour
	// termGrace is for SIGTERM, after which the system would soon kill us anyway.
	termGrace = 30 * time.Second
	lookEvery = 250 * time.Millisecond
	// idleTime is how long nothing must have happened for what is ready not to be for us: the plugin
	// is not up to it. A worker looks every second.
	idleTime = 2500 * time.Millisecond
)

// stopWorker waits until what runs has ended. A second signal stops it.
func (r *runner) stopWorker(worked <-chan error) error {
	var late <-chan time.Time
	if r.app.got.Load() == int32(syscall.SIGTERM) {
		late = time.After(termGrace)
	} else if r.app.got.Load() != 0 {
		r.app.sayStopping()
	}
	select {
	case err := <-worked:
		return err
	case <-r.app.hard.Done():
	case <-late:
	}
	r.worker.StopNow()
	return <-worked
}

// newAdder adds the inputs and tells the tracker.
func (r *runner) newAdder(ctx context.Context) (*adder, error) {
	d, err := r.job.adder(ctx)
	if err != nil {
		return nil, err
	}
	plain := d.add
	d.add = func(ctx context.Context, items []ledger.NewItem) ([]ledger.Added, error) {
		r.tracker.beginAdd()
		added, err := plain(ctx, items)
		theirs, failed := r.ofOtherShards(ctx, added)
		r.tracker.endAdd(added, theirs)
		return added, errors.Join(err, failed)
	}
	return d, nil
}

// ofOtherShards are those of the items that this run leaves to others.
func (r *runner) ofOtherShards(ctx context.Context, added []ledger.Added) (map[int64]bool, error) {
	theirs := map[int64]bool{}
	if r.flags.shard.Count == 0 {
		return theirs, nil
	}
	for part := range slices.Chunk(added, page) {
		ids := make([]int64, len(part))
		for i, a := range part {
			ids[i] = a.ID
		}
		for it, err := range r.ledger.List(ctx, ledger.IDs(ids...), 0) {
			if err != nil {
				return theirs, err
			}
			if !r.flags.shard.Covers(it.Slot) {
				theirs[it.ID] = true
			}
		}
	}
	return theirs, nil
}

// over says whether the run has nothing left to do or to wait for.
func (r *runner) over(ctx context.Context, added bool) (bool, error) {
	if !added {
		return false, nil
	}
	total, left, changed := r.tracker.progress()
	quiet := time.Since(changed)
	if left > 0 && quiet < lookEvery { // busy
		return false, nil
	}
	mine, err := r.ledger.Count(ctx, ledger.Filter{Kinds: []string{r.kind.name}, States: []ledger.State{ledger.StateLeased}, Agents: []string{r.agent}})
	if err != nil || mine > 0 {
		return false, err
	}
	st, err := r.ledger.StandingIn(ctx, r.kind.name, r.flags.shard.Shard)
	if err != nil || st.Ready > 0 && !r.kind.policy.Paused && quiet < idleTime {
		return false, err
	}
	if left == 0 || total == 0 {
		return true, nil
	}
	worth, err := r.worthWaiting(ctx, st.Now, quiet)
	return !worth, err
}

// page is how many inputs are asked about at a time.
const page = 500

// worthWaiting looks at inputs that are open until it finds one that is worth waiting for: due
// within --wait, or ready or held by others and --wait not over. What has ended meanwhile, by
// the hand of others, is noted.
func (r *runner) worthWaiting(ctx context.Context, now time.Time, quiet time.Duration) (bool, error) {
	wait := r.flags.wait.Duration
	ids := r.tracker.opens()
	for len(ids) > 0 {
		n := min(page, len(ids))
		for it, err := range r.ledger.List(ctx, ledger.IDs(ids[:n]...), 0) {
			if err != nil {
				return false, err
			}
			switch {
			case it.State == ledger.StateWaiting && it.RoundState == ledger.RoundOpen:
				if !it.Due.After(now.Add(wait)) {
					return true, nil
				}
			case it.State == ledger.StateReady, it.State == ledger.StateLeased:
				if quiet < wait && !r.kind.policy.Paused {
					return true, nil
				}
			default:
				r.tracker.settle(it)
			}
		}
		ids = ids[n:]
	}
	return false, nil
}

// progress is where the run is, for who watches.
func (r *runner) progress() progress {
	t := r.tracker
	waits := ""
	if _, left, changed := t.progress(); left > 0 && time.Since(changed) > idleTime {
		waits = r.waits.line(r.app.printer())
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := progress{Waits: waits, Total: int64(len(t.inputs)), Done: t.counts[done] + t.counts[skipped], Failed: t.counts[dead] + t.counts[doubt], Failing: t.ended[ledger.OutcomeFailed]}
	for _, n := range t.ended {
		p.attempts += n
	}
	p.Ended = p.Total - t.counts[open]
	p.Item = r.now.item()
	return p
}

// report says what became of the inputs. err is why the run ended early; a signal is none.
func (r *runner) report(ctx context.Context, err error) error {
	interrupted := r.app.got.Load() != 0
	if err != nil && !errors.Is(err, context.DeadlineExceeded) && !interrupted {
		return err
	}
	sum, err := r.summary(context.WithoutCancel(ctx), interrupted)
	if err != nil {
		return err
	}
	p := r.app.printer()
	switch p.Format {
	case report.JSON:
		err = p.Object(sum)
	case report.JSONL:
		err = r.rows.last(sum)
	case report.Table:
		err = r.tell(context.WithoutCancel(ctx), p, sum)
	case report.CSV: // which has no place for it
		if !r.app.quiet {
			err = r.tell(context.WithoutCancel(ctx), p.To(r.app.stderr), sum)
		}
	}
	if err != nil || sum.Exit == exitOK {
		return err
	}
	return status(sum.Exit)
}
