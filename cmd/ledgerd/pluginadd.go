package main

import (
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

func (a *app) pluginAddCommand() *cobra.Command {
	var flags pluginAddFlags
	cmd := &cobra.Command{
		Use: "add FILE", Short: "Copy a plugin to this machine, or switch to another version of it", Args: arguments(1, 1),
		Long: `Starts a copy of the program, asks it what it is, and keeps it in plugins/ of the data directory: it is
found by its name from then on, before one beside ledgerd or a bundled one. The SHA-256 of the copy is
checked before every start. A program that others may write to, or that lies in a folder that others
may write to, is taken only with --sha256.

Versions are kept side by side and the one added last is current. If what others rely on is different
in it (fields of input, config or output, kinds that it emits, what it takes) that is shown and asked,
or takes -y. A running ledgerd takes it up within seconds: new items go to the new version, what
runs is finished by the old one (docs/plugins/install.md). The way back is to add the old file again.

With -o json: {"name","version","sha256","path","from","replaces":{…},"changes":[{"part","name","what"}],
"added"}; added is false if it was current already.`,
		Example: "  ledgerd plugin add ./ledgerd-plugin-thumbs\n  ledgerd plugin add ./thumbs-linux-amd64 --sha256 3fa9c1…",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := flags.check(cmd.Flags()); err != nil {
				return err
			}
			return a.pluginAdd(cmd.Context(), args[0], flags)
		},
	}
	cmd.Flags().StringVar(&flags.sum, "sha256", "", "checksum that the file must have, in `hex`")
	cmd.Flags().StringVar(&flags.as, "as", "", "`name` that it goes by here, instead of the one that it calls itself")
	return cmd
}

var sumForm = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// check refuses what cannot be meant before anything is copied or started. A checksum that is given
// and empty is a variable of a script that was not set, and no leave to go without.
func (f *pluginAddFlags) check(given *pflag.FlagSet) error {
	if given.Changed("sha256") && !sumForm.MatchString(f.sum) {
		return usage("bad_flag", "it has 64 digits, as sha256sum prints it", "--sha256 %q is no checksum", f.sum)
	}
	if given.Changed("as") && !isPluginName(f.as) {
		return badPluginName("--as", f.as)
	}
	return nil
}

// isPluginName says whether a plugin can go by a name: as the kinds that it works, and its folder in the
// store is not in the place of another one's link.
func isPluginName(name string) bool {
	return checkKind(name) == nil && !strings.HasPrefix(name, pluginstore.Prefix)
}

func badPluginName(where, name string) error {
	return usage("invalid", "a name has a-z, 0-9 and -, not - first, and goes without "+pluginstore.Prefix, "%s: %q is no name of a plugin", where, name)
}

func (a *app) pluginAdd(ctx context.Context, file string, flags pluginAddFlags) (err error) {
	from, err := filepath.Abs(file)
	if err == nil && flags.sum == "" {
		err = refuseWritable(from)
	}
	if err != nil {
		return err
	}
	store, err := a.plugins()
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
		return usage("bad_input", "", "%s: there is no such file", file)
	case err != nil:
		return storeError(err)
	case flags.sum != "" && !strings.EqualFold(flags.sum, sum):
		return fail(exitDenied, "checksum", fmt.Sprintf("%s: its sha256 is %s, not %s", file, sum, flags.sum), "nothing was added; get the file anew, and the checksum from where it is made")
	}
	about, err := a.examine(ctx, pluginhost.Place{Path: copied, SHA256: sum}, from, flags.as)
	if err != nil {
		return err
	}
	v := pluginstore.Version{Name: about.Name, Calls: about.Calls, SHA256: sum, Origin: pluginstore.Origin{Version: about.Version, From: from, AddedAt: time.Now().UTC()}}
	now, err := a.compareAdded(ctx, v, about)
	if err == nil && now.Added {
		now.Changes = append(now.Changes, a.misfits(ctx, copied, v, about)...)
		err = a.confirmAdded(now)
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
	return a.tellAdded(now)
}

// changeTime is how long another program that changes the plugins is waited for.
const changeTime = time.Minute

func beginChange(ctx context.Context, store pluginstore.Store) (*pluginstore.Change, error) {
	waiting, cancel := context.WithTimeout(ctx, changeTime)
	defer cancel()
	c, err := store.Begin(waiting)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return c, storeError(err)
}

// storeError explains what keeps plugins from being changed.
func storeError(err error) error {
	for _, known := range []struct {
		target error
		exit   int
		code   string
		hint   string
	}{
		{pluginstore.ErrBusy, exitTaken, "busy", "another ledgerd plugin add or rm is at work, or waits for an answer"},
		{pluginstore.ErrNoFile, exitUsage, "bad_input", "name the program itself"},
		{pluginstore.ErrTooLarge, exitUsage, "bad_input", ""},
		{pluginstore.ErrTaken, exitUsage, "taken", "move it away; under another name (--as NAME) the plugin works another kind, to which all work is new"},
		{pluginstore.ErrCurrent, exitUsage, "current", "add another version first, or remove the plugin as a whole: without @"},
		{pluginstore.ErrNone, exitError, "not_found", "all plugins: ledgerd plugin ls"},
	} {
		if errors.Is(err, known.target) {
			return fail(known.exit, known.code, err.Error(), known.hint)
		}
	}
	return err
}

