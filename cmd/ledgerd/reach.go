package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// absence is why a kind is not worked here.
type absence struct {
	reason string
	code   string // of the reason, for programs
	pause  time.Duration
	again  time.Time // when it is tried once more; zero if nothing here works it
	config string    // the settings that it is to be worked with, where another process has others
}

// longestAbsence bounds the time between two tries to take up a kind.
const longestAbsence = time.Minute

// arrival is how the try to start the plugin of a kind has ended.
type arrival struct {
	name string
	kind *kind // nil if its plugin does not even describe itself
	host *pluginhost.Host
	err  error
}

// reach starts the plugins of these kinds, all at the same time; each arrival goes to the channel.
func (c *crew) reach(ctx context.Context, names []string, to chan<- arrival) {
	c.mu.Lock()
	for _, name := range names {
		c.reaching[name] = true
	}
	c.mu.Unlock()
	now := *c.app // a config that is read anew meanwhile is for the next try
	for _, name := range names {
		go func() {
			a := arrival{name: name}
			a.kind, a.host, a.err = c.reachKind(ctx, &now, name)
			to <- a
		}()
	}
}

// reachKind starts the plugin of a kind.
func (c *crew) reachKind(ctx context.Context, a *app, name string) (*kind, *pluginhost.Host, error) {
	k, err := a.resolve(ctx, c.ledger.Ledger, name, "", c.flags.dirs)
	if err != nil {
		return nil, nil, err
	}
	if k.plugin == nil {
		return k, nil, a.noPluginFor(ctx, k, c.flags.dirs, "plugins: ledgerd plugin ls")
	}
	k.plugin.spec.Logger = k.plugin.spec.Logger.With("kind", name, "agent", c.me.Name)
	h, err := a.startPlugin(ctx, k, c.flags.with, c.hostConfig())
	return k, h, err
}

// enlist names the worker that the kinds taken up next are for, unless no worker has the last name yet.
func (c *crew) enlist() {
	if c.me.Name == "" || c.engaged {
		c.me, c.engaged = asAgent(c.agentName()), false
	}
}

// due are the kinds to work that are not worked, nor about to be, and whose time has come.
func (c *crew) due(ctx context.Context) (names []string, err error) {
	wanted, err := c.wanted(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	for _, name := range wanted {
		if c.hosts[name] == nil && !c.reaching[name] && !now.Before(c.elsewhere[name].again) {
			names = append(names, name)
		}
	}
	return names, nil
}

// takeUp finds the kinds to work that are not worked yet, starts their plugins and gives their handlers.
func (c *crew) takeUp(ctx context.Context) (map[string]worker.Handler, error) {
	names, err := c.due(ctx)
	if err != nil {
		return nil, err
	}
	c.enlist()
	arrivals := make(chan arrival)
	c.reach(ctx, names, arrivals)
	var all []arrival
	for range names {
		all = append(all, <-arrivals)
	}
	return c.admit(ctx, all)
}

// admit has the kinds that arrived worked from now on, and notes the others.
func (c *crew) admit(ctx context.Context, all []arrival) (handlers map[string]worker.Handler, failed error) {
	handlers = map[string]worker.Handler{}
	slices.SortFunc(all, func(a, b arrival) int { return strings.Compare(a.name, b.name) })
	for _, a := range all {
		if failed != nil {
			c.turnAway(a)
			continue
		}
		switch err := c.admitKind(ctx, a); {
		case err != nil && (c.strict || ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable)):
			failed = err
		case err != nil:
			c.leave(a.name, explain(err))
		default:
			handlers[a.name] = a.host
			c.returned(a.name)
		}
	}
	return handlers, failed
}

// admitKind makes the plugin of a kind the one that works it, if the ledger agrees.
func (c *crew) admitKind(ctx context.Context, a arrival) error {
	err := a.err
	if err == nil {
		err = c.app.define(ctx, c.ledger.Ledger, c.me, a.kind, a.host)
	}
	c.mu.Lock()
	delete(c.reaching, a.name)
	if a.kind != nil {
		c.known[a.name] = a.kind
	}
	if err == nil {
		c.me.Kinds[a.name], c.me.Configs[a.name] = a.host.Definition(), a.host.Config()
		c.hosts[a.name] = a.host
	}
	c.mu.Unlock()
	if err != nil && a.host != nil {
		a.host.Close(stopGrace)
	}
	return err
}

// turnAway stops the plugin of a kind that is not taken up any more.
func (c *crew) turnAway(a arrival) {
	c.mu.Lock()
	delete(c.reaching, a.name)
	c.mu.Unlock()
	if a.host != nil {
		a.host.Close(stopGrace)
	}
}

