package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginhost"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/shell"
)

// addedPlugin is what plugin add prints.
type addedPlugin struct {
	Name     string              `json:"name"`
	Version  string              `json:"version"`
	SHA256   string              `json:"sha256"`
	Path     string              `json:"path"`
	From     string              `json:"from"`
	Replaces *versionRow         `json:"replaces"` // null: the name is new here
	Changes  []pluginhost.Change `json:"changes"`
	Added    bool                `json:"added"` // false: it was current already
}

// pluginAddFlags are the flags of plugin add.
type pluginAddFlags struct{ sum, as string }

func pluginAddCommand(a *app.App) *cobra.Command {
	var flags pluginAddFlags
	cmd := &cobra.Command{
		Use: "add FILE", Short: "Copy a plugin to this machine, or switch to another version of it", Args: app.Arguments(1,
			1),
		Long: `FILE is the program of a plugin. Copies FILE, starts the copy to read its name and version, and keeps
the copy in plugins/ of the data directory. From then on commands find this plugin by its name. It comes
before a plugin of that name beside ledgerd and before a bundled one, but after one that the config or
--plugin-dir names. The SHA-256 of the copy is checked before every start. If other users may write to
FILE or its folder, --sha256 is required.

Versions are kept side by side, and the version that was added last is current. The new version may
differ in something that items or configs use: fields of input, config or output, the kinds it emits,
the files it accepts. Then the differences are shown, and you are asked to confirm; -y confirms. A
running ledgerd uses the new version within seconds: it gets all items that begin then; the old version
finishes those that it has begun (docs/plugins/install.md). To go back, add the old file again.

With -o json: {"name","version","sha256","path","from","replaces":{…},"changes":[{"part","name","what"}],
"added"}; added is false if this version was the current one already.`,
		Example: "  ledgerd plugin add ./ledgerd-plugin-thumbs\n  ledgerd plugin add ./thumbs-linux-amd64 --sha256 3fa9c1…",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(cmd.Flags()); err != nil {
				return err
			}
			return pluginAdd(cmd.Context(), a, args[0], flags)
		},
	}
	cmd.Flags().StringVar(&flags.sum, "sha256", "", "checksum that the file must have, in `hex`")
	cmd.Flags().StringVar(&flags.as, "as", "", "`name` of the plugin on this machine, instead of the name in the program")
	return cmd
}

var sumForm = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// check refuses what cannot be meant before anything is copied or started. A checksum that is given
// and empty is a variable of a script that was not set, and no leave to go without.
func (f *pluginAddFlags) check(given *pflag.FlagSet) error {
	if given.Changed("sha256") && !sumForm.MatchString(f.sum) {
		return failure.Usage("bad_flag", "it has 64 digits, as sha256sum prints it", "--sha256 %q is no checksum", f.sum)
	}
	if given.Changed("as") && !isPluginName(f.as) {
		return badPluginName("--as", f.as)
	}
	return nil
}

// isPluginName reports whether a plugin can go by a name: as the kinds that it works, and its folder in the
// store is not in the place of another one's link.
func isPluginName(name string) bool {
	return kinds.CheckKind(name) == nil && !strings.HasPrefix(name, pluginstore.Prefix)
}

func badPluginName(where, name string) error {
	return failure.Usage("invalid", "a name has a-z, 0-9 and -, not - first, and goes without "+pluginstore.Prefix,
		"%s: %q is no name of a plugin", where, name)
}

func pluginAdd(ctx context.Context, a *app.App, file string, flags pluginAddFlags) (err error) {
	from, err := filepath.Abs(file)
	if err == nil && flags.sum == "" {
		err = refuseWritable(from)
	}
	if err != nil {
		return err
	}
	store, err := a.PluginStore()
	if err != nil {
		return err
	}
	change, err := beginChange(ctx, store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, change.End()) }()
	copied, sum, err := change.Copy(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return failure.Usage("bad_input", "", "%s: there is no such file", file)
	case err != nil:
		return storeError(err)
	case flags.sum != "" && !strings.EqualFold(flags.sum, sum):
		return failure.New(failure.ExitDenied, "checksum", fmt.Sprintf("%s: its sha256 is %s, not %s", file, sum, flags.sum),
			"nothing was added; get the file anew, and the checksum from where it is made")
	}
	about, err := examine(ctx, a, pluginhost.Place{Path: copied, SHA256: sum}, from, flags.as)
	if err != nil {
		return err
	}
	v := pluginstore.Version{Name: about.Name, Calls: about.Calls, SHA256: sum,
		Origin: pluginstore.Origin{Version: about.Version, From: from, AddedAt: time.Now().UTC()}}
	now, err := compareAdded(ctx, a, v, about)
	if err == nil && now.Added {
		now.Changes = append(now.Changes, misfits(ctx, a, copied, v, about)...)
		err = confirmAdded(a, now)
	}
	if err != nil {
		return err
	}
	if now.Added {
		if v, err = change.Use(copied, v); err != nil {
			return storeError(err)
		}
		now.Path = v.Path
	}
	return tellAdded(a, now)
}

