package kinds

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/payload"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Payload makes the payload of new items from what the kind remembers, the config of this machine and --set,
// each over the one before. given are the fields that the config or --set gives now; remembered are those
// that come from the kind, as assignments.
func (k *Kind) Payload(configured json.RawMessage, set []string) (payload json.RawMessage, given, remembered []string,
	err error) {
	given = FieldsOf(configured)
	for _, a := range set {
		given = append(given, settings.Assigned(a))
	}
	policy := k.Policy
	policy.Defaults = policy.Defaults.Flat()
	have, varied := policy.DefaultFields()
	if varied = slices.DeleteFunc(varied, func(name string) bool { return isGiven(name, given) }); len(varied) > 0 {
		return nil, nil, nil, k.varied(varied)
	}
	for _, name := range have {
		if !isGiven(name, given) {
			remembered = append(remembered, name+":="+string(policy.Defaults[name].Value))
		}
	}
	if payload, err = k.Schema.Parse(configured, remembered); err != nil {
		return nil, nil, nil, failure.Usage("bad_setting",
			fmt.Sprintf("ledgerd kind show %s; ledgerd kind set %s --unset NAME", k.Name, k.Name),
			"kind %q remembers a field that its plugin does not take: %v", k.Name, err)
	}
	if payload, err = k.Schema.Parse(payload, set); err != nil {
		return nil, nil, nil, k.PayloadError(err, set)
	}
	return payload, given, remembered, nil
}

// FieldsOf are the names of an object.
func FieldsOf(object json.RawMessage) []string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(object, &fields) // it was made by a schema
	names := make([]string, 0, len(fields))
	for name := range fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// isGiven reports whether a field, or an object that it is in, is among those that are given.
func isGiven(name string, given []string) bool {
	return slices.ContainsFunc(given, func(g string) bool { return name == g || strings.HasPrefix(name, g+".") })
}

// varied refuses to guess a field that commands have given differently.
func (k *Kind) varied(names []string) error {
	last := ""
	for _, name := range names {
		last += " --set " + shell.Quote(Assignment(name, k.Policy.Defaults.Flat()[name].Value))
	}
	return failure.Usage("which", fmt.Sprintf("say it with --set; or once for all, as given last: ledgerd kind set "+
		"%s%s; or leave it to the plugin: ledgerd kind set %s --unset %s",
		k.Name, last, k.Name, strings.Join(names, " --unset ")),
		"kind %q was given different values of %s: which one is meant?", k.Name, strings.Join(names, ", "))
}

// Assignment is a value as --set takes it.
func Assignment(name string, value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return name + "=" + text
	}
	return name + ":=" + string(value)
}

// Unkept is what a kind would have kept of a command that gives a field about a single input.
type Unkept struct {
	Single string   // the field
	Set    []string // assignments
}

// Remember keeps the last --set with the kind, for commands that give none. A command that gives a field which the
// plugin marks as being about a single input is about these inputs: nothing of it is kept, and Unkept returns it.
// Nothing is kept for a kind whose work must not be repeated.
func (k *Kind) Remember(ctx context.Context, l ledgers.Any, set []string) (not Unkept, err error) {
	if len(set) == 0 || k.Policy.OnLost == ledger.OnLostDoubt {
		return not, nil
	}
	given, err := k.values(set)
	if err != nil {
		return not, err
	}
	maps.DeleteFunc(given, func(name string, _ json.RawMessage) bool { // the policy of a kind is read by everybody
		within := func(secret string) bool { return strings.HasPrefix(secret, name+".") }
		return isGiven(name, k.Schema.Secrets()) || slices.ContainsFunc(k.Schema.Secrets(), within)
	})
	for _, f := range k.Schema.Fields() {
		maps.DeleteFunc(given, func(name string, _ json.RawMessage) bool {
			about := f.Single && isGiven(name, []string{f.Name})
			if about {
				not.Single = f.Name
			}
			return about
		})
	}
	if d := k.Policy.Defaults.Flat(); d.String() == d.Remember(given).String() {
		return not, nil
	}
	if not.Single == "" {
		return not, k.edit(ctx, l, Process(), func(have *ledger.Kind, _ bool) {
			have.Defaults = have.Defaults.Remember(given)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		not.Set = append(not.Set, Assignment(name, given[name]))
	}
	return not, nil
}

// values are assignments as JSON, by name.
func (k *Kind) values(set []string) (map[string]json.RawMessage, error) {
	all := map[string]json.RawMessage{}
	for _, a := range set {
		name := settings.Assigned(a)
		object, err := k.Schema.Parse(nil, []string{a})
		if err != nil {
			return nil, k.PayloadError(err, set)
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

// SettingDefaults is what --set and --unset of kind set do to what the kind remembers.
func (lc *Local) SettingDefaults(ctx context.Context, have ledger.Kind, name, plugin string, set,
	unset []string) (func(payload.Defaults) payload.Defaults, error) {
	if len(set)+len(unset) == 0 {
		return nil, nil
	}
	k := &Kind{Name: name, Policy: have, Config: lc.Config.Kind(name)}
	var err error
	k.Plugin, err = lc.FindPlugin(ctx, cmp.Or(plugin, lc.Config.PluginOf(name), have.Plugin, name))
	switch {
	case err == nil:
		k.Schema = k.Plugin.Payload
	case !IsNoPlugin(err):
		return nil, err
	default: // nothing is known of the payload
		if k.Schema, err = settings.Compile([]byte("{}")); err != nil {
			return nil, err
		}
	}
	given, err := k.values(set)
	if err == nil {
		err = k.checkDefaults(set)
	}
	if err != nil {
		return nil, err
	}
	for _, name := range unset {
		if !slices.ContainsFunc(slices.Collect(maps.Keys(have.Defaults.Flat())), func(known string) bool {
			return isGiven(known, []string{name})
		}) {
			return nil, failure.Usage("bad_flag", "ledgerd kind show "+k.Name, "--unset %s: kind %s remembers no such field",
				name, k.Name)
		}
	}
	return func(d payload.Defaults) payload.Defaults {
		if d = d.Flat(); d == nil {
			d = payload.Defaults{}
		}
		whole := slices.Collect(maps.Keys(given))
		maps.DeleteFunc(d, func(name string, _ payload.Default) bool { return isGiven(name, whole) })
		for name, value := range given {
			d[name] = payload.Default{Value: value, Kept: true}
		}
		d = d.Flat()
		maps.DeleteFunc(d, func(name string, _ payload.Default) bool { return isGiven(name, unset) })
		if len(d) == 0 {
			return nil
		}
		return d
	}, nil
}

// checkDefaults refuses what can be in no payload of the kind.
func (k *Kind) checkDefaults(set []string) error {
	in := k.Input()
	for _, a := range set {
		if name := settings.Assigned(a); name != "" && slices.Contains([]string{in.Field, in.Modified, in.Owner}, name) {
			return failure.Usage("bad_setting", "", "--set %s: is the field that INPUT fills", a)
		}
	}
	payload, err := k.Schema.Parse(nil, set)
	if err != nil {
		return k.PayloadError(err, set)
	}
	bad, ok := errors.AsType[*settings.Error](k.Schema.Validate(payload))
	if !ok {
		return nil
	}
	bad.Problems = slices.DeleteFunc(bad.Problems, func(p settings.Problem) bool { return p.Missing })
	if len(bad.Problems) == 0 {
		return nil
	}
	return k.PayloadError(bad, set)
}
