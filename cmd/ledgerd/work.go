package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// workFlags are the flags of work.
type workFlags struct {
	kinds       []string
	dirs        pluginDirs
	with        []string
	drain       bool
	wait        duration
	maxDuration duration
	maxItems    int
	shard       shard
	lease       duration
	concurrency int
	grace       duration
}

// giveUpAfter is how long a command that is to end waits for a ledger that is away.
const giveUpAfter = 30 * time.Second

// giveUp: only a worker that runs for ever waits for ever.
func (w *workFlags) giveUp() time.Duration {
	if w.drain {
		return giveUpAfter
	}
	return 0
}

func (a *app) workCommand() *cobra.Command {
	var w workFlags
	cmd := &cobra.Command{
		Use: "work", Short: "Work what is in the ledger, with as many others as you like", GroupID: groupWork, Args: arguments(0, 0),
		Long: `Works items of the ledger, by default of every kind whose plugin is known here; kinds that come
later are taken up as well. Any number of processes may do so at once, on one machine or on many.
With --drain it ends when nothing is left to do now.

The summary with -o json: {"type":"summary","outcomes":{"done":…,"failed":…},"dead","doubt","ready",
"waiting","held","next_due","seconds","per_second","exit"}. Exit 3 if something is dead by what
this call did, has come into doubt meanwhile, or is left.`,
		Example: "  ledgerd work\n  ledgerd work --drain --max-duration 14m        from cron, every 15 minutes",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.work(cmd.Context(), w)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&w.kinds, "kind", nil, "only these `kinds`")
	w.dirs.define(f)
	f.StringArrayVar(&w.with, "with", nil, "`NAME=VALUE` of the plugin's config; with one --kind")
	f.BoolVar(&w.drain, "drain", false, "end when nothing is left to do now")
	f.Var(&w.wait, "wait", "with --drain: how long to wait for what is due later")
	f.Var(&w.maxDuration, "max-duration", "stop claiming after this time")
	f.IntVar(&w.maxItems, "max-items", 0, "end after this `number` of items (0: no limit)")
	f.Var(&w.shard, "shard", "work only part i of n, from 0")
	w.lease.Duration = time.Minute
	f.Var(&w.lease, "lease", "how long an item stays with a worker that is not heard of, 5s to 24h")
	f.IntVarP(&w.concurrency, "concurrency", "j", 0, "`number` of items at a time, of each kind (0: as the plugin says)")
	w.grace.Duration = 30 * time.Second
	f.Var(&w.grace, "grace", "how long what runs may go on once it is to stop")
	for _, name := range []string{"shard", "lease", "concurrency", "grace"} {
		fromConfig(f, name)
	}
	return cmd
}

// workSummary is what work ends with.
type workSummary struct {
	Type      string                   `json:"type"`
	Outcomes  map[ledger.Outcome]int64 `json:"outcomes"`
	Dead      int64                    `json:"dead"`
	Doubt     int64                    `json:"doubt"`
	Ready     int64                    `json:"ready"`
	Waiting   int64                    `json:"waiting"`
	Held      int64                    `json:"held"`
	NextDue   report.Time              `json:"next_due"`
	Seconds   float64                  `json:"seconds"`
	PerSecond float64                  `json:"per_second"`
	Exit      int                      `json:"exit"`
}

func (a *app) work(ctx context.Context, flags workFlags) error {
	if len(flags.with) > 0 && len(flags.kinds) != 1 {
		return usage("bad_flag", "one --kind, and its settings; another kind is worked by another process", "--with goes with one --kind")
	}
	if err := checkConcurrency(flags.concurrency); err != nil {
		return err
	}
	l, err := a.create(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	c := newCrew(a, l, flags)
	defer c.close()
	began := time.Now()
	if flags.maxDuration.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, flags.maxDuration.Duration)
		defer cancel()
	}
	handlers, err := c.takeUp(ctx)
	if err != nil {
		return err
	}
	if len(handlers) == 0 && flags.drain {
		// Whoever looks after a ledger takes back what is expired, of whatever kind.
		if _, err := l.Expire(ctx, ledger.MaxBatch); err != nil {
			return err
		}
		return c.report(ctx, worker.Report{}, began)
	}
	if !flags.drain && !a.quiet {
		c.sayIdle(ctx, handlers)
	}
	if flags.drain {
		c.waits = c.waitsOf(handlers)
	}
	p := a.startProgress(c.progress)
	rep, err := c.run(ctx, handlers)
	p.stop()
	if err != nil {
		return err
	}
	return c.report(ctx, rep, began)
}

// countTime bounds how long the end of work waits for the counts of what is left.
const countTime = 5 * time.Second

