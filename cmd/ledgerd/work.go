package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
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

// crew is one call of work: the workers that it has started, one per set of kinds.
type crew struct {
	app    *app
	flags  workFlags
	ledger *opened
	me     ledger.Agent // the worker that the kinds taken up now are for
	now    nowAt

	mu      sync.Mutex
	hosts   map[string]*pluginhost.Host // by kind
	workers []*worker.Worker
	// elsewhere are the kinds that are not worked here, and why.
	elsewhere map[string]string
	outcomes  map[ledger.Outcome]int64
	dead      int64
	doubt     int64
	failed    int64
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
	c := &crew{app: a, flags: flags, ledger: l, hosts: map[string]*pluginhost.Host{}, elsewhere: map[string]string{}, outcomes: map[ledger.Outcome]int64{}}
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
	p := a.startProgress(c.progress)
	rep, err := c.run(ctx, handlers)
	p.stop()
	if err != nil {
		return err
	}
	return c.report(ctx, rep, began)
}

// takeUp finds the kinds to work that are not worked yet, starts their plugins and gives their handlers.
func (c *crew) takeUp(ctx context.Context) (map[string]worker.Handler, error) {
	names := c.flags.kinds
	if len(names) == 0 {
		kinds, err := c.ledger.Kinds(ctx)
		if err != nil {
			return nil, err
		}
		for _, k := range kinds {
			names = append(names, k.Name)
		}
	}
	handlers := map[string]worker.Handler{}
	c.me = asAgent(agentName())
	for _, name := range names {
		if c.hosts[name] != nil {
			continue
		}
		h, err := c.takeUpKind(ctx, name)
		switch {
		case err != nil && (len(c.flags.kinds) > 0 || ctx.Err() != nil):
			return nil, err
		case err != nil:
			c.leave(name, explain(err))
		default:
			handlers[name] = h
			delete(c.elsewhere, name)
		}
	}
	return handlers, nil
}

// leave notes a kind that is not worked here, and says so once. That people work one is no news.
func (c *crew) leave(name string, why *failure) {
	reason := strings.TrimPrefix(why.message, fmt.Sprintf("kind %q: ", name))
	if why.code == noPluginCode {
		reason = "no plugin"
	} else if c.elsewhere[name] == "" {
		c.app.logger().Warn("kind is not worked here", "kind", name, "error", reason)
	}
	c.elsewhere[name] = reason
}

// takeUpKind gives the host of a kind's plugin.
func (c *crew) takeUpKind(ctx context.Context, name string) (*pluginhost.Host, error) {
	a := c.app
	k, err := a.resolve(ctx, c.ledger.Ledger, name, "", c.flags.dirs)
	if err != nil {
		return nil, err
	}
	if k.plugin == nil {
		return nil, a.noPluginFor(ctx, k, c.flags.dirs, "plugins: ledgerd plugin ls")
	}
	h, err := a.startPlugin(ctx, k, c.flags.with, c.flags.concurrency, &c.now)
	if err != nil {
		return nil, err
	}
	if err := k.define(ctx, c.ledger.Ledger, c.me, h.Definition(), c.flags.with); err != nil {
		h.Close(stopGrace)
		return nil, err
	}
	c.me.Kinds[name] = h.Definition()
	c.mu.Lock()
	c.hosts[name] = h
	c.mu.Unlock()
	return h, nil
}

// newKindsEvery is how often work looks for kinds that have come to the ledger.
const newKindsEvery = 2 * time.Second

// run works until everything is done, or ctx ends.
func (c *crew) run(ctx context.Context, handlers map[string]worker.Handler) (worker.Report, error) {
	if c.flags.drain {
		w, err := c.hire(handlers)
		if err != nil {
			return worker.Report{}, err
		}
		defer c.watchSignals(ctx)()
		return w.Drain(ctx, c.flags.wait.Duration)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer c.watchSignals(ctx)()
	ended := make(chan error)
	running := 0
	start := func(handlers map[string]worker.Handler) error {
		if len(handlers) == 0 && running > 0 { // without any, one worker keeps the ledger in order
			return nil
		}
		w, err := c.hire(handlers)
		if err == nil {
			running++
			go func() { ended <- w.Run(ctx) }()
		}
		return err
	}
	failed := start(handlers)
	look := time.NewTicker(newKindsEvery)
	defer look.Stop()
	for failed == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case failed = <-ended: // nothing to be done any more, or --max-items
			running--
			stop()
		case <-look.C:
			if len(c.flags.kinds) > 0 || c.flags.maxItems > 0 {
				continue
			}
			handlers, err := c.takeUp(ctx)
			if err == nil {
				failed = start(handlers)
			} else if ctx.Err() == nil && !errors.Is(err, ledger.ErrUnavailable) {
				failed = err
			}
		}
	}
	stop()
	for ; running > 0; running-- {
		failed = errors.Join(failed, <-ended)
	}
	return worker.Report{}, failed
}

