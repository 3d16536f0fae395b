package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/daemon"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/plugins/exec"
	"github.com/ledgerd/ledgerd/plugins/feed"
	"github.com/ledgerd/ledgerd/plugins/filecsv"
	"github.com/ledgerd/ledgerd/plugins/mail"
	"github.com/ledgerd/ledgerd/plugins/photo"
	"github.com/ledgerd/ledgerd/plugins/urlcheck"
	"github.com/ledgerd/ledgerd/sdk"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// bundled are the plugins that are linked into this program. They run as processes of their
// own: ledgerd starts itself, with the plugin's name as its argument.
var bundled = map[string]func() *sdk.Plugin{
	"exec":      exec.Plugin,
	"feed":      feed.Plugin,
	"filecsv":   filecsv.Plugin,
	"mail":      mail.Plugin,
	"photo":     photo.Plugin,
	"urlcheck":  urlcheck.Plugin,
	benchPlugin: benchNothing,
}

// servePlugin is the whole program if it was started as the process of a bundled plugin.
func servePlugin() {
	if !sdk.Started() {
		return
	}
	if len(os.Args) == 2 && bundled[os.Args[1]] != nil {
		sdk.Serve(bundled[os.Args[1]]())
	}
	fmt.Fprintln(os.Stderr, "ledgerd holds no plugin of that name")
	os.Exit(exitUsage)
}

// pluginDirs are the folders that --plugin-dir names.
type pluginDirs struct{ list []string }

func (d *pluginDirs) define(f *pflag.FlagSet) {
	f.StringSliceVar(&d.list, "plugin-dir", nil, "`folder` with plugins, looked at before the others; repeated")
	fromConfig(f, "plugin-dir")
}

// finder looks for plugins where they may be, in this order: the commands of the config, --plugin-dir,
// the data directory, beside the program, in the program.
func (a *app) finder(d pluginDirs) (*pluginhost.Finder, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f := &pluginhost.Finder{Self: self}
	for name, p := range a.config.Plugins {
		if len(p.Command) > 0 {
			f.Configured = append(f.Configured, pluginhost.Place{Name: name, Path: program(p.Command[0]), Args: p.Command[1:], Origin: "config"})
		}
	}
	for _, dir := range d.list {
		if _, err := os.Stat(dir); err != nil {
			return nil, usage("bad_flag", "", "--plugin-dir %s: does not exist", dir)
		}
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		f.Folders = append(f.Folders, pluginhost.Folder{Path: abs, Origin: "--plugin-dir"})
	}
	if store, err := a.plugins(); err == nil {
		f.Folders = append(f.Folders, pluginhost.Folder{Path: store.Dir, Origin: "data"})
	}
	f.Folders = append(f.Folders, pluginhost.Folder{Path: filepath.Dir(self), Origin: "beside ledgerd"})
	for name := range bundled {
		if name != benchPlugin {
			f.Bundled = append(f.Bundled, name)
		}
	}
	slices.Sort(f.Bundled)
	return f, nil
}

// plugin is a plugin that was found, with what it says of itself.
type plugin struct {
	*pluginhost.Description
	spec pluginhost.Spec
}

// findPlugin finds a plugin by name and asks it what it is.
func (a *app) findPlugin(ctx context.Context, name string, dirs pluginDirs) (*plugin, error) {
	place, err := a.place(name, dirs)
	if err != nil {
		return nil, err
	}
	return a.describePlugin(ctx, place)
}

func (a *app) place(name string, dirs pluginDirs) (pluginhost.Place, error) {
	f, err := a.finder(dirs)
	if err != nil {
		return pluginhost.Place{}, err
	}
	if name == benchPlugin {
		return pluginhost.Place{Name: name, Path: f.Self, Args: []string{name}, Origin: "bundled"}, nil
	}
	return f.Find(name)
}

// pluginError explains a plugin that does not start, and says how to look into it.
func pluginError(at pluginhost.Place, err error) error {
	f := explain(err)
	if at.Name != "" {
		f.message = strings.Replace(f.message, "plugin "+at.Path+" ", fmt.Sprintf("plugin %s (%s) ", at.Name, at.Path), 1)
	}
	if f.exit == exitError && at.Origin != "bundled" {
		f.hint = strings.TrimPrefix(f.hint+"\ntry: ledgerd plugin check "+at.Path, "\n")
	}
	return f
}