// leave notes a kind that is not worked here, and says so whenever the code of the reason is a new
// one. That people work one is no news.
func (c *crew) leave(name string, why *failure) {
	reason := strings.TrimPrefix(why.message, fmt.Sprintf("kind %q: ", name))
	before := c.elsewhere[name]
	now := absence{reason: reason, code: why.code, pause: min(max(2*before.pause, newKindsEvery), longestAbsence)}
	switch {
	case why.code == noPluginCode:
		now.reason, now.pause = "no plugin", 0
	case why.code == otherSettingsCode: // it ends when the other one does; not all at the same time
		now.pause = newKindsEvery/2 + rand.N(newKindsEvery)
	case why.code == "unknown_plugin" && c.app.config.Kinds[name] == nil:
		now.code = noPluginCode // the plugin that the ledger names is on other machines
	}
	if now.code != before.code && why.code != noPluginCode {
		c.app.logger().Warn("kind is not worked here", "kind", name, "error", reason, "code", why.code, "again_in", now.pause.String())
	}
	if conflict, ok := errors.AsType[*ledger.DefinitionError](why); ok {
		now.config = conflict.Config
	}
	now.again = time.Now().Add(now.pause)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.elsewhere[name] = now
}

// tryAgain has kinds that are not worked here tried at once.
func (c *crew) tryAgain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, a := range c.elsewhere {
		a.again = time.Now()
		c.elsewhere[name] = a
	}
}

// returned notes a kind that is worked here, and says so if it was not before.
func (c *crew) returned(name string) {
	c.mu.Lock()
	before, was := c.elsewhere[name]
	delete(c.elsewhere, name)
	c.mu.Unlock()
	if was && before.code != noPluginCode {
		c.app.logger().Info("kind is worked here again", "kind", name, "before", before.reason)
	}
}

// knows is what was last found out of a kind, as its plugin is by now; nil if nothing was.
func (c *crew) knows(name string) *kind {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known[name]
	if known == nil {
		return nil
	}
	k := *known
	if h := c.hosts[name]; h != nil {
		k.plugin = &plugin{Description: h.About(), spec: h.Spec()}
		k.schema = k.plugin.Payload
	}
	return &k
}

// absent are the kinds that are to be worked here and are not, for the heartbeat.
func (c *crew) absent() map[string]worker.Absence {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]worker.Absence{}
	for name, a := range c.elsewhere {
		if a.code != noPluginCode {
			all[name] = worker.Absence{Again: a.again, Config: a.config}
		}
	}
	return all
}

// rota says who works: the shifts of one call of run.
type rota struct {
	*crew
	ctx      context.Context
	ended    chan shiftEnd
	running  int
	arrivals chan arrival
	awaited  int       // arrivals that are still to come
	arrived  []arrival // that were not admitted yet
}

// look has the plugins started of kinds that have come to be wanted, and lets those go that are not wanted
// any more. It waits for none.
func (r *rota) look() error {
	names, err := r.due(r.ctx)
	if err != nil {
		return r.bearable(err)
	}
	if len(names) > 0 {
		r.enlist()
		r.awaited += len(names)
		r.reach(r.ctx, names, r.arrivals)
	}
	if r.finds {
		r.letGo()
	}
	if r.awaited == 0 && r.running == 0 { // nothing is to be worked so far
		return r.admitArrived()
	}
	return nil
}

// bearable is nil of errors for which the next look will do.
func (r *rota) bearable(err error) error {
	if r.ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable) {
		return nil
	}
	return err
}

// take notes an arrival. Those that come together are worked together: the last one has all admitted, and
// each look those that are there by then.
func (r *rota) take(a arrival) error {
	r.awaited--
	r.arrived = append(r.arrived, a)
	if r.awaited > 0 {
		return nil
	}
	return r.admitArrived()
}

// admitArrived starts a worker for the kinds that have arrived; without any, the first one keeps the
// ledger in order.
func (r *rota) admitArrived() error {
	r.enlist()
	all := r.arrived
	r.arrived = nil
	handlers, err := r.admit(r.ctx, all)
	if started := r.start(handlers, r.me); started != nil {
		return started
	}
	if r.admitted != nil {
		r.admitted(r.ctx)
	}
	if err != nil {
		return r.bearable(err)
	}
	return nil
}

// letGo ends the workers of kinds that are not wanted any more; they are started again for the others.
func (r *rota) letGo() {
	wanted, err := r.wanted(r.ctx)
	if err != nil {
		return // the next look will do
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.elsewhere {
		if !slices.Contains(wanted, name) {
			delete(r.elsewhere, name)
		}
	}
	for _, s := range r.shifts {
		for name := range s.handlers {
			if len(s.letGo) == 0 && !slices.Contains(wanted, name) {
				s.letGo = slices.DeleteFunc(slices.Sorted(maps.Keys(s.handlers)), func(n string) bool { return slices.Contains(wanted, n) })
				r.app.logger().Info("kinds are not to be worked any more", "kinds", s.letGo)
				s.stop()
			}
		}
	}
}

// rest stops the plugins that arrive too late to be worked with.
func (r *rota) rest() {
	for ; r.awaited > 0; r.awaited-- {
		r.arrived = append(r.arrived, <-r.arrivals)
	}
	for _, a := range r.arrived {
		r.turnAway(a)
	}
}
