package runner

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// poolRun is one call of pool.run. Only its goroutine uses it.
type poolRun struct {
	*Pool
	ctx      context.Context
	ended    chan groupEnd
	groups   int // that run
	started  chan startedKind
	expected int           // kinds whose plugins are being started
	waiting  []startedKind // not accepted yet
}

// groupEnd is how a group has ended.
type groupEnd struct {
	group *workerGroup
	err   error
}

// startGroup runs a worker for these kinds. Without any, one worker keeps the ledger in order.
func (r *poolRun) startGroup(handlers map[string]worker.Handler, agent ledger.Agent) error {
	if len(handlers) == 0 && r.groups > 0 {
		return nil
	}
	g, err := r.newGroup(handlers, agent)
	if err != nil {
		return err
	}
	var ctx context.Context
	ctx, g.stop = context.WithCancel(r.ctx)
	r.groups++
	go func() { r.ended <- groupEnd{g, g.worker.Run(ctx)} }()
	return nil
}

// groupEnded closes the plugins of dropped kinds and starts the rest of the group again. goesOn is false for a
// group that has ended for another reason.
func (r *poolRun) groupEnded(e groupEnd) (goesOn bool, err error) {
	r.groups--
	r.mu.Lock()
	r.Pool.groups = slices.DeleteFunc(r.Pool.groups, func(g *workerGroup) bool { return g == e.group })
	r.mu.Unlock()
	if len(e.group.dropped) == 0 || e.err != nil {
		return false, e.err
	}
	for _, name := range e.group.dropped {
		r.mu.Lock()
		h := r.hosts[name]
		delete(r.hosts, name)
		delete(e.group.handlers, name)
		delete(e.group.agent.Kinds, name)
		delete(e.group.agent.Configs, name)
		r.mu.Unlock()
		h.Close(kinds.StopGrace)
	}
	return true, r.startGroup(e.group.handlers, e.group.agent)
}

// look starts the plugins of kinds that have come to be wanted, and drops kinds that are not wanted any more.
// It waits for no plugin.
func (r *poolRun) look() error {
	names, err := r.due(r.ctx)
	if err != nil {
		return r.unlessTemporary(err)
	}
	if len(names) > 0 {
		if err := r.NameAgent(r.ctx); err != nil {
			return r.unlessTemporary(err)
		}
		r.expected += len(names)
		r.startPlugins(r.ctx, names, r.started)
	}
	if r.follows() {
		r.dropUnwanted()
	}
	if r.expected == 0 && r.groups == 0 { // nothing is to be worked so far
		return r.acceptWaiting()
	}
	return nil
}

// unlessTemporary is nil for an error that the next look may be without.
func (r *poolRun) unlessTemporary(err error) error {
	if r.ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable) {
		return nil
	}
	return err
}

// kindStarted notes a plugin that has started, or failed to. Kinds that start together share a worker: the last
// plugin has all of them accepted, and each look those that have started by then.
func (r *poolRun) kindStarted(s startedKind) error {
	r.expected--
	r.waiting = append(r.waiting, s)
	if r.expected > 0 {
		return nil
	}
	return r.acceptWaiting()
}

// acceptWaiting starts a worker for the kinds whose plugins have started.
func (r *poolRun) acceptWaiting() error {
	if err := r.NameAgent(r.ctx); err != nil {
		return r.unlessTemporary(err)
	}
	all := r.waiting
	r.waiting = nil
	handlers, err := r.accept(r.ctx, all)
	if err := r.startGroup(handlers, r.Agent); err != nil {
		return err
	}
	if r.Changed != nil {
		r.Changed(r.ctx)
	}
	if err != nil {
		return r.unlessTemporary(err)
	}
	return nil
}

// dropUnwanted stops the workers of kinds that are not wanted any more; they are started again for the others.
func (r *poolRun) dropUnwanted() {
	wanted, err := r.Wanted(r.ctx)
	if err != nil {
		return // the next look tries again
	}
	unwanted := func(name string) bool { return !slices.Contains(wanted, name) }
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.absences, func(name string, _ absence) bool { return unwanted(name) })
	for _, g := range r.Pool.groups {
		names := slices.DeleteFunc(slices.Sorted(maps.Keys(g.handlers)), func(name string) bool { return !unwanted(name) })
		if len(g.dropped) == 0 && len(names) > 0 {
			g.dropped = names
			r.local.Log.Info("kinds are not to be worked any more", "kinds", names)
			g.stop()
		}
	}
}

// discardWaiting stops the plugins that have started too late to be worked with.
func (r *poolRun) discardWaiting() {
	for ; r.expected > 0; r.expected-- {
		r.waiting = append(r.waiting, <-r.started)
	}
	for _, s := range r.waiting {
		r.discard(s)
	}
}