// pluginConfig puts the config of a kind, and --with over it, into the form that the plugin gets. A
// secret is better in a file, which is named as file:PATH, than on a command line that others can see.
func (a *app) pluginConfig(kind string, p *plugin, with []string) ([]byte, error) {
	base, err := a.config.With(kind, p.Config)
	if err != nil {
		return nil, err
	}
	of, other := settingsOf{"config", "--with", with}, settingsAt{"--set", p.Payload}
	onTop, err := p.Config.Parse(nil, with)
	if err != nil {
		return nil, settingError(err, p.Name, of, other)
	}
	_, typed, err := p.Config.Split(onTop)
	if err != nil {
		return nil, settingError(err, p.Name, of, other)
	}
	merged, err := p.Config.Parse(base, with)
	if err != nil {
		return nil, settingError(err, p.Name, of, other)
	}
	rest, secrets, err := p.Config.Split(merged)
	for name, value := range typed {
		secret, isFile, err := config.ReadSecret(value, "")
		if !isFile {
			fmt.Fprintf(a.stderr, "warning: --with %s=… is visible to everybody on this machine (ps); put it into a file: --with %s=file:/PATH\n", name, name)
			continue
		}
		if err != nil {
			return nil, usage("bad_setting", "", "--with %s: %v", name, err)
		}
		secrets[name] = secret
	}
	if err == nil {
		merged, err = p.Config.Merge(rest, secrets)
	}
	if err == nil {
		err = p.Config.Validate(merged)
	}
	return merged, settingError(err, p.Name, of, other)
}

// startPlugin starts the plugin of a kind, with its config; c says the rest.
func (a *app) startPlugin(ctx context.Context, k *kind, with []string, c pluginhost.Config) (*pluginhost.Host, error) {
	c, err := a.hostConfig(k, with, c)
	if err != nil {
		return nil, err
	}
	h, err := pluginhost.Start(ctx, c)
	return h, a.startError(k, err)
}

// hostConfig completes how the plugin of a kind is started.
func (a *app) hostConfig(k *kind, with []string, c pluginhost.Config) (_ pluginhost.Config, err error) {
	c.Settings, err = a.pluginConfig(k.name, k.plugin, with)
	c.Spec, c.Kind, c.Concurrency = k.plugin.spec, k.name, a.concurrency(k.name, c.Concurrency)
	return c, err
}

// startError explains why the plugin of a kind was not started.
func (a *app) startError(k *kind, err error) error {
	if refused, ok := errors.AsType[*pluginhost.ConfigError](err); ok {
		if err := a.config.Refused(k.name, k.plugin.Config, settingProblems(refused)); err != nil {
			return err
		}
		return usage("bad_setting", fmt.Sprintf("fields: ledgerd run %s --help", k.plugin.Name), "%s", refused.Error())
	}
	if err != nil {
		return pluginError(k.plugin.spec.Place, err)
	}
	return nil
}

// pluginCode is the code of an error of a call to a plugin, "" of others.
func pluginCode(err error) string {
	if call, ok := errors.AsType[*pluginhost.CallError](err); ok {
		switch {
		case call.TimedOut:
			return "plugin_timeout"
		case errors.Is(err, pluginhost.ErrDescription):
			return "plugin_description"
		}
		return "plugin_call"
	}
	if _, ok := errors.AsType[*pluginhost.OpenError](err); ok {
		return "plugin_open"
	}
	if _, ok := errors.AsType[*pluginproc.StartError](err); ok {
		return "plugin_start"
	}
	return ""
}

// stopGrace is how long the process of a plugin may take to end once nothing is in its hands.
const stopGrace = 5 * time.Second

// unknownKind explains a kind that nobody here knows.
func (a *app) unknownKind(ctx context.Context, l *ledger.Ledger, name string, dirs pluginDirs) error {
	where, names, err := a.lookedAt(ctx, l, dirs)
	if err != nil {
		return err
	}
	hint := fmt.Sprintf("not bundled, no ledgerd-plugin-%s %s, not in this ledger\n", name, where)
	if near := settings.Suggest(name, names); near != "" {
		hint += "did you mean " + near + "?   "
	}
	return usage("unknown_kind", hint+"all kinds: ledgerd plugin ls   for people or scripts: ledgerd kind set "+name+" --input line", "no kind %q", name)
}

// noPlugin explains a plugin that was named and is not here.
func (a *app) noPlugin(ctx context.Context, name string, dirs pluginDirs) error {
	where, names, err := a.lookedAt(ctx, nil, dirs)
	if err != nil {
		return err
	}
	hint := fmt.Sprintf("not bundled, no ledgerd-plugin-%s %s\n", name, where)
	if near := settings.Suggest(name, names); near != "" {
		hint += "did you mean " + near + "?   "
	}
	return usage("unknown_plugin", hint+"all plugins: ledgerd plugin ls", "no plugin %q", name)
}

// noPluginCode tells programs that a kind has no plugin at all here.
const noPluginCode = daemon.KindNoPlugin

// noPluginFor explains why a kind that the ledger knows cannot be worked here: the plugin that it
// names is missing, or it names none. What to do then is said by next.
func (a *app) noPluginFor(ctx context.Context, k *kind, dirs pluginDirs, next string) error {
	if k.policy.Plugin == "" {
		return usage(noPluginCode, next, "kind %q has no plugin here: it is worked by people, or elsewhere", k.name)
	}
	f := explain(a.noPlugin(ctx, k.policy.Plugin, dirs))
	f.message = fmt.Sprintf("kind %q: plugin %s not found", k.name, k.policy.Plugin)
	return f
}