// count says what is left of the kinds worked, unless a drain has said so, what of them has come into
// doubt meanwhile, and which kinds have something ready that is not worked here.
func (c *crew) count(ctx context.Context, rep *worker.Report, began time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTime)
	defer cancel()
	for name := range c.hosts {
		st, err := c.ledger.StandingIn(ctx, name, c.flags.shard.Shard)
		if err != nil {
			return err
		}
		// Whoever had it is dead: nobody else would say so.
		doubt, err := c.countOwn(ctx, ledger.Filter{Kinds: []string{name}, States: []ledger.State{ledger.StateDoubt}, Since: st.Now.Add(-time.Since(began))})
		if err != nil {
			return err
		}
		rep.Doubt += doubt
		over, err := c.countOwn(ctx, ledger.Filter{Kinds: []string{name}, States: []ledger.State{ledger.StateWaiting}, Rounds: []ledger.RoundState{ledger.RoundDone, ledger.RoundFailed}})
		if err != nil {
			return err
		}
		rep.Waiting -= min(over, rep.Waiting)
		if c.flags.drain {
			continue
		}
		rep.Ready += st.Ready
		rep.Waiting += st.Waiting - min(over, st.Waiting)
		rep.Held += st.Held + st.Persons
		if !st.NextDue.IsZero() && (rep.NextDue.IsZero() || st.NextDue.Before(rep.NextDue)) {
			rep.NextDue = st.NextDue
		}
	}
	var others []string
	for _, name := range slices.Sorted(maps.Keys(c.elsewhere)) {
		st, err := c.ledger.Standing(ctx, name)
		if err != nil {
			return err
		}
		if st.Ready > 0 {
			others = append(others, fmt.Sprintf("%s (%s)", name, report.Safe(c.elsewhere[name].reason)))
		}
	}
	if len(others) > 0 && !c.app.quiet {
		fmt.Fprintf(c.app.stderr, "not worked here: %s\n", strings.Join(others, ", "))
	}
	return nil
}

// countOwn counts the items of the own shard that match.
func (c *crew) countOwn(ctx context.Context, f ledger.Filter) (n int64, err error) {
	if c.flags.shard.Count == 0 {
		return c.ledger.Count(ctx, f)
	}
	for it, err := range c.ledger.List(ctx, f, 0) {
		if err != nil {
			return n, err
		}
		if c.flags.shard.Covers(it.Slot) {
			n++
		}
	}
	return n, nil
}

// report says what this call did and what is left.
func (c *crew) report(ctx context.Context, rep worker.Report, began time.Time) error {
	rep.Doubt = 0
	if err := c.count(ctx, &rep, began); err != nil {
		c.app.logger().Warn("what is left could not be counted", "error", explain(err).message)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.app
	s := workSummary{Type: "summary", Outcomes: c.outcomes, Dead: c.dead, Doubt: max(c.doubt, rep.Doubt), Ready: rep.Ready, Waiting: rep.Waiting, Held: rep.Held,
		NextDue: report.Time(rep.NextDue), Seconds: max(0.001, inSeconds(time.Since(began)))}
	var attempts int64
	for _, n := range c.outcomes {
		attempts += n
	}
	s.PerSecond = float64(int64(10*float64(attempts)/s.Seconds)) / 10
	switch sig := a.got.Load(); {
	case sig != 0:
		s.Exit = 128 + int(sig)
	case s.Dead+s.Doubt+s.Ready+s.Waiting+s.Held > 0:
		s.Exit = exitUnfinished
	case attempts == 0 && a.errorOnEmpty:
		s.Exit = exitEmpty
	}
	var line string
	for _, o := range slices.Sorted(maps.Keys(c.outcomes)) {
		line += fmt.Sprintf("%s %s   ", o, report.Count(c.outcomes[o]))
	}
	for _, part := range []struct {
		name string
		n    int64
	}{{"dead", s.Dead}, {"doubt", s.Doubt}, {"left ready", s.Ready}, {"left waiting", s.Waiting}, {"held by others", s.Held}} {
		if part.n > 0 {
			line += fmt.Sprintf("%s %s   ", part.name, report.Count(part.n))
		}
	}
	line += seconds(time.Since(began))
	if attempts == 0 {
		line = "nothing to do   " + line
	}
	if s.Exit != exitOK {
		line += fmt.Sprintf("    exit %d", s.Exit)
	}
	if c.waits != nil && s.Held > 0 {
		if holders, _, err := c.waits.holders(context.WithoutCancel(ctx)); err == nil && len(holders) > 0 {
			line += "\n" + waitsFor(a.printer(), holders)
		}
	}
	if err := one(a, s, line); err != nil || s.Exit == exitOK {
		return err
	}
	return status(s.Exit)
}
