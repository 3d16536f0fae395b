// Package runner works kinds of a ledger in one process: a Pool of plugin processes, with one worker, that follows the
// ledger and the config while it runs, and a Tracker of chosen items. Commands and the daemon use it.
package runner

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/version"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// PoolOptions are the kinds that a pool works, and its settings.
type PoolOptions struct {
	// Kinds are the only kinds that are worked; if one of them cannot be worked, the pool ends. If there are none, the
	// kinds that Wanted returns are worked, and those that cannot be worked are tried again later.
	Kinds []string
	// With are settings NAME=VALUE of the plugin; for one kind only.
	With []string
	// UntilIdle ends the pool when no item is ready, or due within Wait.
	UntilIdle   bool
	Wait        time.Duration
	Shard       scheduler.Shard
	Concurrency int // of each kind; 0: the config's or the plugin's
	// Fields of worker.Config.
	Lends  bool
	Lease  time.Duration
	Grace  time.Duration
	GiveUp time.Duration
	Meter  worker.Meter
	Tracer trace.TracerProvider
	// Name of the worker; "" means a unique name.
	Name string
	// Stop ends when running items have to be stopped at once.
	Stop context.Context
	// Wanted returns the kinds to work. Nil means all kinds of the ledger.
	Wanted func(context.Context) ([]string, error)
	// Ended is called for every attempt that has ended; may be nil.
	Ended func(worker.Event)
	// Changed is called after this process has begun to work kinds, or their plugins failed to start. After an error it
	// is called again at the next check; may be nil.
	Changed func(context.Context) error
}

// Pool is the worker of one process and its plugins.
type Pool struct {
	PoolOptions
	Ledger ledgers.Any
	Agent  string // name of the worker, after Register
	local  *kinds.Local
	worker *worker.Worker
	latest LatestProgress
	calls  chan func() // run by the goroutine of Run, between two checks for kinds
	// reread means that the config was read anew: plugins with other settings in it are replaced. Only the goroutine of
	// Run uses it.
	reread bool

	mu       sync.Mutex
	hosts    map[string]*pluginhost.Host // by kind
	replaced map[string]string           // the plugin of a kind before its replacement, until the kind is worked
	// absences are the kinds that are not worked here, and the reasons. starting are the kinds whose plugins are being
	// started. known is the newest description of each kind.
	absences map[string]absence
	starting map[string]bool
	known    map[string]*kinds.Kind
	outcomes map[ledger.Outcome]int64
	dead     int64 // items
	doubt    int64 // items
}

// NewPool makes a pool that works l. Call Register first.
func NewPool(lc *kinds.Local, l ledgers.Any, o PoolOptions) *Pool {
	lc.Policies = &kinds.PolicyWriter{Name: cmp.Or(o.Name, kinds.Process())}
	p := &Pool{PoolOptions: o, local: lc, Ledger: l, calls: make(chan func()), hosts: map[string]*pluginhost.Host{},
		replaced: map[string]string{}, absences: map[string]absence{}, starting: map[string]bool{},
		known: map[string]*kinds.Kind{}, outcomes: map[ledger.Outcome]int64{}}
	p.Name = cmp.Or(p.Name, kinds.AgentName())
	switch {
	case len(o.Kinds) > 0:
		names := slices.Compact(slices.Sorted(slices.Values(o.Kinds)))
		p.Wanted = func(context.Context) ([]string, error) { return names, nil }
	case o.Wanted == nil:
		p.Wanted = func(ctx context.Context) ([]string, error) { return KindNames(ctx, l) }
	}
	return p
}

// KindNames returns the kinds of a ledger.
func KindNames(ctx context.Context, l ledgers.Any) (names []string, err error) {
	all, err := l.Kinds(ctx)
	for _, k := range all {
		names = append(names, k.Name)
	}
	return names, err
}

// newKindsEvery is how often a pool checks for new kinds in the ledger.
const newKindsEvery = 2 * time.Second

// Do makes the goroutine of Run call f and then look for new kinds and plugins. It returns when Run has taken f, or ctx
// has ended; it does not wait for f.
func (p *Pool) Do(ctx context.Context, f func()) {
	select {
	case p.calls <- f:
	case <-ctx.Done():
	}
}

