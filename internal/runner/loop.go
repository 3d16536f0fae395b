package runner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
)

// poolRun is one call of Run. Only its goroutine uses it.
type poolRun struct {
	*Pool
	ctx      context.Context
	started  chan startedKind
	expected int             // kinds whose plugins are being started
	dropped  chan string     // kinds that the worker has dropped
	leaving  map[string]bool // kinds that the worker is about to drop
	changed  bool            // Changed has to be called
}

// Run works until ctx ends. It starts the plugins of the wanted kinds and works each kind as soon as its plugin has
// started.
func (p *Pool) Run(ctx context.Context) error {
	defer p.stopEarly()()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		ended <- p.worker.Run(ctx)
	}()
	r := &poolRun{Pool: p, ctx: ctx, started: make(chan startedKind), dropped: make(chan string),
		leaving: map[string]bool{}}
	failed := r.look()
	r.changed = r.expected == 0 // else the first plugin that starts sets it
	look := time.NewTicker(newKindsEvery)
	defer look.Stop()
	for failed == nil && ctx.Err() == nil {
		if r.expected == 0 {
			r.tell()
		}
		select {
		case <-ctx.Done():
		case s := <-r.started:
			r.expected--
			r.changed = true
			failed = r.unlessTemporary(r.accept(ctx, s, false))
		case name := <-r.dropped:
			r.forget(name)
			failed = r.look()
		case call := <-p.calls:
			call()
			r.replace()
			failed = r.look()
		case <-look.C:
			if r.expected > 0 { // slow plugins do not hold up the others
				r.tell()
			}
			r.replace()
			failed = r.look()
		}
	}
	stop()
	failed = cmp.Or(failed, <-ended)
	for ; r.expected > 0; r.expected-- {
		r.discard(<-r.started)
	}
	for len(r.leaving) > 0 {
		r.forget(<-r.dropped)
	}
	return failed
}

// tell calls Changed if something has changed since it was called without an error.
func (r *poolRun) tell() { r.changed = r.changed && r.Changed != nil && r.Changed(r.ctx) != nil }

// look starts the plugins of kinds that are newly wanted, and drops kinds that are not wanted any more. It does not
// wait for any plugin.
func (r *poolRun) look() error {
	wanted, err := r.Wanted(r.ctx)
	if err != nil {
		return r.unlessTemporary(err)
	}
	names := r.due(wanted)
	r.expected += len(names)
	r.startPlugins(r.ctx, names, r.started)
	if len(r.Kinds) > 0 {
		return nil
	}
	r.mu.Lock()
	maps.DeleteFunc(r.absences, func(name string, _ absence) bool { return !slices.Contains(wanted, name) })
	r.mu.Unlock()
	for _, name := range r.KindsHere() {
		if !slices.Contains(wanted, name) && !r.leaving[name] {
			r.local.Log.Info("kind is not to be worked any more", "kind", name)
			r.drop(name)
		}
	}
	return nil
}

// unlessTemporary returns nil for an error that may be gone at the next check.
func (r *poolRun) unlessTemporary(err error) error {
	if r.ctx.Err() != nil || errors.Is(err, ledger.ErrUnavailable) {
		return nil
	}
	return err
}

// drop makes the worker drop a kind, then stops its plugin. The kind may be taken again only after that, so that two
// processes never work it.
func (r *poolRun) drop(name string) {
	r.leaving[name] = true
	h := r.hosts[name]
	go func() {
		r.worker.Drop(name)
		h.Close(kinds.StopGrace)
		r.dropped <- name
	}()
}

// forget records that a kind has been dropped.
func (r *poolRun) forget(name string) {
	delete(r.leaving, name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.hosts, name)
}

// replace drops each kind whose plugin is a new file, or has a new command line. After Reread it also drops the kinds
// with new settings in the config. The next check takes these kinds again. A plugin that was removed stays.
func (r *poolRun) replace() {
	finder, err := r.local.Finder()
	if err != nil {
		return
	}
	for _, name := range r.KindsHere() {
		h := r.hosts[name]
		place, err := finder.Find(h.Spec().Place.Name)
		if err != nil || r.leaving[name] {
			continue
		}
		if r.local.PluginSpec(place).Same(h.Spec()) && !(r.reread && r.otherSettings(name, h)) {
			continue
		}
		r.mu.Lock()
		r.replaced[name] = h.Definition()
		r.mu.Unlock()
		r.local.Log.Info("the plugin is replaced: it ends what it has begun first", "kind", name, "now", h.Definition())
		r.drop(name)
	}
	r.reread = r.expected > 0 // plugins that are being started may have the old settings
}

// otherSettings reports whether the config has another plugin or other settings for a kind than those in use. Settings
// that the plugin refuses count as other: the new start reports the mistake.
func (p *Pool) otherSettings(name string, h *pluginhost.Host) bool {
	if plugin := p.local.Config.PluginOf(name); plugin != "" && plugin != h.Spec().Place.Name {
		return true
	}
	now, err := p.local.PluginConfig(name, &kinds.Plugin{Description: h.About()}, p.With)
	return err != nil || !bytes.Equal(now, h.Settings())
}

// Reread gives the new settings to plugins whose settings have changed, and tries at once the kinds that are not worked
// here. Call it only in Do.
func (p *Pool) Reread() {
	p.reread = true
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, a := range p.absences {
		a.again = time.Now()
		p.absences[name] = a
	}
}
