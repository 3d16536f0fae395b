package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// crew are the workers of one process, and the plugins that they work with. Kinds that are taken up
// together are one shift: they have one worker.
type crew struct {
	app    *app
	flags  workFlags
	ledger *opened
	me     ledger.Agent // the worker that the kinds taken up now are for
	// engaged: there is a worker of that name.
	engaged bool
	now     nowAt
	waits   *waits // of a drain, else nil
	// wanted are the kinds to work.
	wanted func(context.Context) ([]string, error)
	// strict: a kind that cannot be worked is an error.
	strict bool
	// finds: kinds that come to be wanted later are taken up as well, and others are let go.
	finds bool
	// seen gets every attempt that has ended; may be nil.
	seen func(worker.Event)
	// meter of the workers; may be nil.
	meter worker.Meter
	// calls are run between two looks for kinds, by the goroutine that looks.
	calls chan func()
	name  string // of the first worker; "" means one that no other process has
	hired int    // workers so far

	mu     sync.Mutex
	hosts  map[string]*pluginhost.Host // by kind
	shifts []*shift
	// upgrades are versions of plugins that could not take over, by kind; renewed is called after some
	// have, and may be nil.
	upgrades map[string]upgrade
	// reread says that the config was read anew: plugins whose settings are others by now get them.
	reread  bool
	renewed func(ctx context.Context)
	// admitted is called after kinds have been taken up, or could not be; may be nil.
	admitted func(ctx context.Context)
	// elsewhere are the kinds that are not worked here, and why; reaching those whose plugins are being
	// started; known what was last found out of a kind.
	elsewhere map[string]absence
	reaching  map[string]bool
	known     map[string]*kind
	outcomes  map[ledger.Outcome]int64
	dead      int64
	doubt     int64
	failed    int64
}

// shift is a worker and its kinds.
type shift struct {
	worker   *worker.Worker
	handlers map[string]worker.Handler
	agent    ledger.Agent
	stop     context.CancelFunc
	letGo    []string // kinds that it ends for; the others go on
}

func newCrew(a *app, l *opened, flags workFlags) *crew {
	a.spokesman = &spokesman{name: process(), said: map[string]*config.Kind{}}
	c := &crew{app: a, flags: flags, ledger: l, hosts: map[string]*pluginhost.Host{}, elsewhere: map[string]absence{}, reaching: map[string]bool{}, known: map[string]*kind{}, upgrades: map[string]upgrade{}, outcomes: map[ledger.Outcome]int64{},
		strict: len(flags.kinds) > 0, finds: len(flags.kinds) == 0 && flags.maxItems == 0, calls: make(chan func())}
	c.wanted = func(ctx context.Context) ([]string, error) {
		if len(flags.kinds) > 0 {
			return flags.kinds, nil
		}
		return kindNames(ctx, l.Ledger)
	}
	return c
}

// kindNames are the kinds that a ledger knows.
func kindNames(ctx context.Context, l *ledger.Ledger) (names []string, err error) {
	kinds, err := l.Kinds(ctx)
	for _, k := range kinds {
		names = append(names, k.Name)
	}
	return names, err
}

// agentName is what the next worker is called: the name of the crew, with a number after the first one.
func (c *crew) agentName() string {
	switch {
	case c.name == "":
		return agentName()
	case c.hired == 0:
		return c.name
	}
	return fmt.Sprintf("%s/%d", c.name, c.hired+1)
}

// newKindsEvery is how often work looks for kinds that have come to the ledger.
const newKindsEvery = 2 * time.Second

// hostConfig is what the processes of its plugins have of the crew, see app.hostConfig.
func (c *crew) hostConfig() pluginhost.Config {
	return pluginhost.Config{Concurrency: c.flags.concurrency, Progress: c.now.set, LastOutput: c.ledger.LastOutput}
}

// run works until everything is done, or ctx ends. Without handlers it starts the plugins itself, and waits
// for none before it works the kinds of the others.
func (c *crew) run(ctx context.Context, handlers map[string]worker.Handler) (worker.Report, error) {
	if c.flags.drain {
		s, err := c.hire(handlers, c.me)
		if err != nil {
			return worker.Report{}, err
		}
		defer c.watchSignals(ctx)()
		return s.worker.Drain(ctx, c.flags.wait.Duration)
	}
	defer c.watchSignals(ctx)()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r := &rota{crew: c, ctx: ctx, ended: make(chan shiftEnd), arrivals: make(chan arrival)}
	defer r.rest()
	var failed error
	if handlers == nil {
		failed = r.look()
	} else {
		failed = r.start(handlers, c.me)
	}
	look := time.NewTicker(newKindsEvery)
	defer look.Stop()
	for failed == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case e := <-r.ended:
			more := false
			if more, failed = r.over(e); !more { // nothing to be done any more, or --max-items
				stop()
			}
		case a := <-r.arrivals:
			failed = r.take(a)
		case call := <-c.calls:
			call()
			c.upgradeAll(ctx)
			failed = r.look()
		case <-look.C:
			c.upgradeAll(ctx)
			if len(r.arrived) > 0 || r.running+r.awaited == 0 { // the others are not waited for any longer
				failed = r.admitArrived()
			}
			if c.finds && failed == nil {
				failed = r.look()
			}
		}
	}
	stop()
	for ; r.running > 0; r.running-- {
		failed = cmp.Or(failed, (<-r.ended).err) // what ends one mostly ends all
	}
	return worker.Report{}, failed
}

