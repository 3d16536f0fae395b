package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/definition"
)

// removedPlugin is what plugin rm prints.
type removedPlugin struct {
	Name string `json:"name"`
	Now  string `json:"now"` // path of the plugin that is found under the name from now on, "" if there is none
}

func pluginRmCommand(a *app.App) *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "rm NAME", Short: "Remove a plugin that was added", Args: app.Arguments(1, 1),
		Long: `Removes what plugin add has copied. While the ledger has unfinished items that the plugin works, or a
program works with it, it is refused; --force removes it all the same: the items stay, and wait. Plugins
at other places are files, and removed as such.

With -o json: {"name","now"}; now is where the plugin of that name is found after that.`,
		Example: "  ledgerd plugin rm thumbs",
		RunE: func(cmd *cobra.Command, args []string) error {
			return pluginRm(cmd.Context(), a, args[0], force)
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "also while there are items for it, or a program works with it")
	return cmd
}

func pluginRm(ctx context.Context, a *app.App, name string, force bool) (err error) {
	if err := kinds.CheckKind(name); err != nil {
		return err
	}
	store, err := a.PluginStore()
	if err != nil {
		return err
	}
	if !store.Has(name) {
		return notAdded(a, name)
	}
	if !force {
		if err := refuseUsed(ctx, a, name); err != nil {
			return err
		}
	}
	change, err := store.Begin(ctx, waits(a))
	if err != nil {
		return err
	}
	if err := errors.Join(change.Remove(name), change.End()); err != nil {
		return err
	}
	res, text := removedPlugin{Name: name}, "removed "+name
	if place, err := a.Place(name); err == nil {
		res.Now = place.Path
		text += fmt.Sprintf("   now %s is %s (%s)", name, place.Path, place.Origin)
	}
	return app.One(a, res, text)
}

// notAdded explains why a plugin cannot be removed: it was not added.
func notAdded(a *app.App, name string) error {
	place, err := a.Place(name)
	if err != nil {
		return failure.New(failure.ExitError, "not_found", fmt.Sprintf("plugin %q: nothing of that name was added", name),
			"all plugins: ledgerd plugin ls")
	}
	hint := "remove that file"
	if place.Origin == "bundled" {
		hint = "it is part of ledgerd"
	}
	return failure.New(failure.ExitError, "not_found", fmt.Sprintf("plugin %q was not added: it is %s (%s)", name,
		place.Path, place.Origin), hint)
}

// refuseUsed refuses to remove the plugin of unfinished items, or of a program that works with it.
func refuseUsed(ctx context.Context, a *app.App, name string) error {
	l, err := a.Reach(ctx, app.ToRead)
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
			if plugin, version, _ := definition.Split(works); plugin == name {
				return failure.New(failure.ExitTaken, "in_use", fmt.Sprintf("plugin %s %s is at work: %s works kind %s with it",
					name, version, agent.Name, kind), "stop that program first, or remove it all the same: --force")
			}
		}
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
