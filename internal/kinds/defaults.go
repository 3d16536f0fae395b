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

// Payload makes the payload of new items from the defaults that the kind remembers, the config of this machine
// (configured) and --set; a later one replaces fields of an earlier one. given are the names of the fields that the
// config or --set gives; remembered are assignments of those that come from the kind.
func (k *Kind) Payload(configured json.RawMessage, set []string) (payload json.RawMessage, given, remembered []string,
	err error) {
	given = FieldsOf(configured)
	for _, a := range set {
		given = append(given, settings.Assigned(a))
	}
	policy := k.Policy
	policy.Defaults = policy.Defaults.Flat()
	settled, varied := policy.DefaultFields()
	if varied = slices.DeleteFunc(varied, func(name string) bool { return isGiven(name, given) }); len(varied) > 0 {
		return nil, nil, nil, k.variedError(varied)
	}
	for _, name := range settled {
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

// FieldsOf returns the sorted names of the fields of an object. It is never nil: in ledger.NewItem.Given nil means all.
func FieldsOf(object json.RawMessage) []string {
	var fields map[string]json.RawMessage
	_ = json.Unmarshal(object, &fields) // a schema made it, so it is an object
	names := slices.AppendSeq([]string{}, maps.Keys(fields))
	slices.Sort(names)
	return names
}

// isGiven reports whether a field is among those that are given, by its own name or by that of an object around it.
func isGiven(name string, given []string) bool {
	return slices.ContainsFunc(given, func(g string) bool { return name == g || strings.HasPrefix(name, g+".") })
}

// variedError asks for the values of fields to which earlier commands gave different values.
func (k *Kind) variedError(names []string) error {
	last := ""
	for _, name := range names {
		last += " --set " + shell.Quote(Assignment(name, k.Policy.Defaults.Flat()[name].Value))
	}
	return failure.Usage("which", fmt.Sprintf("say it with --set; or once for all, as given last: ledgerd kind set "+
		"%s%s; or leave it to the plugin: ledgerd kind set %s --unset %s",
		k.Name, last, k.Name, strings.Join(names, " --unset ")),
		"kind %q was given different values of %s: which one is meant?", k.Name, strings.Join(names, ", "))
}

// Assignment returns a field with its value as --set takes it: NAME=TEXT or NAME:=JSON.
func Assignment(name string, value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) == nil {
		return name + "=" + text
	}
	return name + ":=" + string(value)
}

// Unkept are the values that Remember did not keep, because a field of the command is about a single input.
type Unkept struct {
	Single string   // the field about a single input
	Set    []string // the other fields, as assignments
}

// Remember keeps the last --set with the kind, for commands that give none. It keeps nothing of a command with a field
// that the plugin marks as about a single input: the whole command is about its inputs only. Nothing is kept for a kind
// whose items must not be worked twice.
func (k *Kind) Remember(ctx context.Context, l ledgers.Any, set []string) (unkept Unkept, err error) {
	if len(set) == 0 || k.Policy.OnLost == ledger.OnLostDoubt {
		return unkept, nil
	}
	given, err := k.values(set)
	if err != nil {
		return unkept, err
	}
	maps.DeleteFunc(given, func(name string, _ json.RawMessage) bool { // secrets: everybody may read the policy
		within := func(secret string) bool { return strings.HasPrefix(secret, name+".") }
		return isGiven(name, k.Schema.Secrets()) || slices.ContainsFunc(k.Schema.Secrets(), within)
	})
	for _, f := range k.Schema.Fields() {
		maps.DeleteFunc(given, func(name string, _ json.RawMessage) bool {
			isSingle := f.Single && isGiven(name, []string{f.Name})
			if isSingle {
				unkept.Single = f.Name
			}
			return isSingle
		})
	}
	if d := k.Policy.Defaults.Flat(); d.String() == d.Remember(given).String() {
		return unkept, nil
	}
	if unkept.Single == "" {
		return unkept, k.edit(ctx, l, Process(), func(have *ledger.Kind, _ bool) {
			have.Defaults = have.Defaults.Remember(given)
		})
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		unkept.Set = append(unkept.Set, Assignment(name, given[name]))
	}
	return unkept, nil
}

// values returns the values of assignments as JSON, by the name of the field.
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

// SettingDefaults returns the change that --set and --unset of "kind set" make to the defaults that the kind remembers;
// nil if there is neither.
func (lc *Local) SettingDefaults(ctx context.Context, have ledger.Kind, name, plugin string, set,
	unset []string) (func(payload.Defaults) payload.Defaults, error) {
	if len(set)+len(unset) == 0 {
		return nil, nil
	}
	k := &Kind{Name: name, Policy: have, Config: lc.Config.Kind(name)}
	var err error
	k.Plugin, err = lc.FindPlugin(ctx, cmp.Or(plugin, lc.Config.PluginOf(name), have.Plugin, name))
	if err != nil && !IsNoPlugin(err) {
		return nil, err
	}
	if err := k.useSchema(); err != nil {
		return nil, err
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
		names := slices.Collect(maps.Keys(given)) // an object replaces all its fields
		maps.DeleteFunc(d, func(name string, _ payload.Default) bool { return isGiven(name, names) })
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

// checkDefaults refuses assignments that no payload of the kind can have. Required fields may be missing.
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
