package kinds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/internal/shell"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// programPath is the path of a command. It may be one of PATH.
func programPath(name string) string {
	if !strings.ContainsRune(name, filepath.Separator) {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return name
}

// Finder looks for plugins in this order: the commands of the config, --plugin-dir, the data
// directory, beside the program, in the program.
func (lc *Local) Finder() (*pluginhost.Finder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &pluginhost.Finder{Self: self}
	for name, p := range lc.Config.Plugins {
		if len(p.Command) > 0 {
			f.Configured = append(f.Configured, pluginhost.Place{Name: name, Path: programPath(p.Command[0]),
				Args: p.Command[1:], Origin: "config"})
		}
	}
	for _, dir := range lc.Dirs {
		if _, err := os.Stat(dir); err != nil {
			return nil, failure.Usage("bad_flag", "", "--plugin-dir %s: does not exist", dir)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		f.Folders = append(f.Folders, pluginhost.Folder{Path: abs, Origin: "--plugin-dir"})
	}
	if store, err := lc.PluginStore(); err == nil {
		f.Folders = append(f.Folders, pluginhost.Folder{Path: store.Dir, Origin: "data"})
	}
	f.Folders = append(f.Folders, pluginhost.Folder{Path: filepath.Dir(self), Origin: "beside ledgerd"})
	f.Bundled = lc.Bundled
	return f, nil
}

// Plugin is a plugin that was found, with its own description.
type Plugin struct {
	*pluginhost.Description
	Spec pluginhost.Spec
}

// FindPlugin finds a plugin by name and asks it what it is.
func (lc *Local) FindPlugin(ctx context.Context, name string) (*Plugin, error) {
	place, err := lc.Place(name)
	if err != nil {
		return nil, err
	}
	return lc.describePlugin(ctx, place)
}

// Place finds a plugin by name, without starting it.
func (lc *Local) Place(name string) (pluginhost.Place, error) {
	f, err := lc.Finder()
	if err != nil {
		return pluginhost.Place{}, err
	}
	return f.Find(name)
}

// places returns all plugins that are found here, by name.
func (lc *Local) places() ([]pluginhost.Place, error) {
	f, err := lc.Finder()
	if err != nil {
		return nil, err
	}
	return f.List()
}

// PluginOf is the plugin that works a kind of the ledger, "" if people do or it is worked elsewhere. A kind that was
// only added to names none; then the plugin of its name works it, if there is one here.
func (lc *Local) PluginOf(kind string, k ledger.Kind) (name string, isHere bool) {
	of, _, _ := definition.Split(k.Definition)
	name = cmp.Or(lc.Config.PluginOf(kind), k.Plugin, of)
	_, err := lc.Place(cmp.Or(name, kind))
	if isHere = !IsNoPlugin(err); isHere {
		name = cmp.Or(name, kind)
	}
	return name, isHere
}

// PluginError explains a plugin that does not start, and how to examine it.
func PluginError(at pluginhost.Place, err error) error {
	f := failure.Explain(err)
	if at.Name != "" {
		f.Message = strings.Replace(f.Message, "plugin "+at.Path+" ", fmt.Sprintf("plugin %s (%s) ", at.Name, at.Path), 1)
	}
	if f.Exit == failure.ExitError && at.Origin != "bundled" {
		what := shell.Quote(at.Path)
		if len(at.Args) > 0 {
			what = at.Name
		}
		f.Hint = strings.TrimPrefix(f.Hint+"\ntry: ledgerd plugin check "+what, "\n")
	}
	return f
}

// PluginConfig puts the config of a kind, and --with over it, into the form that the plugin gets. A
// secret is better in a file, named as file:PATH, than on a command line that others can see.
func (lc *Local) PluginConfig(kind string, p *Plugin, with []string) ([]byte, error) {
	base, err := lc.Config.With(kind, p.Config)
	if err != nil {
		return nil, err
	}
	if with, err = lc.inForce(kind, p, with); err != nil {
		return nil, err
	}
	explain := func(err error) error {
		return settingError(err, p.Name, settingsOf{"config", "--with", with}, settingsAt{"--set", p.Payload})
	}
	given, err := p.Config.Parse(nil, with)
	if err != nil {
		return nil, explain(err)
	}
	_, typed, err := p.Config.Split(given)
	if err != nil {
		return nil, explain(err)
	}
	merged, err := p.Config.Parse(base, with)
	if err != nil {
		return nil, explain(err)
	}
	rest, secrets, err := p.Config.Split(merged)
	if err != nil {
		return nil, explain(err)
	}
	for name, value := range typed {
		secret, isFile, err := config.ReadSecret(value, "")
		if !isFile {
			lc.notice("warning: --with %s=… is visible to everybody on this machine (ps); put it into a file: --with "+
				"%s=file:/PATH", name, name)
			continue
		}
		if err != nil {
			return nil, failure.Usage("bad_setting", "", "--with %s: %v", name, err)
		}
		secrets[name] = secret
	}
	if merged, err = p.Config.Merge(rest, secrets); err != nil {
		return nil, explain(err)
	}
	return merged, explain(p.Config.Validate(merged))
}

// StartPlugin starts the plugin of a kind, with its config, as c describes.
func (lc *Local) StartPlugin(ctx context.Context, k *Kind, with []string, c pluginhost.Config) (*pluginhost.Host,
	error) {
	c, err := lc.HostConfig(k, with, c)
	if err != nil {
		return nil, err
	}
	h, err := pluginhost.Start(ctx, c)
	return h, lc.StartError(k, err)
}

// HostConfig completes how the plugin of a kind is started.
func (lc *Local) HostConfig(k *Kind, with []string, c pluginhost.Config) (_ pluginhost.Config, err error) {
	c.Settings, err = lc.PluginConfig(k.Name, k.Plugin, with)
	c.Spec, c.Kind, c.Concurrency = k.Plugin.Spec, k.Name, lc.Concurrency(k.Name, c.Concurrency)
	return c, err
}

// StartError explains why the plugin of a kind was not started.
func (lc *Local) StartError(k *Kind, err error) error {
	if refused, ok := errors.AsType[*pluginhost.ConfigError](err); ok {
		if err := lc.Config.Refused(k.Name, k.Plugin.Config, SettingProblems(refused)); err != nil {
			return err
		}
		return failure.Usage("bad_setting", fmt.Sprintf("fields: ledgerd run %s --help", k.Plugin.Name), "%s",
			refused.Error())
	}
	if err != nil {
		return PluginError(k.Plugin.Spec.Place, err)
	}
	return nil
}

// StopGrace is how long the process of a plugin may take to end once nothing is in its hands.
const StopGrace = 5 * time.Second

// nearest is the name that may have been meant: one that is written nearly alike, or the only one that has the word
// in it, as filecsv has csv.
func nearest(word string, names []string) string {
	if near := settings.Suggest(word, names); near != "" {
		return near
	}
	const least = 3 // letters
	var within []string
	for _, name := range names {
		if len(word) >= least && strings.Contains(name, strings.ToLower(word)) && !slices.Contains(within, name) {
			within = append(within, name)
		}
	}
	if len(within) == 1 {
		return within[0]
	}
	return ""
}

// UnknownKind explains a kind that this machine does not know.
func (lc *Local) UnknownKind(ctx context.Context, l ledgers.Any, name string) error {
	hint, err := lc.missed(ctx, l, name)
	if err != nil {
		return err
	}
	return failure.Usage("unknown_kind", fmt.Sprintf("%sall kinds: ledgerd plugin ls\n"+
		"a kind that a command works: ledgerd run %[2]s --plugin exec --input file --with command=PROGRAM,{key} INPUT…\n"+
		"one for people or scripts: ledgerd kind set %[2]s --input line", hint, name), "no kind %q", name)
}

// NoPlugin explains a plugin that was named and is not here.
func (lc *Local) NoPlugin(ctx context.Context, name string) error {
	hint, err := lc.missed(ctx, nil, name)
	if err != nil {
		return err
	}
	return failure.Usage("unknown_plugin", hint+"all plugins: ledgerd plugin ls", "no plugin %q", name)
}

// NoPluginFor explains why a kind that the ledger knows cannot be worked here: the plugin that it
// names is missing, or it names none. next is what to do then.
func (lc *Local) NoPluginFor(ctx context.Context, k *Kind, next string) error {
	if k.Policy.Plugin == "" {
		return failure.Usage(health.NoPlugin, next, "kind %q has no plugin here: it is worked by people, or elsewhere", k.Name)
	}
	f := failure.Explain(lc.NoPlugin(ctx, k.Policy.Plugin))
	f.Message = fmt.Sprintf("kind %q: plugin %s not found", k.Name, k.Policy.Plugin)
	return f
}

// missed begins the hint about a name that is nowhere: the places that were looked at, among them the ledger unless l
// is nil, and the name that may be meant.
func (lc *Local) missed(ctx context.Context, l ledgers.Any, name string) (hint string, err error) {
	f, err := lc.Finder()
	if err != nil {
		return "", err
	}
	var folders []string
	for _, folder := range f.Folders {
		if folder.Origin == "beside ledgerd" {
			folders = append(folders, "beside "+f.Self)
		} else {
			folders = append(folders, "in "+folder.Path)
		}
	}
	hint = fmt.Sprintf("not bundled, no ledgerd-plugin-%s %s", name, strings.Join(folders, " or "))
	if l != nil {
		hint += ", not in this ledger"
	}
	near, err := lc.Near(ctx, l, name)
	if err == nil && near != "" {
		return hint + "\ndid you mean " + near + "?   ", nil
	}
	return hint + "\n", err
}

// Near returns the plugin here, or the kind of the ledger if there is one, that a name may have been meant for; "" if
// there is none.
func (lc *Local) Near(ctx context.Context, l ledgers.Any, name string) (string, error) {
	places, err := lc.places()
	if err != nil {
		return "", err
	}
	var names []string
	for _, p := range places {
		names = append(names, p.Name)
	}
	if l != nil {
		known, err := l.Kinds(ctx)
		if err != nil {
			return "", err
		}
		for _, k := range known {
			names = append(names, k.Name)
		}
	}
	return nearest(name, names), nil
}

// IsNoPlugin distinguishes a plugin that is not there from one that does not start.
func IsNoPlugin(err error) bool { return errors.Is(err, pluginhost.ErrNotFound) }

// PluginStore is where plugins of this user are added.
func (lc *Local) PluginStore() (pluginstore.Store, error) {
	data, err := lc.DataDir()
	return pluginstore.Store{Dir: filepath.Join(data, "plugins")}, err
}

// Defaults is the policy of a kind with the plugin's defaults if it is untouched. A plugin that is not
// here (nil) has none.
func (p *Plugin) Defaults(kind string, have ledger.Kind) ledger.Kind {
	if p == nil || !Untouched(have) {
		return have
	}
	policy := p.Policy(kind)
	policy.Paused = have.Paused
	return policy
}

// Concurrency is how many items of a kind are worked at a time: what was typed, else the config's
// value for the kind, else for all; 0 leaves it to the plugin.
func (lc *Local) Concurrency(kind string, typed int) int {
	return cmp.Or(typed, lc.Config.Kind(kind).Concurrency, lc.Config.Concurrency)
}

// PluginSpec is how the plugin at a place is started, by the config.
func (lc *Local) PluginSpec(place pluginhost.Place) pluginhost.Spec {
	s := pluginhost.Spec{Place: place, SHA256: place.SHA256, Logger: lc.Log}
	p := lc.Config.Plugins[place.Name]
	if p == nil {
		return s
	}
	s.Limits = pluginproc.Limits{Memory: int64(p.Memory), CPU: p.CPU, OpenFiles: p.OpenFiles, Processes: p.Processes}
	s.NoMTLS, s.Dir, s.CallTime = !p.MTLS, p.Dir, p.AnswerTime
	if len(p.SHA256) > 0 && !p.HasSum(place.SHA256) {
		s.SHA256 = strings.Join(p.SHA256, pluginproc.SumOr)
	}
	for _, name := range p.Env {
		if value, ok := os.LookupEnv(name); ok {
			s.Env = append(s.Env, name+"="+value)
		}
	}
	return s
}

// Surveyed is a plugin that was asked what it is, and what came of that.
type Surveyed struct {
	Place  pluginhost.Place
	Plugin *Plugin // nil with an error
	Err    error
	Took   time.Duration
}

// SurveyMost is how many plugins are asked at a time. Each has its deadline, so those that do not answer
// cost one deadline together.
const SurveyMost = 64

// Survey asks all plugins that are found here what they are, in the order of their names.
func (lc *Local) Survey(ctx context.Context) ([]Surveyed, error) {
	places, err := lc.places()
	if err != nil {
		return nil, err
	}
	all := make([]Surveyed, len(places))
	var asking errgroup.Group
	asking.SetLimit(SurveyMost)
	for i, place := range places {
		asking.Go(func() error {
			began := time.Now()
			all[i].Place = place
			all[i].Plugin, all[i].Err = lc.describePlugin(ctx, place)
			all[i].Took = time.Since(began)
			return nil
		})
	}
	return all, asking.Wait()
}

// describePlugin asks the plugin at a place what it is.
func (lc *Local) describePlugin(ctx context.Context, place pluginhost.Place) (_ *Plugin, err error) {
	p := &Plugin{Spec: lc.PluginSpec(place)}
	if p.Description, err = pluginhost.Describe(ctx, p.Spec); err != nil {
		return nil, PluginError(place, err)
	}
	return p, nil
}
