package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/pluginstore"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/definition"
)

// removedPlugin is what plugin rm prints.
type removedPlugin struct {
	Name    string       `json:"name"`
	Removed []versionRow `json:"removed"`
	Now     string       `json:"now"` // the plugin that goes by the name from now on, "" if there is none
}

func pluginRmCommand(a *app.App) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rm NAME[@VERSION]", Short: "Remove a plugin that was added, or a version of it that is not current",
		Args: app.Arguments(1, 1),
		Long: `Removes what plugin add has kept: all versions of a plugin, or one that is named by its version or by the
beginning of its checksum (six digits or more). While the ledger has unfinished items that the plugin
works, or a program works with that version, it is refused; --force removes it all the same: the items
stay, and wait. Plugins at other places are files, and removed as such.

With -o json: {"name","removed":[{"version","sha256","path","from","added_at"}],"now"}; now is where the
plugin of that name is found after that.`,
		Example: "  ledgerd plugin rm thumbs\n  ledgerd plugin rm thumbs@0.1.0",
		RunE: func(cmd *cobra.Command, args []string) error {
			return pluginRm(cmd.Context(), a, args[0], force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while there are items for it, or a program works with it")
	return cmd
}

func pluginRm(ctx context.Context, a *app.App, arg string, force bool) (err error) {
	name, which, single := strings.Cut(arg, "@")
	if err := kinds.CheckKind(name); err != nil {
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
	versions, err := store.Versions(name)
	if err != nil {
		return err
	}
	if len(versions) == 0 {
		return notAdded(a, name)
	}
	if single {
		if versions, err = chooseVersion(versions, name, which); err != nil {
			return err
		}
	}
	if !force {
		if err := refuseUsed(ctx, a, name, versions, single); err != nil {
			return err
		}
	}
	res := removedPlugin{Name: name}
	for _, v := range versions {
		res.Removed = append(res.Removed, newVersionRow(v))
	}
	if single {
		err = change.RemoveVersion(versions[0])
	} else {
		err = change.Remove(name)
	}
	if err != nil {
		return storeError(err)
	}
	return tellRemoved(a, res, single)
}

// notAdded explains that there is nothing to remove.
func notAdded(a *app.App, name string) error {
	place, err := a.Place(name)
	if err != nil {
		return failure.New(failure.ExitError, "not_found", fmt.Sprintf("plugin %q: %v", name, pluginstore.ErrNone),
			"all plugins: ledgerd plugin ls")
	}
	hint := "remove that file"
	if place.Origin == "bundled" {
		hint = "it is part of ledgerd"
	}
	return failure.New(failure.ExitError, "not_found", fmt.Sprintf("plugin %q was not added: it is %s (%s)", name,
		place.Path, place.Origin), hint)
}

// leastHash is how many digits of a checksum name a version.
const leastHash = 6

// chooseVersion finds the version that is meant.
func chooseVersion(versions []pluginstore.Version, name, which string) ([]pluginstore.Version, error) {
	var found []pluginstore.Version
	var known []string
	for _, v := range versions {
		known = append(known, fmt.Sprintf("%s@%s (%s)", name, v.SHA256[:12], cmp.Or(v.Version, "version not known")))
		if v.Version == which && which != "" || len(which) >= leastHash &&
			strings.HasPrefix(v.SHA256, strings.ToLower(which)) {
			found = append(found, v)
		}
	}
	switch len(found) {
	case 1:
		return found, nil
	case 0:
		return nil, failure.New(failure.ExitError, "not_found", fmt.Sprintf("plugin %q: no version %q was added", name,
			which), "there are "+strings.Join(known, ", "))
	}
	return nil, failure.Usage("ambiguous", "there are "+strings.Join(known, ", "), "plugin %q: several versions are %q",
		name, which)
}

// refuseUsed refuses to remove what is needed: the plugin of unfinished items, or the program of a
// process that works.
func refuseUsed(ctx context.Context, a *app.App, name string, versions []pluginstore.Version, single bool) error {
	at, err := a.Address()
	if err != nil {
		return err
	}
	l, err := a.OpenAt(ctx, at, app.ToRead)
	if errors.Is(err, ledger.ErrNoLedger) {
		return nil
	}
	if err != nil {
		f := failure.Explain(err)
		f.Hint = strings.TrimPrefix(f.Hint+"\nwhether items need the plugin is not known; remove it all the same: --force",
			"\n")
		return f
	}
	defer l.Close()
	agents, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	for _, agent := range agents {
		for kind, works := range agent.Kinds {
			plugin, version, _ := definition.Split(works)
			if plugin == name && slices.ContainsFunc(versions, func(v pluginstore.Version) bool {
				return v.Version == version
			}) {
				return failure.New(failure.ExitTaken, "in_use", fmt.Sprintf("plugin %s %s is at work: %s works kind %s with it",
					name, version, agent.Name, kind), "stop that program first, or remove it all the same: --force")
			}
		}
	}
	if single {
		return nil
	}
	kinds, err := l.Kinds(ctx)
	if err != nil {
		return err
	}
	for _, k := range kinds {
		if cmp.Or(a.Config.PluginOf(k.Name), k.Plugin, k.Name) != name {
			continue
		}
		st, err := l.Standing(ctx, k.Name)
		if err != nil {
			return err
		}
		if n := st.Held + st.Persons + st.Waiting + st.Ready; n > 0 {
			return failure.New(failure.ExitTaken, "in_use",
				fmt.Sprintf("plugin %s is needed: kind %s has %s that are not finished", name, k.Name, report.Plural(n, "item")),
				"work or cancel them first (ledgerd ls --kind "+k.Name+"), or remove it all the same: --force")
		}
	}
	return nil
}

func tellRemoved(a *app.App, res removedPlugin, single bool) error {
	var which []string
	for _, v := range res.Removed {
		which = append(which, report.Safe(cmp.Or(v.Version, v.SHA256[:12])))
	}
	text := fmt.Sprintf("removed %s %s", res.Name, strings.Join(which, ", "))
	if place, err := a.Place(res.Name); err == nil {
		res.Now = place.Path
		if !single {
			text += fmt.Sprintf("   now %s is %s (%s)", res.Name, place.Path, place.Origin)
		}
	}
	return app.One(a, res, text)
}
