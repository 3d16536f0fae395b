package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// define states which plugin works the kind from now on, with which settings, and takes over what it says of
// INPUT. me is who works it. It is refused while a live process works the kind with other settings.
func (a *app) define(ctx context.Context, l *ledger.Ledger, me ledger.Agent, k *kind, by pluginhost.Defined) error {
	if err := a.introduce(ctx, l, k); err != nil {
		return err
	}
	if err := l.Define(ctx, me, k.name, by.Definition(), by.Config()); err != nil {
		return k.conflict(err)
	}
	return k.edit(ctx, l, a.writer(), func(have *ledger.Kind, _ bool) {
		have.Input, have.Plugin = k.input(), k.plugin.Policy(k.name).Plugin
	})
}

// otherSettingsCode tells programs that a live process works a kind with other settings.
const otherSettingsCode = "other_settings"

// conflict says who works the kind with other settings, which ones, and what can be done about it.
func (k *kind) conflict(err error) error {
	c, ok := errors.AsType[*ledger.DefinitionError](err)
	if !ok {
		return err
	}
	a := c.Agents[0]
	who := fmt.Sprintf("%s (host %s, pid %d, since %s)", a.Name, a.Host, a.PID, a.StartedAt.Local().Format("2006-01-02 15:04"))
	if n := len(c.Agents) - 1; n > 0 {
		who += fmt.Sprintf(" and %d more", n)
	}
	hint := fmt.Sprintf("%s, then run this again: what is left is worked with the settings of here; or give both the same settings\n"+
		"another name for the kind is no way round: its items would be new, and what is done as %s would be done once more", stopping(a), c.Kind)
	refuse := func(hint, format string, args ...any) error {
		f := usage(otherSettingsCode, hint, format, args...)
		f.cause = c
		return f
	}
	there, _, _ := ledger.SplitDefinition(a.Kinds[c.Kind])
	here, _, _ := ledger.SplitDefinition(c.Definition)
	if there != here {
		return refuse(hint, "kind %q is worked with another plugin, %s and not %s, by %s", c.Kind, a.Kinds[c.Kind], c.Definition, who)
	}
	differs := k.agreed(c.Differences())
	if len(differs) == 0 {
		return refuse(hint, "kind %q is worked with other settings by %s: what differs is not shown, since it may be a secret (%s there, %s here)",
			c.Kind, who, a.Kinds[c.Kind], c.Definition)
	}
	return refuse(hint, "kind %q is worked with other settings by %s: %s", c.Kind, who, strings.Join(differs, ", "))
}

// agreed words the differences in what all that work the kind must have alike.
func (k *kind) agreed(all []ledger.Difference) (texts []string) {
	for _, d := range all {
		if slices.Contains(k.tunes(), d.Name) {
			continue
		}
		value := func(v string) string {
			if v == "" {
				return "not set"
			}
			return v
		}
		texts = append(texts, fmt.Sprintf("%s is %s there and %s here", d.Name, value(d.Have), value(d.Want)))
	}
	return texts
}

// sayChanged tells which settings are other than before, since what was done with those is not done again.
func (a *app) sayChanged(k *kind, before, now string) {
	if before == "" || a.quiet {
		return
	}
	var texts []string
	for _, d := range ledger.Differences(before, now) {
		if !slices.Contains(k.tunes(), d.Name) {
			texts = append(texts, d.String())
		}
	}
	if len(texts) > 0 {
		fmt.Fprintf(a.stderr, "settings: %s; what is done stays done, --again does it once more with these\n", strings.Join(texts, ", "))
	}
}

// tunes are the settings of the plugin that only tune.
func (k *kind) tunes() (names []string) {
	for _, f := range k.plugin.Config.Fields() {
		if f.Tune {
			names = append(names, f.Name)
		}
	}
	return names
}

// stopping says how a process is stopped.
func stopping(a ledger.Agent) string {
	if host, err := os.Hostname(); err == nil && host == a.Host {
		return fmt.Sprintf("stop that process (kill %d, or its service)", a.PID)
	}
	return fmt.Sprintf("stop that process (on %s: kill %d, or its service)", a.Host, a.PID)
}

// missingSettings are the settings that a command that works the kind has to be given, since neither the config
// of this machine has them nor the plugin a default: as flags, with the values in force.
func (a *app) missingSettings(ctx context.Context, k ledger.Kind) (flags string) {
	p, err := a.findPlugin(ctx, cmp.Or(k.Plugin, k.Name), pluginDirs{list: a.config.PluginDir})
	if err != nil {
		return ""
	}
	have, err := a.config.With(k.Name, p.Config)
	if err != nil {
		return ""
	}
	inForce := map[string]string{}
	for _, d := range ledger.Differences("", k.Config) {
		inForce[d.Name] = d.Want
	}
	for _, f := range p.Config.Fields() {
		if !f.Required || isGiven(f.Name, fieldsOf(have)) {
			continue
		}
		value := assignment(f.Name, json.RawMessage(inForce[f.Name]))
		if inForce[f.Name] == "" || strings.Contains(inForce[f.Name], redact.Mask) {
			value = f.Name + "=…"
		}
		flags += " --with " + shell.Quote(value)
	}
	return flags
}
