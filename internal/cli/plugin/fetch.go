package plugin

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
)

// fetchedPlugin is what plugin fetch prints.
type fetchedPlugin struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"` // of the program that is here now; "" if there is none
	Result string `json:"result"` // added, here or failed
	Source string `json:"source"`
	Error  string `json:"error"`
}

func pluginFetchCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "fetch [NAME]...", Short: "Get the plugins that the config names a source for",
		Long: `Adds, as plugin add does, each plugin for which the config names a source, or those that are NAMEd:

  [plugins.thumbs]
  source = "https://example.org/thumbs-1.2.0-{os}-{arch}"
  sha256 = ["3fa9c1…", "77ab04…"]   # one for each platform

One that is here already with one of these checksums is not fetched again. A program with another checksum is
not added, and one that was added before is not started. The others are fetched even if one fails; the exit
code is 1 then. A ledgerd that runs changes to the new programs within seconds.
Fields: name, sha256 (of the program that is here now), result (added, here, failed), source, error.`,
		RunE: func(cmd *cobra.Command, names []string) error { return pluginFetch(cmd.Context(), a, names) },
	}
}

func pluginFetch(ctx context.Context, a *app.App, names []string) error {
	if len(names) == 0 {
		names = slices.DeleteFunc(slices.Sorted(maps.Keys(a.Config.Plugins)), func(name string) bool {
			return a.Config.Plugins[name].Source == ""
		})
	}
	for _, name := range names {
		if p := a.Config.Plugins[name]; p == nil || p.Source == "" {
			return failure.Usage("bad_argument", "[plugins."+name+"] of the config names source and sha256",
				"the config has no source for a plugin %q", name)
		}
	}
	store, err := a.PluginStore()
	if err != nil {
		return err
	}
	var rows []fetchedPlugin
	var failed []string
	for _, name := range names {
		p := a.Config.Plugins[name]
		row := fetchedPlugin{Name: name, Result: "here", Source: withoutSecrets(p.From())}
		if here, ok := store.Read(name); ok && pluginproc.CheckSum(here.Path, here.SHA256) == nil {
			row.SHA256 = here.SHA256
		}
		if !p.HasSum(row.SHA256) {
			switch added, err := (adding{app: a, from: p.From(), sums: p.SHA256, name: name}).add(ctx); {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil:
				row.Result, row.Error = "failed", failure.Explain(err).Message
				failed = append(failed, name)
			default:
				row.Result, row.SHA256 = "added", added.SHA256
			}
		}
		rows = append(rows, row)
	}
	if _, err := report.List(a.Printer(), app.Each(rows), "name", "result", "source", "error"); err != nil {
		return err
	}
	if len(failed) > 0 {
		return failure.New(failure.ExitError, "fetch_failed", fmt.Sprintf("not fetched: %s", strings.Join(failed, ", ")),
			"what was here before has stayed")
	}
	return nil
}