// refuseWritable refuses a file that somebody else may have put there.
func refuseWritable(file string) error {
	_, err := pluginproc.CheckWritable(file) // that it is not there is said when it is copied
	if bad, ok := errors.AsType[*pluginproc.StartError](err); ok && errors.Is(bad, pluginproc.ErrWritable) {
		return failure.New(failure.ExitDenied, "writable", fmt.Sprintf("%s was not added: %s", file, bad.Problem), bad.Hint+
			"\nor say what it must be: --sha256 HEX")
	}
	return nil
}

// examine starts the copy of a program and asks it what it is. from is what was copied: its name may
// be that of a plugin that the config names.
func examine(ctx context.Context, a *app.App, place pluginhost.Place, from, as string) (*pluginhost.Description,
	error) {
	place.Name = cmp.Or(as, strings.TrimPrefix(filepath.Base(from), pluginstore.Prefix))
	spec := a.PluginSpec(place)
	spec.Place.Name, spec.SHA256 = "", place.SHA256
	about, err := pluginhost.Describe(ctx, spec)
	if err != nil {
		f := failure.Explain(err)
		f.Message = strings.ReplaceAll(f.Message, place.Path, from)
		f.Hint = strings.TrimPrefix(f.Hint+"\nnothing was added; try: ledgerd plugin check "+shell.Quote(from), "\n")
		return nil, f
	}
	if as != "" {
		about.Name = as
	}
	if !isPluginName(about.Calls) {
		return nil, badPluginName(from, about.Calls)
	}
	return about, nil
}

// compareAdded describes what it means to make a version current.
func compareAdded(ctx context.Context, a *app.App, v pluginstore.Version, about *pluginhost.Description) (addedPlugin,
	error) {
	now := addedPlugin{Name: v.Name, Version: v.Version, SHA256: v.SHA256, From: v.From, Changes: []pluginhost.Change{},
		Added: true}
	place, err := a.Place(v.Name)
	if kinds.IsNoPlugin(err) {
		return now, nil
	}
	if err != nil {
		return now, err
	}
	now.Replaces = &versionRow{SHA256: place.SHA256, Path: place.Path, From: place.Added.From,
		Added: report.Time(place.Added.AddedAt)}
	if place.SHA256 == v.SHA256 {
		if _, err := pluginhost.Describe(ctx, a.PluginSpec(place)); err == nil { // else the copy is damaged, and mended so
			now.Added, now.Path, now.Replaces.Version = false, place.Path, v.Version
			return now, nil
		}
	}
	old, err := pluginhost.Describe(ctx, a.PluginSpec(place))
	if err != nil {
		now.Replaces.Version = place.Added.Version
		now.Changes = append(now.Changes, pluginhost.Change{Part: "before",
			What: "does not start, so nothing can be compared: " + failure.Explain(err).Message})
		return now, nil
	}
	now.Replaces.Version = old.Version
	now.Changes = slices.Concat(now.Changes, pluginhost.Compare(old, about))
	return now, nil
}

// misfits are kinds whose config, as it is on this machine, the plugin does not take.
func misfits(ctx context.Context, a *app.App, copied string, v pluginstore.Version,
	about *pluginhost.Description) (all []pluginhost.Change) {
	for _, kind := range slices.Sorted(maps.Keys(a.Config.Kinds)) {
		if cmp.Or(a.Config.PluginOf(kind), kind) != v.Name {
			continue
		}
		with, err := a.PluginConfig(kind, &kinds.Plugin{Description: about}, nil)
		if err == nil {
			place := pluginhost.Place{Name: v.Name, Calls: v.Calls, Path: copied, SHA256: v.SHA256}
			err = pluginhost.Validate(ctx, pluginhost.Config{Spec: a.PluginSpec(place), Settings: with})
		}
		if err != nil {
			line, _, _ := strings.Cut(failure.Explain(err).Message, "\n")
			all = append(all, pluginhost.Change{Part: "kind", Name: kind, What: "its config does not fit: " + line})
		}
	}
	return all
}

// confirmAdded asks whether what is different is wanted.
func confirmAdded(a *app.App, now addedPlugin) error {
	if len(now.Changes) == 0 {
		return nil
	}
	if !a.Quiet || !a.Yes {
		before := "what is expected"
		if now.Replaces != nil {
			before = cmp.Or(now.Replaces.Version, "the one before")
		}
		fmt.Fprintf(a.Stderr, "%s %s is not like %s:\n", now.Name, report.Safe(now.Version), report.Safe(before))
		for _, c := range now.Changes {
			fmt.Fprintln(a.Stderr, "  "+report.Safe(c.String()))
		}
	}
	return a.Confirm(fmt.Sprintf("make %s %s current?", now.Name, report.Safe(now.Version)),
		"items that wait have the input of the old version, kinds its config: those that do not fit fail for good")
}

func tellAdded(a *app.App, now addedPlugin) error {
	text := fmt.Sprintf("%s %s   sha256 %s", now.Name, report.Safe(now.Version), now.SHA256)
	switch {
	case !now.Added:
		text += "   is current already"
	case now.Replaces != nil:
		text += "   in place of " + report.Safe(cmp.Or(now.Replaces.Version, "another version"))
	}
	if err := app.One(a, now, text); err != nil || !now.Added || a.Quiet {
		return err
	}
	if place, err := a.Place(now.Name); err == nil && place.Path != now.Path {
		fmt.Fprintf(a.Stderr, "warning: %s is not used: %s (%s) is found before it\n", now.Name, place.Path, place.Origin)
	}
	return nil
}
