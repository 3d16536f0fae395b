// Package kinds joins what is known of a kind of work: its policy in the ledger, its table in the config of this
// machine, and the plugin that works it here.
//
// Local is one machine: its config and the plugins that are found on it. Resolve looks a kind up, DefineKind makes
// its plugin and settings the ones that the kind is worked with, StartPlugin starts a process for it.
package kinds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// SettingProblems are the plugin's objections to its config, in the form of its schema's.
func SettingProblems(refused *pluginhost.ConfigError) *settings.Error {
	bad := &settings.Error{}
	for _, p := range refused.Problems {
		bad.Problems = append(bad.Problems, settings.Problem{Field: p.Field, Message: p.Message})
	}
	return bad
}

// Kind is a kind of work as this machine and this ledger know it.
type Kind struct {
	Name   string
	Policy ledger.Kind
	Known  bool         // to the ledger
	Config *config.Kind // its table in the config; not nil
	Plugin *Plugin      // that works it here; nil if there is none
	Schema *settings.Schema
	asked  string // the type of INPUT, by --input
	// Remembered are the fields of the payload that come from the kind and not from this command, as
	// assignments.
	Remembered []string
}

// Input is how inputs of the kind are made into items: the plugin knows best.
func (k *Kind) Input() (input ledger.Input) {
	if k.takesAny() {
		input = k.Policy.Input
		if k.Config.Input != nil {
			input.Type = *k.Config.Input
		}
		input.Type = cmp.Or(k.asked, input.Type)
	} else {
		input = k.Plugin.Policy(k.Name).Input
	}
	if k.Plugin != nil {
		input.Secret = k.Schema.Secrets()
	}
	return input
}

// takesAny reports whether no plugin defines the type of INPUT.
func (k *Kind) takesAny() bool { return k.Plugin == nil || k.Plugin.Policy(k.Name).Input.Type == "" }

// Ask sets the type of INPUT by --input, if the plugin leaves it open.
func (k *Kind) Ask(input string) error {
	if input != "" && !k.takesAny() {
		if takes := k.Plugin.Policy(k.Name).Input.Type; takes != input {
			return failure.Usage("bad_flag", "", "--input %s: the plugin %s takes %s", input, k.Plugin.Name, inputNames[takes])
		}
	}
	k.asked = input
	return nil
}

var inputNames = map[string]string{"file": "files", "url": "URLs", "line": "lines of text"}

// CheckKind refuses what is no name of a kind.
func CheckKind(name string) error {
	if err := (ledger.Kind{Name: name}).CheckName(); err != nil {
		hint := ""
		if strings.ContainsAny(name, "./") {
			hint = "the name of a kind comes before its inputs"
		}
		return failure.Usage("invalid", hint, "%q is no name of a kind: %v", name, strings.TrimPrefix(err.Error(), "kind: "))
	}
	return nil
}

// PayloadError explains what is wrong with --set.
func (k *Kind) PayloadError(err error, given []string) error {
	other := settingsAt{}
	if k.Plugin != nil {
		other = settingsAt{"--with", k.Plugin.Config}
	}
	return settingError(err, k.Name, settingsOf{"payload", "--set", given}, other)
}

// settingsOf are settings as they were given.
type settingsOf struct {
	what, flag string
	given      []string
}

// settingsAt are the settings of the other flag, with which one may be mixed up.
type settingsAt struct {
	flag   string
	schema *settings.Schema
}

// settingError names the wrong --set or --with, and the command that lists the right ones.
func settingError(err error, kind string, of settingsOf, other settingsAt) error {
	bad, ok := errors.AsType[*settings.Error](err)
	if !ok {
		return err
	}
	var lines []string
	suggestion := ""
	for _, p := range bad.Problems {
		typed := ""
		for _, g := range of.given {
			if strings.HasPrefix(g, p.Field+"=") || strings.HasPrefix(g, p.Field+":=") {
				typed = fmt.Sprintf(" (%s %s)", of.flag, g)
			}
		}
		if p.Unknown {
			lines = append(lines, fmt.Sprintf("%s has no %s field %q%s", kind, of.what, p.Field, typed))
			if near := cmp.Or(p.Suggestion, other.near(p.Field)); near != "" {
				suggestion = "did you mean " + near + "?   "
			}
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s", kind, p))
	}
	return failure.Usage("bad_setting", fmt.Sprintf("%sfields: ledgerd run %s --help", suggestion, kind), "%s",
		strings.Join(lines, "\n"))
}

// near is the other flag with the field that may have been meant.
func (o settingsAt) near(field string) string {
	if o.schema == nil {
		return ""
	}
	var names []string
	for _, f := range o.schema.Fields() {
		names = append(names, f.Name)
	}
	return report.Prefixed(o.flag+" ", settings.Suggest(field, names))
}

// Untouched reports whether a kind has no policy of its own: it is new, or known only because an item
// of it was emitted, or added by another program, or because it was paused.
func Untouched(k ledger.Kind) bool {
	if k.OnLost == ledger.OnLostRepeat {
		k.OnLost = ""
	}
	return reflect.DeepEqual(k, ledger.Kind{Name: k.Name, Paused: k.Paused})
}

func (k *Kind) edit(ctx context.Context, l ledgers.Any, writer string, edit func(have *ledger.Kind,
	known bool)) (err error) {
	k.Policy, err = l.EditKind(ctx, writer, k.Name, edit)
	k.Known = err == nil
	return err
}

// Resolve finds out what is known of a kind. l is nil if there is no ledger yet.
func (lc *Local) Resolve(ctx context.Context, l ledgers.Any, name, pluginName string) (*Kind, error) {
	k := &Kind{Name: name, Config: lc.Config.Kind(name)}
	if err := CheckKind(name); err != nil {
		return nil, err
	}
	if l != nil {
		policy, err := l.Kind(ctx, name)
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return nil, err
		}
		k.Policy, k.Known = policy, err == nil
	}
	configured := lc.Config.PluginOf(name)
	if configured != "" && configured != k.Policy.Plugin { // it would be written into the ledger, for all machines
		if _, err := lc.Place(configured); IsNoPlugin(err) {
			f := failure.Explain(lc.NoPlugin(ctx, configured))
			f.Message += fmt.Sprintf(" (%s)", lc.Config.Origin("kinds."+name+".plugin"))
			return nil, f
		}
	}
	wanted := cmp.Or(pluginName, configured, k.Policy.Plugin, name)
	var err error
	k.Plugin, err = lc.FindPlugin(ctx, wanted)
	switch {
	case IsNoPlugin(err) && pluginName != "":
		return nil, lc.NoPlugin(ctx, pluginName)
	case IsNoPlugin(err) && !k.Known && k.Config.Input == nil:
		return nil, lc.UnknownKind(ctx, l, name)
	case err != nil && !IsNoPlugin(err):
		return nil, err
	}
	if k.Plugin != nil {
		k.Schema = k.Plugin.Payload
	} else if k.Schema, err = settings.Compile([]byte("{}")); err != nil { // nothing is known of it
		return nil, err
	}
	return k, nil
}
