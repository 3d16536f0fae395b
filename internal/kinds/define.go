package kinds

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// define states which plugin works the kind from now on, with which settings, and takes over its definition
// of INPUT. me is the agent that works it. It is refused while a live process works the kind with other
// settings.
func (lc *Local) DefineKind(ctx context.Context, l ledgers.Any, me ledger.Agent, k *Kind, by worker.Defined) error {
	if err := lc.Introduce(ctx, l, k); err != nil {
		return err
	}
	if err := l.Define(ctx, me, k.Name, by.Definition(), by.Config()); err != nil {
		return k.conflict(err)
	}
	return k.edit(ctx, l, lc.writer(), func(have *ledger.Kind, _ bool) {
		have.Input, have.Plugin = k.Input(), k.Plugin.Policy(k.Name).Plugin
	})
}

// OtherSettingsCode is the code for a live process that works a kind with other settings.
const OtherSettingsCode = "other_settings"

// conflict names the process that works the kind with other settings, these settings, and what to
// do about it.
func (k *Kind) conflict(err error) error {
	c, ok := errors.AsType[*ledger.DefinitionError](err)
	if !ok {
		return err
	}
	a := c.Agents[0]
	who := fmt.Sprintf("%s (host %s, pid %d, since %s)", a.Name, a.Host, a.PID,
		a.StartedAt.Local().Format("2006-01-02 15:04"))
	if n := len(c.Agents) - 1; n > 0 {
		who += fmt.Sprintf(" and %d more", n)
	}
	hint := fmt.Sprintf("%s, then run this again: what is left is worked with the settings of here; or give both the "+
		"same settings\n"+
		"another name for the kind is no way round: its items would be new, and what is done as %s would be done once more", stopping(a), c.Kind)
	refuse := func(hint, format string, args ...any) error {
		f := failure.Usage(OtherSettingsCode, hint, format, args...)
		f.Cause = c
		return f
	}
	there, _, _ := definition.Split(a.Kinds[c.Kind])
	here, _, _ := definition.Split(c.Definition)
	if there != here {
		return refuse(hint, "kind %q is worked with another plugin, %s and not %s, by %s", c.Kind, a.Kinds[c.Kind],
			c.Definition, who)
	}
	differs := k.agreed(c.Differences())
	if len(differs) == 0 {
		return refuse(hint, "kind %q is worked with other settings by %s: what differs is not shown, since it may be a "+
			"secret (%s there, %s here)",
			c.Kind, who, a.Kinds[c.Kind], c.Definition)
	}
	return refuse(hint, "kind %q is worked with other settings by %s: %s", c.Kind, who, strings.Join(differs, ", "))
}

// agreed words the differences in what all that work the kind must have alike.
func (k *Kind) agreed(all []definition.Difference) (texts []string) {
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

// SayChanged prints which settings are other than before, since items that were done with those are not
// done again.
func (lc *Local) SayChanged(k *Kind, before, now string) {
	if before == "" {
		return
	}
	var texts []string
	for _, d := range definition.Differences(before, now) {
		if !slices.Contains(k.tunes(), d.Name) {
			texts = append(texts, d.String())
		}
	}
	if len(texts) > 0 {
		lc.notice("settings: %s; what is done stays done, --again does it once more with these", strings.Join(texts, ", "))
	}
}

// tunes are the settings of the plugin that only tune.
func (k *Kind) tunes() (names []string) {
	for _, f := range k.Plugin.Config.Fields() {
		if f.Tune {
			names = append(names, f.Name)
		}
	}
	return names
}

// stopping describes how to stop a process.
func stopping(a ledger.Agent) string {
	if host, err := os.Hostname(); err == nil && host == a.Host {
		return fmt.Sprintf("stop that process (kill %d, or its service)", a.PID)
	}
	return fmt.Sprintf("stop that process (on %s: kill %d, or its service)", a.Host, a.PID)
}

// Worker is the command that works a kind: a worker with the settings that it has to be given, or claim, if people
// work it (byPlugin is false).
func (lc *Local) Worker(ctx context.Context, kind string, k ledger.Kind) (command string, byPlugin bool) {
	if name, _ := lc.PluginOf(kind, k); name == "" {
		return "ledgerd claim " + kind + " --agent YOU", false
	}
	return "ledgerd work --kind " + kind + lc.missingSettings(ctx, kind, k), true
}

// missingSettings are the settings that a command that works the kind has to be given: neither the config of
// this machine has them nor the plugin a default. They come as flags, with the values in force.
func (lc *Local) missingSettings(ctx context.Context, kind string, k ledger.Kind) (flags string) {
	name, _ := lc.PluginOf(kind, k)
	p, err := lc.FindPlugin(ctx, name)
	if err != nil {
		return ""
	}
	have, err := lc.Config.With(kind, p.Config)
	if err != nil {
		return ""
	}
	inForce := map[string]string{}
	for _, d := range definition.Differences("", k.Config) {
		inForce[d.Name] = d.Want
	}
	for _, f := range p.Config.Fields() {
		if !f.Required || isGiven(f.Name, FieldsOf(have)) {
			continue
		}
		value := Assignment(f.Name, json.RawMessage(inForce[f.Name]))
		if inForce[f.Name] == "" || strings.Contains(inForce[f.Name], redact.Mask) {
			value = f.Name + "=…"
		}
		flags += " --with " + shell.Quote(value)
	}
	return flags
}