// shiftEnd is how a shift has ended.
type shiftEnd struct {
	shift *shift
	err   error
}

func (r *rota) start(handlers map[string]worker.Handler, agent ledger.Agent) error {
	if len(handlers) == 0 && r.running > 0 { // without any, one worker keeps the ledger in order
		return nil
	}
	s, err := r.hire(handlers, agent)
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(r.ctx)
	r.running++
	go func() { r.ended <- shiftEnd{s, s.worker.Run(ctx)} }()
	return nil
}

// over takes note of a shift that has ended; more says whether there is another one for its kinds.
func (r *rota) over(e shiftEnd) (more bool, err error) {
	r.running--
	r.mu.Lock()
	r.shifts = slices.DeleteFunc(r.shifts, func(s *shift) bool { return s == e.shift })
	r.mu.Unlock()
	if len(e.shift.letGo) == 0 || e.err != nil {
		return false, e.err
	}
	for _, name := range e.shift.letGo {
		r.mu.Lock()
		h := r.hosts[name]
		delete(r.hosts, name)
		delete(e.shift.handlers, name)
		delete(e.shift.agent.Kinds, name)
		delete(e.shift.agent.Configs, name)
		r.mu.Unlock()
		h.Close(stopGrace)
	}
	return true, r.start(e.shift.handlers, e.shift.agent)
}

// hire makes a worker for these kinds.
func (c *crew) hire(handlers map[string]worker.Handler, agent ledger.Agent) (*shift, error) {
	kinds := map[string]worker.KindConfig{}
	for name := range handlers {
		kinds[name] = worker.KindConfig{Concurrency: c.app.concurrency(name, c.flags.concurrency)}
	}
	f := c.flags
	w, err := worker.New(worker.Config{Ledger: c.ledger.Ledger, Handlers: handlers, Agent: agent.Name, Version: programVersion(),
		Concurrency: f.concurrency, Kinds: kinds, Lease: f.lease.Duration, Shard: f.shard.Shard, MaxItems: f.maxItems, Grace: max(f.grace.Duration, time.Millisecond),
		GiveUp: f.giveUp(), Logger: c.app.logger(), Observe: c.observe, Meter: c.meter, Absent: c.absent})
	if err != nil {
		return nil, policyError(err)
	}
	s := &shift{worker: w, handlers: handlers, agent: agent}
	c.mu.Lock()
	c.shifts = append(c.shifts, s)
	c.mu.Unlock()
	c.hired++
	c.engaged = c.engaged || agent.Name == c.me.Name
	return s, nil
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
			for _, s := range c.shifts {
				s.worker.StopNow()
			}
		case <-ended:
		}
	}()
	return func() { close(ended) }
}

func (c *crew) observe(e worker.Event) {
	observed(e)
	if c.seen != nil {
		c.seen(e)
	}
	if !e.Accepted() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outcomes[e.Recorded]++
	switch {
	case e.Round == ledger.RoundFailed:
		c.dead++
	case e.State == ledger.StateDoubt:
		c.doubt++
	}
	if e.Recorded == ledger.OutcomeFailed {
		c.failed++
	}
}

func (c *crew) progress() progress {
	waits := ""
	if c.waits != nil {
		waits = c.waits.line(c.app.printer())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := progress{Waits: waits, Done: c.outcomes[ledger.OutcomeDone] + c.outcomes[ledger.OutcomeSkipped], Failed: c.dead + c.doubt, Failing: c.failed}
	for _, n := range c.outcomes {
		p.attempts += n
	}
	p.Ended = p.Done + p.Failed
	p.Item = c.now.item()
	return p
}

func (c *crew) close() {
	var all sync.WaitGroup
	for _, h := range c.hosts {
		all.Go(func() { h.Close(stopGrace) })
	}
	all.Wait()
}

// emits are the kinds that the plugin of a kind that is worked here adds items of.
func (c *crew) emits(kind string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.hosts[kind]
	if h == nil {
		return nil
	}
	return h.About().Emits
}

// problems is the code of what keeps each kind to work from being worked, "" for nothing.
func (c *crew) problems() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]string{}
	for name := range c.reaching {
		all[name] = daemon.KindStarting
	}
	for name, h := range c.hosts {
		all[name] = ""
		if h.PID() == 0 {
			all[name] = daemon.KindRestarting
		}
		if !h.Stalled().IsZero() {
			all[name] = daemon.KindCrashing
		}
	}
	for name, a := range c.elsewhere { // also of one that still ends what it has begun
		all[name] = a.code
	}
	return all
}

// plugins says how the processes of plugins are, by kind.
func (c *crew) plugins() map[string]daemon.PluginState {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]daemon.PluginState{}
	for name, h := range c.hosts {
		pid := h.PID()
		all[name] = daemon.PluginState{Up: pid != 0, Restarts: h.Restarts(), RSS: daemon.RSS(pid)}
	}
	return all
}
