package main

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/ledger"
)

// leastDrain is how long the process of a plugin that was replaced may go on with what it has begun;
// it is longer if the grace of the program is.
const leastDrain = time.Minute

// upgrade is a version of a plugin that could not take over, or settings, and when it is tried again.
type upgrade struct {
	spec     pluginhost.Spec
	settings bool
	absent   absence
}

// otherSettings tells whether the config has other settings for a kind than those that it is worked with.
// Settings that are wrong are others: whoever uses them finds out why.
func (c *crew) otherSettings(name string, h *pluginhost.Host) bool {
	now, err := c.app.pluginConfig(name, &plugin{Description: h.About()}, c.flags.with)
	return err != nil || !bytes.Equal(now, h.Settings())
}

// upgradeAll has plugins that are found elsewhere by now, or are to be started in another way, take over
// from those that work. What cannot take over is said once, and tried again later; the old one goes on, unless
// the config has other settings now and another process works the kind with its own.
func (c *crew) upgradeAll(ctx context.Context) {
	finder, err := c.app.finder(c.flags.dirs)
	if err != nil {
		return
	}
	if c.reread {
		c.tryAgain()
	}
	renewed := false
	for _, name := range slices.Sorted(maps.Keys(c.hosts)) {
		h := c.hosts[name]
		if _, left := c.elsewhere[name]; left { // it is about to end
			continue
		}
		place, err := finder.Find(h.Spec().Place.Name)
		if err != nil { // it was removed: what runs goes on
			continue
		}
		spec := c.app.pluginSpec(place)
		failed, again := c.upgrades[name]
		settings := again && failed.settings || c.reread && c.otherSettings(name, h)
		if spec.Same(h.Spec()) && !settings || again && !c.reread && failed.spec.Same(spec) && time.Now().Before(failed.absent.again) {
			continue
		}
		before := h.Definition()
		if err := c.upgradeKind(ctx, name, h); err != nil {
			switch why := explain(err); {
			case ctx.Err() != nil:
			case settings && c.finds && why.code == otherSettingsCode:
				c.giveUp(name, why)
			default:
				c.keepVersion(name, before, upgrade{spec: spec, settings: settings, absent: failed.absent}, why)
			}
			continue
		}
		delete(c.upgrades, name)
		renewed = true
		what := "another version of the plugin has taken over; what the old one has begun it finishes"
		if settings {
			what = "the plugin works with the settings that the config has now; what it has begun it finishes as before"
		}
		c.app.logger().Info(what, "kind", name, "before", before, "now", h.Definition(), "path", place.Path, "sha256", spec.SHA256)
	}
	c.reread = false
	if renewed && c.renewed != nil {
		c.renewed(ctx)
	}
}

// upgradeKind has what is found now take over from the plugin of a kind.
func (c *crew) upgradeKind(ctx context.Context, name string, h *pluginhost.Host) error {
	a := c.app
	k, err := a.resolve(ctx, c.ledger.Ledger, name, "", c.flags.dirs)
	if err != nil {
		return err
	}
	if k.plugin == nil {
		return a.noPluginFor(ctx, k, c.flags.dirs, "plugins: ledgerd plugin ls")
	}
	me := c.agentOf(name)
	k.plugin.spec.Logger = k.plugin.spec.Logger.With("kind", name, "agent", me.Name)
	config, err := a.hostConfig(k, c.flags.with, c.hostConfig())
	if err != nil {
		return err
	}
	err = h.Replace(ctx, config, max(leastDrain, c.flags.grace.Duration), func(by pluginhost.Defined) error {
		return a.define(ctx, c.ledger.Ledger, me, k, by)
	})
	if err != nil {
		return a.startError(k, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	me.Kinds[name], me.Configs[name] = h.Definition(), h.Config()
	return nil
}

// agentOf is the worker that works a kind.
func (c *crew) agentOf(kind string) ledger.Agent {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shifts {
		if s.handlers[kind] != nil {
			return s.agent
		}
	}
	return c.me
}

// giveUp lets a kind go whose settings are others by now, while another process works it with its own, as a
// restart would: of processes that all were told the new settings one can take over, and the others follow.
func (c *crew) giveUp(name string, why *failure) {
	delete(c.upgrades, name)
	c.leave(name, why)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shifts {
		if s.handlers[name] != nil && !slices.Contains(s.letGo, name) {
			s.letGo = append(s.letGo, name)
			s.stop()
		}
	}
}

// keepVersion notes a version that could not take over, and says so once.
func (c *crew) keepVersion(name, before string, u upgrade, why *failure) {
	pause, said := min(max(2*u.absent.pause, newKindsEvery), longestAbsence), u.absent.reason
	if last, again := c.upgrades[name]; !again || !last.spec.Same(u.spec) {
		pause, said = newKindsEvery, ""
	}
	if said != why.message {
		c.app.logger().Error("the new version of the plugin, or its new settings, cannot take over: going on with the old one", "kind", name,
			"now", before, "path", u.spec.Place.Path, "error", why.message, "hint", why.hint)
	}
	u.absent = absence{reason: why.message, code: why.code, pause: pause, again: time.Now().Add(pause)}
	c.upgrades[name] = u
}
