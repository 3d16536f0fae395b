// Package work has the commands that fill a ledger, work it and serve it: run, add, work, serve, api, ui and lock.
// waits.go is what run and work tell while they wait, added.go what run and add tell of inputs, flags.go the flags of
// workers, serving.go how serve, api and ui answer requests.
package work

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// WorkCommand makes the command work.
func WorkCommand(a *app.App) *cobra.Command {
	var w workFlags
	cmd := &cobra.Command{
		Use: "work", Short: "Work what is in the ledger, with as many others as you like", GroupID: app.GroupWork,
		Args: app.Arguments(0, 0),
		Long: `Works items of the ledger: by default of every kind whose plugin is on this machine, also of kinds that
are new later. Any number of processes may work at once, on one machine or on many. With --drain it ends
when nothing is left to do now. Items that a rate of their kind holds back are left to do if the next one may begin
within a minute.

The summary with -o json: {"type":"summary","outcomes":{"done":…,"failed":…},"dead","doubt","ready",
"waiting","held","not_worked","next_due","seconds","per_second","exit"}. not_worked counts what is ready of kinds whose
plugin is here and did not begin. Exit 3 if an item died in this call, came into doubt meanwhile, or is left. ready,
waiting and not_worked are counted up to 100,000 for each kind.`,
		Example: "  ledgerd work\n  ledgerd work --drain --max-duration 14m        from cron, every 15 minutes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return work(cmd.Context(), a, w)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&w.kinds, "kind", nil, "only these `kinds`")
	a.PluginDirFlag(f)
	f.StringArrayVar(&w.with, "with", nil, "`NAME=VALUE` of the plugin's config, kept as by run; with one --kind")
	f.BoolVar(&w.drain, "drain", false, "end when nothing is left to do now")
	f.Var(&w.wait, "wait", "with --drain: how long to wait for what is due later")
	f.Var(&w.maxDuration, "max-duration", "stop claiming after this time")
	f.Var(&w.shard, "shard", "work only part i of n, from 0")
	w.lease.Duration = bounds.DefaultTTL
	f.Var(&w.lease, "lease", "how long an item stays with a worker that is not heard of, 5s to 24h")
	f.IntVarP(&w.concurrency, "concurrency", "j", 0, "`number` of items at a time, of each kind (0: the plugin's default)")
	w.grace.Duration = 30 * time.Second
	f.Var(&w.grace, "grace", "how long what runs may go on once it is to stop")
	for _, name := range []string{"shard", "lease", "concurrency", "grace"} {
		app.FromConfig(f, name)
	}
	return cmd
}

// workSummary is the summary of work as JSON.
type workSummary struct {
	Type      string                   `json:"type"`
	Outcomes  map[ledger.Outcome]int64 `json:"outcomes"`
	Dead      int64                    `json:"dead"`
	Doubt     int64                    `json:"doubt"`
	Ready     int64                    `json:"ready"`
	Waiting   int64                    `json:"waiting"`
	Held      int64                    `json:"held"`
	NotWorked int64                    `json:"not_worked"`
	NextDue   report.Time              `json:"next_due"`
	Seconds   float64                  `json:"seconds"`
	PerSecond float64                  `json:"per_second"`
	Exit      int                      `json:"exit"`
}

// whenReachable runs a step of the start. Without --drain it waits for a ledger that is unavailable. With --drain it
// does not: cron starts the command again.
func whenReachable(ctx context.Context, a *app.App, flags workFlags, step func() error) error {
	if flags.drain {
		return step()
	}
	return app.WhenReachable(ctx, a.Log, step)
}

func work(ctx context.Context, a *app.App, flags workFlags) error {
	if len(flags.with) > 0 && len(flags.kinds) != 1 {
		return failure.Usage("bad_flag", "one --kind, and its settings; another kind is worked by another process",
			"--with goes with one --kind")
	}
	if err := checkConcurrency(flags.concurrency); err != nil {
		return err
	}
	if err := a.RememberWith(); err != nil {
		return err
	}
	var l *app.Opened
	if err := whenReachable(ctx, a, flags, func() (err error) {
		l, err = a.Create(ctx)
		return err
	}); err != nil {
		return err
	}
	defer l.Close()
	p := runner.NewPool(&a.Local, l.Any, flags.options(ctx, a))
	defer p.Close()
	began := time.Now()
	if flags.maxDuration.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, flags.maxDuration.Duration)
		defer cancel()
	}
	ctx, end := a.UntilAskedToStop(ctx)
	defer end()
	if err := whenReachable(ctx, a, flags, func() error {
		if err := app.FieldError(p.Register(ctx), "invalid", nil); err != nil {
			return err
		}
		return p.StartAll(ctx)
	}); err != nil {
		return err
	}
	kinds := p.KindsHere()
	if len(kinds) == 0 && flags.drain { // no worker runs that would end expired leases
		if _, err := l.Expire(ctx, bounds.MaxBatch); err != nil {
			return err
		}
		return reportWork(ctx, a, p, nil, worker.Report{}, began)
	}
	if !flags.drain && !a.Quiet {
		sayIdle(ctx, a, l.Any, kinds, flags.shard.Shard)
	}
	look := p.Progress
	var waits *WaitsLine
	if flags.drain {
		waits = &WaitsLine{Waits: p.WaitsFor()}
		look = func() runner.Progress {
			now := p.Progress()
			now.Waits = a.Typed(waits.Text())
			return now
		}
	}
	s := a.StartProgress(look)
	rep, err := workUntil(ctx, a, p)
	s.Stop()
	if err != nil {
		return err
	}
	if a.Got.Load() != 0 {
		fmt.Fprintln(a.Notices, "stopped")
	}
	return reportWork(ctx, a, p, waits, rep, began)
}

