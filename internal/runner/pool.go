// Package runner works kinds of a ledger in one process: a Pool of workers and plugin processes that follows the
// ledger and the config while it runs, and a Tracker of chosen items. Commands and the daemon use it.
package runner

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// PoolOptions are what a pool works, and how.
type PoolOptions struct {
	// Kinds are worked and no others; one that cannot be worked ends the pool. Without any, every kind is worked
	// that Wanted names, and one that cannot be worked is tried again later.
	Kinds []string
	// With are settings of the plugin, as NAME=VALUE.
	With []string
	// UntilIdle ends the pool when nothing is left to do now, or due within Wait.
	UntilIdle   bool
	Wait        time.Duration
	Shard       scheduler.Shard
	Lease       time.Duration
	Grace       time.Duration
	GiveUp      time.Duration // see worker.Config
	Concurrency int           // of each kind; 0: the config's or the plugin's
	// Name of the first worker; "" is one that no other process has.
	Name string
	// Stop is done when what runs is to be stopped at once.
	Stop context.Context
	// Wanted names the kinds to work. Nil: all of the ledger.
	Wanted func(context.Context) ([]string, error)
	// The others may be nil. Ended gets every attempt that has ended, Upgraded is called after plugins were
	// replaced, Changed after kinds were taken up or could not be.
	Ended    func(worker.Event)
	Upgraded func(context.Context)
	Changed  func(context.Context)
	Meter    worker.Meter
	Tracer   trace.TracerProvider // see worker.Config
}

// Pool is the workers of one process and the plugins that they work with. Kinds that are taken up together
// share a worker: they are a group.
type Pool struct {
	PoolOptions
	local   *kinds.Local
	Ledger  ledgers.Any
	now     LatestProgress
	calls   chan func() // run by the goroutine of run, between two looks for kinds
	workers int         // number in the name of the newest one

	mu     sync.Mutex
	Agent  ledger.Agent // of the worker for the kinds that are taken up next
	taken  bool         // there is a worker with the name of agent
	hosts  map[string]*pluginhost.Host
	groups []*workerGroup
	// upgrades are versions of plugins that could not take over, by kind.
	upgrades map[string]upgrade
	// Reread means that the config was read anew: plugins whose settings have changed get the new
	// ones.
	Reread bool
	// absences are the kinds that are not worked here, and why; starting those whose plugins are being started;
	// known what was last found out about a kind.
	absences map[string]absence
	starting map[string]bool
	known    map[string]*kinds.Kind
	outcomes map[ledger.Outcome]int64
	dead     int64
	doubt    int64
	failed   int64
}

// workerGroup is a worker and its kinds.
type workerGroup struct {
	worker   *worker.Worker
	handlers map[string]worker.Handler
	agent    ledger.Agent
	stop     context.CancelFunc
	dropped  []string // kinds for which it stops; the others get a new worker
}

func NewPool(lc *kinds.Local, l ledgers.Any, o PoolOptions) *Pool {
	lc.Policies = &kinds.PolicyWriter{Name: cmp.Or(o.Name, kinds.Process()), Written: map[string]*config.Kind{}}
	p := &Pool{PoolOptions: o, local: lc, Ledger: l, calls: make(chan func()), hosts: map[string]*pluginhost.Host{},
		upgrades: map[string]upgrade{},
		absences: map[string]absence{}, starting: map[string]bool{}, known: map[string]*kinds.Kind{},
		outcomes: map[ledger.Outcome]int64{}}
	p.Name = cmp.Or(p.Name, kinds.AgentName())
	switch {
	case len(o.Kinds) > 0:
		p.Wanted = func(context.Context) ([]string, error) { return o.Kinds, nil }
	case o.Wanted == nil:
		p.Wanted = func(ctx context.Context) ([]string, error) { return KindNames(ctx, l) }
	}
	return p
}

// strict reports whether a kind that cannot be worked is an error.
func (p *Pool) strict() bool { return len(p.Kinds) > 0 }

// follows reports whether kinds that come to be wanted later are taken up, and others dropped.
func (p *Pool) follows() bool { return len(p.Kinds) == 0 }

// KindNames are the kinds that a ledger knows.
func KindNames(ctx context.Context, l ledgers.Any) (names []string, err error) {
	kinds, err := l.Kinds(ctx)
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names, err
}

// newKindsEvery is how often a pool looks for kinds that have come to the ledger.
const newKindsEvery = 2 * time.Second

// hostConfig is what each plugin process gets from the pool; local.hostConfig adds the rest.
func (p *Pool) hostConfig() pluginhost.Config {
	return pluginhost.Config{Concurrency: p.Concurrency, Progress: p.now.Set, LastOutput: p.Ledger.LastOutput}
}

// Do has the goroutine of run call f, then look for kinds and upgrades. It returns when that has begun or ctx
// has ended.
func (p *Pool) Do(ctx context.Context, f func()) {
	select {
	case p.calls <- f:
	case <-ctx.Done():
	}
}

// Drain works until nothing is left to do now, or due within Wait.
func (p *Pool) Drain(ctx context.Context, handlers map[string]worker.Handler) (worker.Report, error) {
	g, err := p.newGroup(handlers, p.Agent)
	if err != nil {
		return worker.Report{}, err
	}
	defer p.stopEarly()()
	return g.worker.Drain(ctx, p.Wait)
}

