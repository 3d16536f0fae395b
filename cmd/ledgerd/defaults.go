package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// payload makes the payload of new items from what the kind remembers, the config of this machine and --set,
// each over the one before. given are the fields that were said here and now, by the config or by --set;
// remembered are those that come from the kind, as assignments.
func (k *kind) payload(configured json.RawMessage, set []string) (payload json.RawMessage, given, remembered []string, err error) {
	given = fieldsOf(configured)
	for _, a := range set {
		given = append(given, settings.Assigned(a))
	}
	have, varied := k.policy.Defaults.Of(k.policy.OnLost)
	if varied = slices.DeleteFunc(varied, func(name string) bool { return isGiven(name, given) }); len(varied) > 0 {
		return nil, nil, nil, k.varied(varied)
	}
	for _, name := range have {
		if !isGiven(name, given) {
			remembered = append(remembered, name+":="+string(k.policy.Defaults[name].Value))
		}
	}
	if payload, err = k.schema.Parse(configured, remembered); err != nil {
		return nil, nil, nil, usage("bad_setting", fmt.Sprintf("ledgerd kind show %s; ledgerd kind set %s --unset NAME", k.name, k.name),
			"kind %q remembers a field that its plugin does not take: %v", k.name, err)
	}
	if payload, err = k.schema.Parse(payload, set); err != nil {
		return nil, nil, nil, k.payloadError(err, set)
	}
	return payload, given, remembered, nil
}

// fieldsOf are the names of an object.
func fieldsOf(object json.RawMessage) []string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(object, &fields) // it was made by a schema
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// isGiven tells whether a field, or an object that it is in, is among those that are given.
func isGiven(name string, given []string) bool {
	return slices.ContainsFunc(given, func(g string) bool { return name == g || strings.HasPrefix(name, g+".") })
}

// varied refuses to guess a field that commands have given differently.
func (k *kind) varied(names []string) error {
	last := ""
	for _, name := range names {
		last += " --set " + shell.Quote(assignment(name, k.policy.Defaults[name].Value))
	}
	return usage("which", fmt.Sprintf("say it with --set; or once for all, as given last: ledgerd kind set %s%s; or leave it to the plugin: ledgerd kind set %s --unset %s",
		k.name, last, k.name, strings.Join(names, " --unset ")),
		"kind %q was given different values of %s: which one is meant?", k.name, strings.Join(names, ", "))
}

// assignment is a value as --set takes it.
func assignment(name string, value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return name + "=" + text
	}
	return name + ":=" + string(value)
}

// sayRemembered tells that values are used which this command was not given.
func (j *job) sayRemembered(remembered []string) {
	if len(remembered) == 0 || j.app.quiet {
		return
	}
	var texts []string
	for _, a := range remembered {
		name, value, _ := strings.Cut(a, ":=")
		texts = append(texts, shell.Quote(assignment(name, json.RawMessage(value))))
	}
	fmt.Fprintf(j.app.stderr, "set: %s (for new items, as kind %s was told before; other values: --set, all of them: ledgerd kind show %s)\n", strings.Join(texts, " "), j.kind.name, j.kind.name)
}

// remember keeps with the kind what --set gave last, for commands that do not say it. Fields that the plugin
// marks as being about a single input are not kept. A command that gives such a field is about these inputs,
// so a kind that was told something before learns nothing from it. Neither does a kind whose work must not be
// repeated.
func (k *kind) remember(ctx context.Context, l *ledger.Ledger, set []string) error {
	if len(set) == 0 || k.policy.OnLost == ledger.OnLostDoubt {
		return nil
	}
	given, err := k.values(set)
	if err != nil {
		return err
	}
	all := len(given)
	for _, f := range k.schema.Fields() {
		if f.Single {
			maps.DeleteFunc(given, func(name string, _ json.RawMessage) bool { return isGiven(name, []string{f.Name}) })
		}
	}
	if len(given) < all && len(k.policy.Defaults) > 0 {
		return nil
	}
	if d := k.policy.Defaults; d.String() == d.Remember(given).String() {
		return nil
	}
	return k.edit(ctx, l, process(), func(have *ledger.Kind, _ bool) { have.Defaults = have.Defaults.Remember(given) })
}

// values are assignments as JSON, by name.
func (k *kind) values(set []string) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, a := range set {
		name := settings.Assigned(a)
		object, err := k.schema.Parse(nil, []string{a})
		if err != nil {
			return nil, k.payloadError(err, set)
		}
		for part := range strings.SplitSeq(name, ".") {
			var fields map[string]json.RawMessage
			if err := json.Unmarshal(object, &fields); err != nil {
				return nil, err
			}
			object = fields[part]
		}
		all[name] = object
	}
	return all, nil
}

// settingDefaults is what --set and --unset of kind set do to what the kind remembers.
func (a *app) settingDefaults(ctx context.Context, have ledger.Kind, name string, p policy) (func(ledger.Defaults) ledger.Defaults, error) {
	if len(p.set)+len(p.unset) == 0 {
		return nil, nil
	}
	k := &kind{name: name, policy: have, config: a.config.Kind(name)}
	var err error
	k.plugin, err = a.findPlugin(ctx, cmp.Or(p.plugin, a.config.PluginOf(name), have.Plugin, name), pluginDirs{list: a.config.PluginDir})
	switch {
	case err == nil:
		k.schema = k.plugin.Payload
	case !isNoPlugin(err):
		return nil, err
	default: // nothing is known of the payload
		if k.schema, err = settings.Compile([]byte("{}")); err != nil {
			return nil, err
		}
	}
	given, err := k.values(p.set)
	if err == nil {
		err = k.checkDefaults(p.set)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range p.unset {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(have.Defaults)), func(known string) bool { return isGiven(known, []string{name}) }) {
			return nil, usage("bad_flag", "ledgerd kind show "+k.name, "--unset %s: kind %s remembers no such field", name, k.name)
		}
	}
	return func(d ledger.Defaults) ledger.Defaults {
		d = maps.Clone(d)
		for name, value := range given {
			if d == nil {
				d = ledger.Defaults{}
			}
			d[name] = ledger.Default{Value: value, Kept: true}
		}
		maps.DeleteFunc(d, func(name string, _ ledger.Default) bool { return isGiven(name, p.unset) })
		if len(d) == 0 {
			return nil
		}
		return d
	}, nil
}

// checkDefaults refuses what can be in no payload of the kind.
func (k *kind) checkDefaults(set []string) error {
	in := k.input()
	for _, a := range set {
		if name := settings.Assigned(a); name != "" && slices.Contains([]string{in.Field, in.Modified, in.Owner}, name) {
			return usage("bad_setting", "", "--set %s: is what INPUT says", a)
		}
	}
	payload, err := k.schema.Parse(nil, set)
	if err != nil {
		return k.payloadError(err, set)
	}
	bad, ok := errors.AsType[*settings.Error](k.schema.Validate(payload))
	if !ok {
		return nil
	}
	bad.Problems = slices.DeleteFunc(bad.Problems, func(p settings.Problem) bool { return p.Missing })
	if len(bad.Problems) == 0 {
		return nil
	}
	return k.payloadError(bad, set)
}