// workUntil works until ctx ends or, with --drain, nothing is left to do now.
func workUntil(ctx context.Context, a *app.App, p *runner.Pool) (worker.Report, error) {
	defer context.AfterFunc(a.Soft, func() {
		if a.Got.Load() == int32(syscall.SIGINT) {
			a.SayStopping()
		}
	})()
	if p.UntilIdle {
		rep, err := p.Drain(ctx)
		return rep, app.FieldError(err, "invalid", nil)
	}
	return worker.Report{}, app.FieldError(p.Run(ctx), "invalid", nil)
}

// countTime bounds how long the end of work waits for the counts of what is left.
const countTime = 5 * time.Second

// unworked counts what is ready of kinds that are not worked here.
type unworked struct {
	wanted int64 // of kinds whose plugin is here and did not start
	others int64 // of kinds for people or other machines
}

// countLeft completes rep with what is left, and counts and names the kinds with ready items that are not worked here.
func countLeft(ctx context.Context, a *app.App, p *runner.Pool, rep *worker.Report, began time.Time) (left unworked,
	err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTime)
	defer cancel()
	if err := p.Left(ctx, rep, began); err != nil {
		return left, err
	}
	var kinds []string
	for _, n := range p.NotWorked() {
		st, err := p.Ledger.Standing(ctx, n.Kind)
		if err != nil {
			return left, err
		}
		if st.Ready == 0 {
			continue
		}
		if n.Wanted {
			left.wanted += st.Ready
		} else {
			left.others += st.Ready
		}
		kinds = append(kinds, fmt.Sprintf("%s (%s)", n.Kind, report.Safe(n.Reason)))
	}
	if len(kinds) > 0 && !a.Quiet {
		fmt.Fprintf(a.Stderr, "not worked here: %s\n", strings.Join(kinds, ", "))
	}
	return left, nil
}

// reportWork prints what this call did and what is left. waits is nil without --drain.
func reportWork(ctx context.Context, a *app.App, p *runner.Pool, waits *WaitsLine, rep worker.Report,
	began time.Time) error {
	rep.Doubt = 0 // Drain's count is of attempts; countLeft adds the items in doubt since began
	left, err := countLeft(ctx, a, p, &rep, began)
	if err != nil {
		a.Log.Warn("what is left could not be counted", "error", failure.Explain(err).Message)
	}
	did := p.Results()
	s := workSummary{Type: "summary", Outcomes: did.Outcomes, Dead: did.Dead, Doubt: max(did.Doubt, rep.Doubt),
		Ready: rep.Ready, Waiting: rep.Waiting, Held: rep.Held, NotWorked: left.wanted,
		NextDue: report.Time(rep.NextDue), Seconds: max(0.001, report.InSeconds(time.Since(began)))}
	s.PerSecond = float64(int64(10*float64(did.Attempts)/s.Seconds)) / 10
	switch sig := a.Got.Load(); {
	case sig != 0:
		s.Exit = 128 + int(sig)
	case s.Dead+s.Doubt+s.Ready+s.Waiting+s.Held+s.NotWorked > 0:
		s.Exit = failure.ExitUnfinished
	case did.Attempts == 0 && a.ErrorOnEmpty:
		s.Exit = failure.ExitEmpty
	}
	var line string
	for _, o := range slices.Sorted(maps.Keys(did.Outcomes)) {
		line += fmt.Sprintf("%s %s   ", o, report.Count(did.Outcomes[o]))
	}
	for _, part := range []struct {
		name string
		n    int64
		most int64 // up to which it is counted; 0: exactly
	}{{"dead", s.Dead, 0}, {"doubt", s.Doubt, 0}, {"left ready", s.Ready, stats.StandingCap}, {"left waiting", s.Waiting,
		stats.StandingCap}, {"held by others", s.Held, 0}, {"not worked here", s.NotWorked, stats.StandingCap}} {
		switch {
		case part.most > 0 && part.n >= part.most:
			line += fmt.Sprintf("%s ≥%s   ", part.name, report.Count(part.n))
		case part.n > 0:
			line += fmt.Sprintf("%s %s   ", part.name, report.Count(part.n))
		}
	}
	line += report.Seconds(time.Since(began))
	switch {
	case did.Attempts > 0 || left.wanted > 0:
	case left.others > 0:
		line = "nothing to do here   " + line
	default:
		line = "nothing to do   " + line
	}
	if s.Exit != failure.ExitOK {
		line += fmt.Sprintf("    exit %d", s.Exit)
	}
	if waits != nil && s.Held > 0 {
		if holders, _, err := waits.Waits.Holders(context.WithoutCancel(ctx)); err == nil && len(holders) > 0 {
			line += "\n" + a.Typed(holdersText(holders))
		}
	}
	if err := app.One(a, s, line); err != nil || s.Exit == failure.ExitOK {
		return err
	}
	return failure.Status(s.Exit)
}
