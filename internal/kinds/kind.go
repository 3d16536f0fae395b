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

// SettingProblems returns what a plugin found wrong with its config, in the form in which its schema reports mistakes.
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
	Known  bool         // the ledger has the kind
	Config *config.Kind // its table in the config; not nil
	Plugin *Plugin      // that works it here; nil if there is none
	Schema *settings.Schema
	asked  string // the type of INPUT, by --input
	// Remembered are assignments of the fields of the payload that the command did not set: the kind keeps their values
	// from an earlier one.
	Remembered []string
}

// Input returns how inputs of the kind are made into items. The plugin decides; if it leaves the type open, --input,
// the config and the policy decide, in this order.
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

// takesAny reports whether the plugin leaves the type of INPUT open, or there is no plugin.
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

// CheckKind refuses a text that cannot be the name of a kind.
func CheckKind(name string) error {
	if err := (ledger.Kind{Name: name}).CheckName(); err != nil {
		hint := ""
		if strings.ContainsAny(name, "./") {
			hint = "the name of a kind comes before its inputs"
		}
		return failure.Usage("invalid", hint, "%q is not a name of a kind: %v", name,
			strings.TrimPrefix(err.Error(), "kind: "))
	}
	return nil
}

// PayloadError explains what is wrong with a payload that --set gave.
func (k *Kind) PayloadError(err error, set []string) error {
	with := flagFields{flag: "--with"}
	if k.Plugin != nil {
		with.schema = k.Plugin.Config
	}
	return settingError(err, k.Name, flagValues{"payload", "--set", set}, with)
}

// flagValues are the assignments of --set, for the payload, or --with, for the config of the plugin.
type flagValues struct {
	what, flag  string
	assignments []string
}

// flagFields are the fields that --set or --with takes; schema may be nil.
type flagFields struct {
	flag   string
	schema *settings.Schema
}

// settingError names the wrong assignment, and the command that lists the fields. A field that only the other flag
// takes is proposed with that flag.
func settingError(err error, kind string, values flagValues, other flagFields) error {
	bad, ok := errors.AsType[*settings.Error](err)
	if !ok {
		return err
	}
	var lines []string
	suggestion := ""
	for _, p := range bad.Problems {
		typed := ""
		for _, a := range values.assignments {
			if settings.Assigned(a) == p.Field {
				typed = fmt.Sprintf(" (%s %s)", values.flag, a)
			}
		}
		if p.Unknown {
			lines = append(lines, fmt.Sprintf("%s has no %s field %q%s", kind, values.what, p.Field, typed))
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

// near returns the flag with its field that is written nearly like a name; "" if there is none.
func (f flagFields) near(name string) string {
	if f.schema == nil {
		return ""
	}
	var names []string
	for _, field := range f.schema.Fields() {
		names = append(names, field.Name)
	}
	return report.Prefixed(f.flag+" ", settings.Suggest(name, names))
}

// Untouched reports whether a kind has no policy of its own. The ledger may know it only because a plugin emitted an
// item of it, another program added one, or it was paused.
func Untouched(k ledger.Kind) bool {
	if k.OnLost == ledger.OnLostRepeat {
		k.OnLost = ""
	}
	return reflect.DeepEqual(k, ledger.Kind{Name: k.Name, Paused: k.Paused})
}

// edit changes the policy of the kind in the ledger, for writer in the journal.
func (k *Kind) edit(ctx context.Context, l ledgers.Any, writer string, change func(have *ledger.Kind,
	known bool)) (err error) {
	k.Policy, err = l.EditKind(ctx, writer, k.Name, change)
	k.Known = err == nil
	return err
}

// useSchema takes the schema of the payload from the plugin. Without a plugin any payload is valid.
func (k *Kind) useSchema() (err error) {
	if k.Plugin != nil {
		k.Schema = k.Plugin.Payload
		return nil
	}
	k.Schema, err = settings.Compile([]byte("{}"))
	return err
}

// Resolve finds out what is known of a kind. l is nil if there is no ledger yet; pluginName is the plugin that a
// command names, "" for none.
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
	if configured != "" && configured != k.Policy.Plugin { // working the kind would write it into the ledger
		if _, err := lc.Place(configured); IsNoPlugin(err) {
			f := failure.Explain(lc.NoPlugin(ctx, configured))
			f.Message += fmt.Sprintf(" (%s)", lc.Config.Origin("kinds."+name+".plugin"))
			f.Hint += "\nthe config of a machine that only adds items needs no plugin: leave the key out there"
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
	return k, k.useSchema()
}
