package runner

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
)

// leastDrain is the time that the process of a replaced plugin has at least for what it has begun. A longer
// grace of the pool counts instead.
const leastDrain = time.Minute

// upgrade is a version of a plugin, or its settings, that could not take over.
type upgrade struct {
	spec     pluginhost.Spec
	settings bool
	absent   absence
}

// otherSettings reports whether the config has other settings for a kind than those in use. Wrong
// settings are other settings: their use shows what is wrong.
func (p *Pool) otherSettings(name string, h *pluginhost.Host) bool {
	now, err := p.local.PluginConfig(name, &kinds.Plugin{Description: h.About()}, p.With)
	return err != nil || !bytes.Equal(now, h.Settings())
}

// upgradeAll replaces plugins that are found elsewhere by now, or are to be started in another way. A version
// that cannot take over is logged once and tried again later; the old one goes on, unless the config has other
// settings now and another process works the kind with its own.
func (p *Pool) upgradeAll(ctx context.Context) {
	finder, err := p.local.Finder()
	if err != nil {
		return
	}
	if p.Reread {
		p.retryAbsent()
	}
	replaced := false
	for _, name := range p.KindsHere() {
		h := p.hosts[name]
		if _, ends := p.absences[name]; ends {
			continue
		}
		place, err := finder.Find(h.Spec().Place.Name)
		if err != nil { // it was removed: the running process goes on
			continue
		}
		spec := p.local.PluginSpec(place)
		failed, again := p.upgrades[name]
		settings := again && failed.settings || p.Reread && p.otherSettings(name, h)
		if spec.Same(h.Spec()) && !settings || again && !p.Reread && failed.spec.Same(spec) &&
			time.Now().Before(failed.absent.again) {
			continue
		}
		before := h.Definition()
		if err := p.upgradeKind(ctx, name, h); err != nil {
			switch why := failure.Explain(err); {
			case ctx.Err() != nil:
			case settings && p.follows() && why.Code == kinds.OtherSettingsCode:
				p.giveUp(name, why)
			default:
				p.keepVersion(name, before, upgrade{spec: spec, settings: settings, absent: failed.absent}, why)
			}
			continue
		}
		delete(p.upgrades, name)
		replaced = true
		what := "another version of the plugin has taken over; the old one finishes what it has begun"
		if settings {
			what = "the plugin works with the settings that the config has now; it finishes with the old ones what it has begun"
		}
		p.local.Log.Info(what, "kind", name, "before", before, "now", h.Definition(), "path", place.Path, "sha256",
			spec.SHA256)
	}
	p.Reread = false
	if replaced && p.Upgraded != nil {
		p.Upgraded(ctx)
	}
}

// upgradeKind replaces the plugin of a kind by the one that is found now.
func (p *Pool) upgradeKind(ctx context.Context, name string, h *pluginhost.Host) error {
	k, err := p.workable(ctx, p.local, name)
	if err != nil {
		return err
	}
	agent := p.agentOf(name)
	k.Plugin.Spec.Logger = k.Plugin.Spec.Logger.With("kind", name, "agent", agent.Name)
	config, err := p.local.HostConfig(k, p.With, p.hostConfig())
	if err != nil {
		return err
	}
	err = h.Replace(ctx, config, max(leastDrain, p.Grace), func(by pluginhost.Defined) error {
		return p.local.DefineKind(ctx, p.Ledger, agent, k, by)
	})
	if err != nil {
		return p.local.StartError(k, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	agent.Kinds[name], agent.Configs[name] = h.Definition(), h.Config()
	return nil
}

// agentOf is the worker of a kind.
func (p *Pool) agentOf(kind string) ledger.Agent {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		if g.handlers[kind] != nil {
			return g.agent
		}
	}
	return p.Agent
}

// giveUp drops a kind whose settings have changed while another process works it with its own, as a restart
// would. So of processes that all got the new settings one can take over, and the others follow.
func (p *Pool) giveUp(name string, why *failure.Error) {
	delete(p.upgrades, name)
	p.setAbsent(name, why)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.groups {
		if g.handlers[name] != nil && !slices.Contains(g.dropped, name) {
			g.dropped = append(g.dropped, name)
			g.stop()
		}
	}
}

// keepVersion notes a version that could not take over, and logs it once.
func (p *Pool) keepVersion(name, before string, u upgrade, why *failure.Error) {
	pause, logged := min(max(2*u.absent.pause, newKindsEvery), longestAbsence), u.absent.reason
	if last, again := p.upgrades[name]; !again || !last.spec.Same(u.spec) {
		pause, logged = newKindsEvery, ""
	}
	if logged != why.Message {
		p.local.Log.Error("the new version of the plugin, or its new settings, cannot take over: going on with the old one",
			"kind", name,
			"now", before, "path", u.spec.Place.Path, "error", why.Message, "hint", why.Hint)
	}
	u.absent = absence{reason: why.Message, code: why.Code, pause: pause, again: time.Now().Add(pause)}
	p.upgrades[name] = u
}