// lookedAt says where plugins were looked for, and which kinds there are.
func (a *app) lookedAt(ctx context.Context, l *ledger.Ledger, dirs pluginDirs) (where string, kinds []string, err error) {
	f, err := a.finder(dirs)
	if err != nil {
		return "", nil, err
	}
	var folders []string
	for _, folder := range f.Folders {
		if folder.Origin == "beside ledgerd" {
			folders = append(folders, "beside "+f.Self)
		} else {
			folders = append(folders, "in "+folder.Path)
		}
	}
	places, err := f.List()
	if err != nil {
		return "", nil, err
	}
	for _, p := range places {
		kinds = append(kinds, p.Name)
	}
	if l != nil {
		known, err := l.Kinds(ctx)
		if err != nil {
			return "", nil, err
		}
		for _, k := range known {
			kinds = append(kinds, k.Name)
		}
	}
	return strings.Join(folders, " or "), kinds, nil
}

// listKinds is what run without a kind says: what there is to run here.
func (a *app) listKinds(ctx context.Context, dirs pluginDirs) error {
	if a.printer().Format != report.Table {
		return a.pluginLs(ctx, dirs)
	}
	all, err := a.survey(ctx, dirs)
	if err != nil {
		return err
	}
	rows := [][]string{}
	for _, s := range all {
		summary := ""
		if s.err != nil {
			summary = explain(s.err).message
		} else {
			summary = s.plugin.Summary()
		}
		rows = append(rows, []string{"ledgerd run " + s.place.Name + " INPUT…", report.Safe(summary)})
	}
	if err := a.printer().Align("  ", rows); err != nil {
		return err
	}
	_, err = fmt.Fprintln(a.stdout, "\nWhat a kind takes and what can be set: ledgerd run KIND --help")
	return err
}

// helpWithFields makes `run KIND --help` say what can be set of that kind.
func (a *app) helpWithFields(cmd *cobra.Command, s *sourceFlags) {
	plain := a.help
	cmd.SetHelpFunc(func(c *cobra.Command, args []string) {
		kinds := c.Flags().Args()
		if len(kinds) == 0 || !c.Flags().Parsed() {
			plain(c, args)
			return
		}
		if c, err := a.loadConfig(); err == nil { // help works with a wrong one, too
			a.config = c
		}
		p, err := a.findPlugin(c.Context(), cmp.Or(s.plugin, a.config.PluginOf(kinds[0]), kinds[0]), s.dirs)
		if err != nil {
			plain(c, args)
			a.tell(explain(err))
			return
		}
		c.Use, c.Long, c.Example = strings.Replace(c.Use, "KIND", kinds[0], 1), p.about(), "" // its text has its own
		plain(c, args)
		_ = a.showFields(p)
	})
}

// about is what help says of a plugin.
func (p *plugin) about() string { return strings.TrimSpace(p.Doc) }

// showFields lists what --set and --with take.
func (a *app) showFields(p *plugin) error {
	out := a.printer()
	for _, part := range []struct {
		title, flag string
		schema      *settings.Schema
	}{{"Payload, what is to be done", "--set", p.Payload}, {"Config, what this machine allows and has", "--with", p.Config}} {
		rows := [][]string{}
		for _, f := range part.schema.Fields() {
			if in := p.Policy(p.Name).Input; part.flag == "--set" && slices.Contains([]string{in.Field, in.Modified, in.Owner}, f.Name) {
				continue // INPUT fills it
			}
			rows = append(rows, fieldRow(part.flag, f))
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(a.stdout, "\n%s:\n", part.title)
		if err := out.Align("  ", rows); err != nil {
			return err
		}
	}
	return nil
}

func fieldRow(flag string, f settings.Field) []string {
	kind := f.Type
	if len(f.Enum) > 0 {
		kind = strings.Join(f.Enum, "|")
	}
	text := f.Doc
	if f.Tune {
		text += " (tunes)"
	}
	switch {
	case f.Secret:
		text += " (secret)"
	case f.Required:
		text += " (required)"
	case f.Default != "" && f.Default != `""` && f.Default != "[]" && f.Default != "{}":
		text += fmt.Sprintf(" (default %s)", strings.Trim(f.Default, `"`))
	}
	return []string{flag + " " + f.Name + "=…", kind, text}
}

// isNoPlugin tells a plugin that is not there from one that does not start.
func isNoPlugin(err error) bool { return errors.Is(err, pluginhost.ErrNotFound) }

func (a *app) pluginCommand() *cobra.Command {
	return group(groupSetUp, "plugin", "Make, try, check, add, list and remove plugins", a.pluginNewCommand(), a.pluginRunCommand(), a.pluginCheckCommand(),
		a.pluginAddCommand(), a.pluginLsCommand(), a.pluginRmCommand())
}

// plugins is where plugins of this user are added.
func (a *app) plugins() (pluginstore.Store, error) {
	data, err := a.dataDir()
	return pluginstore.Store{Dir: filepath.Join(data, "plugins")}, err
}