// refuseWritable refuses a file that somebody else may have put there.
func refuseWritable(file string) error {
	_, err := pluginproc.CheckWritable(file) // that it is not there is said when it is copied
	if bad, ok := errors.AsType[*pluginproc.StartError](err); ok && errors.Is(bad, pluginproc.ErrWritable) {
		return fail(exitDenied, "writable", fmt.Sprintf("%s was not added: %s", file, bad.Problem), bad.Hint+"\nor say what it must be: --sha256 HEX")
	}
	return nil
}

// examine starts the copy of a program and asks it what it is. from is what was copied: its name may
// be that of a plugin that the config says something of.
func (a *app) examine(ctx context.Context, place pluginhost.Place, from, as string) (*pluginhost.Description, error) {
	place.Name = firstOf(as, strings.TrimPrefix(filepath.Base(from), pluginstore.Prefix))
	spec := a.pluginSpec(place)
	spec.Place.Name, spec.SHA256 = "", place.SHA256
	about, err := pluginhost.Describe(ctx, spec)
	if err != nil {
		f := explain(err)
		f.message = strings.ReplaceAll(f.message, place.Path, from)
		f.hint = strings.TrimPrefix(f.hint+"\nnothing was added; try: ledgerd plugin check "+shell.Quote(from), "\n")
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

// compareAdded says what it means to make a version current.
func (a *app) compareAdded(ctx context.Context, v pluginstore.Version, about *pluginhost.Description) (addedPlugin, error) {
	now := addedPlugin{Name: v.Name, Version: v.Version, SHA256: v.SHA256, From: v.From, Changes: []pluginhost.Change{}, Added: true}
	place, err := a.place(v.Name, pluginDirs{list: a.config.PluginDir})
	if isNoPlugin(err) {
		return now, nil
	}
	if err != nil {
		return now, err
	}
	now.Replaces = &versionRow{SHA256: place.SHA256, Path: place.Path, From: place.Added.From, Added: report.Time(place.Added.AddedAt)}
	if place.SHA256 == v.SHA256 {
		if _, err := pluginhost.Describe(ctx, a.pluginSpec(place)); err == nil { // else the copy is damaged, and mended so
			now.Added, now.Path, now.Replaces.Version = false, place.Path, v.Version
			return now, nil
		}
	}
	old, err := pluginhost.Describe(ctx, a.pluginSpec(place))
	if err != nil {
		now.Replaces.Version = place.Added.Version
		now.Changes = append(now.Changes, pluginhost.Change{Part: "before", What: "does not start, so nothing can be compared: " + explain(err).message})
		return now, nil
	}
	now.Replaces.Version = old.Version
	now.Changes = slices.Concat(now.Changes, pluginhost.Compare(old, about))
	return now, nil
}

// misfits are kinds whose config, as it is on this machine, the plugin does not take.
func (a *app) misfits(ctx context.Context, copied string, v pluginstore.Version, about *pluginhost.Description) (all []pluginhost.Change) {
	for _, kind := range slices.Sorted(maps.Keys(a.config.Kinds)) {
		if firstOf(a.config.PluginOf(kind), kind) != v.Name {
			continue
		}
		with, err := a.pluginConfig(kind, &plugin{Description: about}, nil)
		if err == nil {
			place := pluginhost.Place{Name: v.Name, Calls: v.Calls, Path: copied, SHA256: v.SHA256}
			err = pluginhost.Validate(ctx, pluginhost.Config{Spec: a.pluginSpec(place), Settings: with})
		}
		if err != nil {
			line, _, _ := strings.Cut(explain(err).message, "\n")
			all = append(all, pluginhost.Change{Part: "kind", Name: kind, What: "its config does not fit: " + line})
		}
	}
	return all
}

// confirmAdded asks whether what is different is wanted.
func (a *app) confirmAdded(now addedPlugin) error {
	if len(now.Changes) == 0 {
		return nil
	}
	if !a.quiet || !a.yes {
		before := "what is expected"
		if now.Replaces != nil {
			before = firstOf(now.Replaces.Version, "the one before")
		}
		fmt.Fprintf(a.stderr, "%s %s is not like %s:\n", now.Name, report.Safe(now.Version), report.Safe(before))
		for _, c := range now.Changes {
			fmt.Fprintln(a.stderr, "  "+report.Safe(c.String()))
		}
	}
	return a.confirm(fmt.Sprintf("make %s %s current?", now.Name, report.Safe(now.Version)), "items that wait have the input of the old version, kinds its config: those that do not fit fail for good")
}

func (a *app) tellAdded(now addedPlugin) error {
	text := fmt.Sprintf("%s %s   sha256 %s", now.Name, report.Safe(now.Version), now.SHA256)
	switch {
	case !now.Added:
		text += "   is current already"
	case now.Replaces != nil:
		text += "   in place of " + report.Safe(firstOf(now.Replaces.Version, "another version"))
	}
	if err := one(a, now, text); err != nil || !now.Added || a.quiet {
		return err
	}
	if place, err := a.place(now.Name, pluginDirs{list: a.config.PluginDir}); err == nil && place.Path != now.Path {
		fmt.Fprintf(a.stderr, "warning: %s is not used: %s (%s) is found before it\n", now.Name, place.Path, place.Origin)
	}
	return nil
}