// Register makes the worker, once, and gives it a name: that of the pool, or that name with the next number that no
// other live process has. Call it before Run and Drain. Errors: *ledger.InvalidError, and those of the ledger.
func (p *Pool) Register(ctx context.Context) error {
	if p.worker != nil {
		return nil
	}
	live, err := p.Ledger.Agents(ctx)
	if err != nil {
		return err
	}
	others := kinds.AsAgent(p.Name).Namesakes(live)
	if len(others) > 0 {
		o := others[0]
		p.local.Log.Warn("another live process has the same agent name; give each daemon its own", "agent", p.Name,
			"other", o.Name, "host", o.Host, "pid", o.PID, "since", o.StartedAt)
	}
	n := 1
	for slices.ContainsFunc(others, func(a ledger.Agent) bool { return a.Name == slotName(p.Name, n) }) {
		n++
	}
	p.Agent = slotName(p.Name, n)
	p.worker, err = worker.New(worker.Config{Ledger: p.Ledger, Agent: p.Agent, Version: version.String(),
		Concurrency: p.Concurrency, Lease: p.Lease, Lends: p.Lends, Shard: p.Shard, Grace: max(p.Grace, time.Millisecond),
		GiveUp: p.GiveUp, Logger: p.local.Log, Observe: p.observe, Meter: p.Meter, Absent: p.absent,
		TracerProvider: p.Tracer})
	return err
}

// slotName returns the name of the worker in the nth live process of a name, from 1 on: "box-a", "box-a/2", "box-a/3" …
func slotName(name string, n int) string {
	if n == 1 {
		return name
	}
	return fmt.Sprintf("%s/%d", name, n)
}

// Drain works until no item is ready, or due within Wait.
func (p *Pool) Drain(ctx context.Context) (worker.Report, error) {
	defer p.stopEarly()()
	return p.worker.Drain(ctx, p.Wait)
}

// stopEarly makes the worker stop its running items as soon as Stop is done, until end is called.
func (p *Pool) stopEarly() (end func() bool) {
	return context.AfterFunc(cmp.Or(p.Stop, context.Background()), p.worker.StopNow)
}

// observe counts an attempt that has ended.
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
}

// Results are what a pool has done so far.
type Results struct {
	Outcomes    map[ledger.Outcome]int64 // of attempts
	Attempts    int64
	Dead, Doubt int64 // items
}

// Results returns what the pool has done so far.
func (p *Pool) Results() Results {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := Results{Outcomes: maps.Clone(p.outcomes), Dead: p.dead, Doubt: p.doubt}
	for _, n := range p.outcomes {
		t.Attempts += n
	}
	return t
}

// Progress returns the progress of the pool; the caller sets Waits.
func (p *Pool) Progress() Progress {
	t := p.Results()
	now := Progress{
		Done:     t.Outcomes[ledger.OutcomeDone] + t.Outcomes[ledger.OutcomeSkipped],
		Failed:   t.Dead + t.Doubt,
		Failing:  t.Outcomes[ledger.OutcomeFailed],
		Attempts: t.Attempts,
		Item:     p.latest.Item(),
	}
	now.Ended = now.Done + now.Failed
	return now
}

// Close stops the plugins. The worker must have ended.
func (p *Pool) Close() {
	var all sync.WaitGroup
	for _, h := range p.hosts {
		all.Go(func() { h.Close(kinds.StopGrace) })
	}
	all.Wait()
}

// KindsHere returns the kinds that are worked here.
func (p *Pool) KindsHere() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.hosts))
}

// Emitted returns the kinds of items that the plugin of a kind adds, as far as known here.
func (p *Pool) Emitted(kind string) []string {
	p.mu.Lock()
	h := p.hosts[kind]
	p.mu.Unlock()
	if h != nil {
		return h.Emits()
	}
	if k := p.KindNow(kind); k != nil && k.Plugin != nil {
		return k.Plugin.Emits
	}
	return nil
}

// Problems returns, for each kind to work, the code of the reason why it is not worked; "" if it is worked.
func (p *Pool) Problems() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]string{}
	for name := range p.starting {
		all[name] = daemon.KindStarting
		if p.replaced[name] != "" {
			all[name] = daemon.KindRestarting
		}
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

// Plugins returns the states of the plugin processes, by kind. A kind that should be worked here has one, even if its
// plugin does not start.
func (p *Pool) Plugins() map[string]daemon.PluginState {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]daemon.PluginState{}
	for name := range p.starting {
		all[name] = daemon.PluginState{}
	}
	for name, a := range p.absences {
		all[name] = daemon.PluginState{}
		if a.code == health.NoPlugin { // people work it, or other machines
			delete(all, name)
		}
	}
	for name, h := range p.hosts {
		pid := h.PID()
		all[name] = daemon.PluginState{Up: pid != 0, Restarts: h.Restarts(), RSS: pluginproc.RSS(pid)}
	}
	return all
}
