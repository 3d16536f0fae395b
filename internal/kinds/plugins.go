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

// programPath returns the path of a command. A name without a slash is looked up in PATH.
func programPath(name string) string {
	if !strings.ContainsRune(name, filepath.Separator) {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return name
}

// Finder returns where plugins are looked for, in this order: the commands of the config, --plugin-dir, the data
// directory, beside the program, in the program. A --plugin-dir that does not exist is an error.
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

// FindPlugin finds a plugin by name and asks it for its description.
func (lc *Local) FindPlugin(ctx context.Context, name string) (*Plugin, error) {
	place, err := lc.Place(name)
	if err != nil {
		return nil, err
	}
	return lc.describePlugin(ctx, place)
}

// Place returns where a plugin is. IsNoPlugin recognises the error if there is none.
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

// PluginOf returns the plugin that works a kind of the ledger, "" if people work it or only other machines do. A kind
// to which items were added but that was never worked names no plugin: the plugin of its name works it, if it is here.
func (lc *Local) PluginOf(kind string, k ledger.Kind) (name string, isHere bool) {
	defined, _, _ := definition.Split(k.Definition)
	name = cmp.Or(lc.Config.PluginOf(kind), k.Plugin, defined)
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

// PluginConfig returns the JSON that the plugin gets: the config of a kind, with --with over it. It warns of a secret
// in --with, since other users see command lines: a secret is better in a file, named as file:PATH.
func (lc *Local) PluginConfig(kind string, p *Plugin, with []string) ([]byte, error) {
	base, err := lc.Config.With(kind, p.Config)
	if err != nil {
		return nil, err
	}
	if with, err = lc.inForce(kind, p, with); err != nil {
		return nil, err
	}
	explain := func(err error) error {
		return settingError(err, p.Name, flagValues{"config", "--with", with}, flagFields{"--set", p.Payload})
	}
	typed, err := p.Config.Parse(nil, with)
	if err != nil {
		return nil, explain(err)
	}
	_, typedSecrets, err := p.Config.Split(typed)
	if err != nil {
		return nil, explain(err)
	}
	merged, err := p.Config.Parse(base, with)
	if err != nil {
		return nil, explain(err)
	}
	public, secrets, err := p.Config.Split(merged)
	if err != nil {
		return nil, explain(err)
	}
	for name, value := range typedSecrets {
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
	if merged, err = p.Config.Merge(public, secrets); err != nil {
		return nil, explain(err)
	}
	return merged, explain(p.Config.Validate(merged))
}

// StartPlugin starts the plugin of a kind. It adds to c what the config and --with have for it.
func (lc *Local) StartPlugin(ctx context.Context, k *Kind, with []string, c pluginhost.Config) (*pluginhost.Host,
	error) {
	c, err := lc.HostConfig(k, with, c)
	if err != nil {
		return nil, err
	}
	h, err := pluginhost.Start(ctx, c)
	return h, lc.StartError(k, err)
}

// HostConfig adds to c what StartPlugin needs: the program, the kind, its settings and its concurrency.
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

// StopGrace is how long the process of a plugin may take to end once it works no item.
const StopGrace = 5 * time.Second

// nearest returns the name that may have been meant with a word: a name that is written nearly alike, or the only name
// that contains the word, as filecsv contains csv. It returns "" if there is none.
func nearest(word string, names []string) string {
	if near := settings.Suggest(word, names); near != "" {
		return near
	}
	const shortestWord = 3 // letters
	var containing []string
	for _, name := range names {
		if len(word) >= shortestWord && strings.Contains(name, strings.ToLower(word)) && !slices.Contains(containing, name) {
			containing = append(containing, name)
		}
	}
	if len(containing) == 1 {
		return containing[0]
	}
	return ""
}

// UnknownKind explains a kind that this machine does not know.
func (lc *Local) UnknownKind(ctx context.Context, l ledgers.Any, name string) error {
	hint, err := lc.notFoundHint(ctx, l, name)
	if err != nil {
		return err
	}
	return failure.Usage("unknown_kind", fmt.Sprintf("%sall kinds: ledgerd plugin ls\n"+
		"a kind that a command works: ledgerd run %[2]s --plugin exec --input file --with command=PROGRAM,{key} INPUT…\n"+
		"one for people or scripts: ledgerd kind set %[2]s --input line", hint, name), "no kind %q", name)
}

// NoPlugin explains a plugin that was named and is not here.
func (lc *Local) NoPlugin(ctx context.Context, name string) error {
	hint, err := lc.notFoundHint(ctx, nil, name)
	if err != nil {
		return err
	}
	return failure.Usage("unknown_plugin", hint+"all plugins: ledgerd plugin ls", "no plugin %q", name)
}

// NoPluginFor explains why a kind of the ledger cannot be worked here. Its plugin is missing, or it has none: then next
// is the hint.
func (lc *Local) NoPluginFor(ctx context.Context, k *Kind, next string) error {
	if k.Policy.Plugin == "" {
		return failure.Usage(health.NoPlugin, next, "kind %q has no plugin here: it is worked by people, or elsewhere", k.Name)
	}
	f := failure.Explain(lc.NoPlugin(ctx, k.Policy.Plugin))
	f.Message = fmt.Sprintf("kind %q: plugin %s not found", k.Name, k.Policy.Plugin)
	return f
}

// notFoundHint begins the hint about a name that was not found: the places that were looked at, and a name that may be
// meant. l is nil if the ledger was not looked at.
func (lc *Local) notFoundHint(ctx context.Context, l ledgers.Any, name string) (hint string, err error) {
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

// Near returns the plugin here, or the kind of the ledger, that may have been meant with a name; "" if there is none. l
// may be nil.
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

// IsNoPlugin reports whether an error means that a plugin is not here. A plugin that does not start has other errors.
func IsNoPlugin(err error) bool { return errors.Is(err, pluginhost.ErrNotFound) }

// PluginStore is where plugins of this user are added.
func (lc *Local) PluginStore() (pluginstore.Store, error) {
	data, err := lc.DataDir()
	return pluginstore.Store{Dir: filepath.Join(data, "plugins")}, err
}

// Defaults returns the policy that a kind begins with: the plugin's, if have is Untouched and p not nil; else have.
func (p *Plugin) Defaults(kind string, have ledger.Kind) ledger.Kind {
	if p == nil || !Untouched(have) {
		return have
	}
	policy := p.Policy(kind)
	policy.Paused = have.Paused
	return policy
}

// Concurrency returns how many items of a kind are worked at a time: typed if it is not 0, else the config's value for
// the kind, else the config's value for all kinds. 0 leaves it to the plugin.
func (lc *Local) Concurrency(kind string, typed int) int {
	return cmp.Or(typed, lc.Config.Kind(kind).Concurrency, lc.Config.Concurrency)
}

// PluginSpec returns how the config starts the plugin at a place.
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

// Surveyed is what a plugin answered when Survey asked for its description.
type Surveyed struct {
	Place  pluginhost.Place
	Plugin *Plugin // nil with an error
	Err    error
	Took   time.Duration
}

// SurveyMost is how many plugins are asked at a time. Each has the same deadline, so 64 that do not answer take no
// longer than one.
const SurveyMost = 64

// Survey asks all plugins that are found here for their descriptions. The result is in the order of names.
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

// describePlugin asks the plugin at a place for its description.
func (lc *Local) describePlugin(ctx context.Context, place pluginhost.Place) (_ *Plugin, err error) {
	p := &Plugin{Spec: lc.PluginSpec(place)}
	if p.Description, err = pluginhost.Describe(ctx, p.Spec); err != nil {
		return nil, PluginError(place, err)
	}
	return p, nil
}