// Run works until ctx ends. Without handlers it starts the plugins itself and works
// each kind as soon as its plugin has started.
func (p *Pool) Run(ctx context.Context, handlers map[string]worker.Handler) error {
	defer p.stopEarly()()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &poolRun{Pool: p, ctx: ctx, ended: make(chan groupEnd), started: make(chan startedKind)}
	defer r.discardWaiting()
	var failed error
	if handlers == nil {
		failed = r.look()
	} else {
		failed = r.startGroup(handlers, p.Agent)
	}
	look := time.NewTicker(newKindsEvery)
	defer look.Stop()
	for failed == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case e := <-r.ended:
			goesOn := false
			if goesOn, failed = r.groupEnded(e); !goesOn {
				stop()
			}
		case s := <-r.started:
			failed = r.kindStarted(s)
		case call := <-p.calls:
			call()
			p.upgradeAll(ctx)
			failed = r.look()
		case <-look.C:
			p.upgradeAll(ctx)
			if len(r.waiting) > 0 || r.groups+r.expected == 0 { // slow plugins do not hold up the others
				failed = r.acceptWaiting()
			}
			if p.follows() && failed == nil {
				failed = r.look()
			}
		}
	}
	stop()
	for ; r.groups > 0; r.groups-- {
		failed = cmp.Or(failed, (<-r.ended).err) // one cause mostly ends all groups
	}
	return failed
}

// newGroup makes a worker for these kinds.
func (p *Pool) newGroup(handlers map[string]worker.Handler, agent ledger.Agent) (*workerGroup, error) {
	configs := map[string]worker.KindConfig{}
	for name := range handlers {
		configs[name] = worker.KindConfig{Concurrency: p.local.Concurrency(name, p.Concurrency)}
	}
	w, err := worker.New(worker.Config{Ledger: p.Ledger, Handlers: handlers, Agent: agent.Name, Version: version.String(),
		Concurrency: p.Concurrency,
		Kinds:       configs, Lease: p.Lease, Shard: p.Shard, Grace: max(p.Grace,
			time.Millisecond), GiveUp: p.GiveUp,
		Logger: p.local.Log, Observe: p.observe, Meter: p.Meter, Absent: p.absent, TracerProvider: p.Tracer})
	if err != nil {
		return nil, err
	}
	g := &workerGroup{worker: w, handlers: handlers, agent: agent}
	p.mu.Lock()
	p.groups = append(p.groups, g)
	p.mu.Unlock()
	p.taken = p.taken || agent.Name == p.Agent.Name
	return g, nil
}

// stopEarly has the workers stop what runs as soon as Stop is done, until end is called.
func (p *Pool) stopEarly() (end func()) {
	if p.Stop == nil {
		return func() {}
	}
	stopped := context.AfterFunc(p.Stop, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, g := range p.groups {
			g.worker.StopNow()
		}
	})
	return func() { stopped() }
}

func (p *Pool) observe(e worker.Event) {
	if p.Ended != nil {
		p.Ended(e)
	}
	if !e.Accepted() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.outcomes[e.Recorded]++
	switch {
	case e.Round == ledger.RoundFailed:
		p.dead++
	case e.State == ledger.StateDoubt:
		p.doubt++
	}
	if e.Recorded == ledger.OutcomeFailed {
		p.failed++
	}
}

// totals are what a pool has done so far.
type totals struct {
	Outcomes    map[ledger.Outcome]int64 // of attempts
	Attempts    int64
	Dead, Doubt int64 // items
}

func (p *Pool) Totals() totals {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := totals{Outcomes: maps.Clone(p.outcomes), Dead: p.dead, Doubt: p.doubt}
	for _, n := range p.outcomes {
		t.Attempts += n
	}
	return t
}

// Progress of the pool; Waits is left to the caller.
func (p *Pool) Progress() Progress {
	t := p.Totals()
	p.mu.Lock()
	defer p.mu.Unlock()
	now := Progress{Done: t.Outcomes[ledger.OutcomeDone] + t.Outcomes[ledger.OutcomeSkipped], Failed: t.Dead + t.Doubt,
		Failing: p.failed, Attempts: t.Attempts}
	now.Ended = now.Done + now.Failed
	now.Item = p.now.Item()
	return now
}

func (p *Pool) Close() {
	var all sync.WaitGroup
	for _, h := range p.hosts {
		all.Go(func() { h.Close(kinds.StopGrace) })
	}
	all.Wait()
}

// KindsHere are the kinds that are worked here.
func (p *Pool) KindsHere() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.hosts))
}

// Emitted are the kinds of items that the plugin of a kind that is worked here adds.
func (p *Pool) Emitted(kind string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[kind]
	if h == nil {
		return nil
	}
	return h.About().Emits
}

// Problems is, for each kind to work, the code of what keeps it from being worked; "" for nothing.
func (p *Pool) Problems() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]string{}
	for name := range p.starting {
		all[name] = daemon.KindStarting
	}
	for name, h := range p.hosts {
		all[name] = ""
		if h.PID() == 0 {
			all[name] = daemon.KindRestarting
		}
		if !h.Stalled().IsZero() {
			all[name] = daemon.KindCrashing
		}
	}
	for name, a := range p.absences { // also of a kind whose last items are still worked here
		all[name] = a.code
	}
	return all
}

// Plugins are the states of the plugin processes, by kind.
func (p *Pool) Plugins() map[string]daemon.PluginState {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]daemon.PluginState{}
	for name, h := range p.hosts {
		pid := h.PID()
		all[name] = daemon.PluginState{Up: pid != 0, Restarts: h.Restarts(), RSS: pluginproc.RSS(pid)}
	}
	return all
}
