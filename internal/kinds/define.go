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
)

// DefineKind records in the ledger which plugin works the kind from now on, with which settings, and how the plugin
// makes items of inputs. me is the agent that works the kind. It is an error while a live process works the kind with
// other settings.
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

// OtherSettingsCode is the code of the error of DefineKind if a live process works a kind with other settings.
const OtherSettingsCode = "other_settings"

// conflict explains a *ledger.DefinitionError: the process that works the kind with other settings, what differs, and
// what to do. Other errors are returned as they are.
func (k *Kind) conflict(err error) error {
	c, ok := errors.AsType[*ledger.DefinitionError](err)
	if !ok {
		return err
	}
	a := c.Agents[0]
	agents := fmt.Sprintf("%s (host %s, pid %d, since %s)", a.Name, a.Host, a.PID,
		a.StartedAt.Local().Format("2006-01-02 15:04"))
	if n := len(c.Agents) - 1; n > 0 {
		agents += fmt.Sprintf(" and %d more", n)
	}
	hint := fmt.Sprintf("%s, then run this again: what is left is worked with the settings of here; or give both the "+
		"same settings\n"+
		"another name for the kind is no way round: its items would be new, and what is done as %s would be done once more", stopping(a), c.Kind)
	refuse := func(format string, args ...any) error {
		f := failure.Usage(OtherSettingsCode, hint, format, args...)
		f.Cause = c
		return f
	}
	there, _, _ := definition.Split(a.Kinds[c.Kind])
	here, _, _ := definition.Split(c.Definition)
	if there != here {
		return refuse("kind %q is worked with another plugin, %s and not %s, by %s", c.Kind, a.Kinds[c.Kind],
			c.Definition, agents)
	}
	differs := k.conflicting(c.Differences())
	if len(differs) == 0 {
		return refuse("kind %q is worked with other settings by %s: what differs is not shown, since it may be a "+
			"secret (%s there, %s here)", c.Kind, agents, a.Kinds[c.Kind], c.Definition)
	}
	return refuse("kind %q is worked with other settings by %s: %s", c.Kind, agents, strings.Join(differs, ", "))
}

// conflicting words the differences in settings that all processes must have alike: not those that only tune.
func (k *Kind) conflicting(all []definition.Difference) (texts []string) {
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

// SayChanged prints the settings that differ from those the kind was worked with before, since items that are done are
// not worked again with the new ones. before and now are JSON; before is "" if the kind was never worked.
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

// Worker returns the command that works a kind: "ledgerd work" with the required settings, or, for a kind that people
// work, "ledgerd claim"; then byPlugin is false.
func (lc *Local) Worker(ctx context.Context, kind string, k ledger.Kind) (command string, byPlugin bool) {
	if name, _ := lc.PluginOf(kind, k); name == "" {
		return "ledgerd claim " + kind + " --agent YOU", false
	}
	return "ledgerd work --kind " + kind + lc.missingSettings(ctx, kind, k), true
}

// missingSettings returns the required settings of the plugin that the config of this machine does not have, as flags
// with the values that the kind was last worked with.
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
		if inForce[f.Name] == "" || !isShown(value) {
			value = f.Name + "=…"
		}
		flags += " --with " + shell.Quote(value)
	}
	return flags
}