// hire makes a worker for these kinds.
func (c *crew) hire(handlers map[string]worker.Handler) (*worker.Worker, error) {
	kinds := map[string]worker.KindConfig{}
	for name := range handlers {
		kinds[name] = worker.KindConfig{Definition: c.hosts[name].Definition(), Concurrency: c.app.concurrency(name, c.flags.concurrency)}
	}
	f := c.flags
	w, err := worker.New(worker.Config{Ledger: c.ledger.Ledger, Handlers: handlers, Agent: c.me.Name, Version: programVersion(),
		Concurrency: f.concurrency, Kinds: kinds, Lease: f.lease.Duration, Shard: f.shard.Shard, MaxItems: f.maxItems, Grace: max(f.grace.Duration, time.Millisecond),
		GiveUp: f.giveUp(), Logger: c.app.logger(), Observe: c.observe})
	if err != nil {
		return nil, policyError(err)
	}
	c.mu.Lock()
	c.workers = append(c.workers, w)
	c.mu.Unlock()
	return w, nil
}

// watchSignals says what a signal does, and makes the second one end the grace.
func (c *crew) watchSignals(ctx context.Context) (stop func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-c.app.soft.Done():
			if c.app.got.Load() == int32(syscall.SIGINT) {
				c.app.sayStopping()
			}
		case <-ended:
			return
		}
		select {
		case <-c.app.hard.Done():
			c.mu.Lock()
			defer c.mu.Unlock()
			for _, w := range c.workers {
				w.StopNow()
			}
		case <-ended:
		}
	}()
	return func() { close(ended) }
}

func (c *crew) observe(e worker.Event) {
	observed(e)
	if !e.Accepted() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[e.Recorded]++
	switch {
	case e.State == ledger.StateDead:
		c.dead++
	case e.State == ledger.StateDoubt:
		c.doubt++
	}
	if e.Recorded == ledger.OutcomeFailed {
		c.failed++
	}
}

func (c *crew) progress() progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := progress{Done: c.outcomes[ledger.OutcomeDone] + c.outcomes[ledger.OutcomeSkipped], Failed: c.dead + c.doubt, Failing: c.failed}
	for _, n := range c.outcomes {
		p.attempts += n
	}
	p.Ended = p.Done + p.Failed
	p.Item = c.now.item()
	return p
}

func (c *crew) close() {
	for _, h := range c.hosts {
		h.Close(stopGrace)
	}
}

// countTime bounds how long the end of work waits for the counts of what is left.
const countTime = 5 * time.Second

// count says what is left of the kinds worked, unless a drain has said so, what of them has come into
// doubt meanwhile, and which kinds have something ready that is not worked here.
func (c *crew) count(ctx context.Context, rep *worker.Report, began time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), countTime)
	defer cancel()
	for name := range c.hosts {
		st, err := c.ledger.Standing(ctx, name)
		if err != nil {
			return err
		}
		// Whoever had it is dead: nobody else would say so.
		doubt, err := c.ledger.Count(ctx, ledger.Filter{Kinds: []string{name}, States: []ledger.State{ledger.StateDoubt}, Since: st.Now.Add(-time.Since(began))})
		if err != nil {
			return err
		}
		rep.Doubt += doubt
		if c.flags.drain {
			continue
		}
		rep.Ready += st.Ready
		rep.Waiting += st.Waiting
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
			others = append(others, fmt.Sprintf("%s (%s)", name, report.Safe(c.elsewhere[name])))
		}
	}
	if len(others) > 0 && !c.app.quiet {
		fmt.Fprintf(c.app.stderr, "not worked here: %s\n", strings.Join(others, ", "))
	}
	return nil
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
		NextDue: report.Time(rep.NextDue), Seconds: max(0.001, time.Since(began).Round(time.Millisecond).Seconds())}
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
	if err := one(a, s, line); err != nil || s.Exit == exitOK {
		return err
	}
	return status(s.Exit)
}
