package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/input"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/kinds"
	"github.com/ledgerd/ledgerd/internal/report"
)

// pluginRow is what plugin ls prints.
type pluginRow struct {
	Name    string   `json:"name"`
	Version string   `json:"version"`
	Origin  string   `json:"origin"`
	Path    string   `json:"path"`
	SHA256  string   `json:"sha256"`
	Shadows []string `json:"shadows"`
	Input   string   `json:"input"`
	Summary string   `json:"summary"`
	Error   string   `json:"error"`
}

func pluginLsCommand(a *app.App) *cobra.Command {
	cmd := &cobra.Command{
		Use: "ls", SuggestFor: []string{"list"}, Args: app.Arguments(0, 0),
		Short: "List the plugins that are found here, and what shadows what",
		Long: `Lists plugins: programs ledgerd-plugin-NAME in the folders of --plugin-dir, in plugins/ of the data
directory, beside ledgerd, and the bundled ones; the first of a name counts. With -v also where a
plugin is, its checksum, and what --set and --with take. Fields: name, version, origin, path, sha256
(that it must have; "" is any), shadows, input, summary, error.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return list(cmd.Context(), a)
		},
	}
	a.PluginDirFlag(cmd.Flags())
	return cmd
}

// list prints the plugins of this machine.
func list(ctx context.Context, a *app.App) error {
	all, err := a.Survey(ctx)
	if err != nil {
		return err
	}
	var rows []pluginRow
	var found []*kinds.Plugin
	for _, s := range all {
		place := s.Place
		row := pluginRow{Name: place.Name, Origin: place.Origin, Path: place.Path, SHA256: a.PluginSpec(place).SHA256,
			Shadows: []string{}}
		for _, shadowed := range place.Shadows {
			row.Shadows = append(row.Shadows, shadowed.Origin+" "+shadowed.Path)
		}
		if p := s.Plugin; s.Err != nil {
			row.Error = failure.Explain(s.Err).Message
		} else {
			row.Version, row.Summary, row.Input = p.Version, p.Summary(), p.Policy(p.Name).Input.Type
			found = append(found, p)
		}
		rows = append(rows, row)
	}
	p := a.Printer()
	if _, err := report.List(p, report.Each(rows), "name", "version", "origin", "shadows", "input", "summary",
		"error"); err != nil {
		return err
	}
	for _, pl := range found {
		if p.Format != report.Table || !a.Verbose {
			break
		}
		fmt.Fprintf(a.Stdout, "\n%s %s\n", pl.Name, pl.Version)
		i := slices.IndexFunc(rows, func(r pluginRow) bool { return r.Name == pl.Name })
		if err := p.Align("  ", provenance(pl, rows[i])); err != nil {
			return err
		}
		if err := input.ShowFields(a.Stdout, a, pl); err != nil {
			return err
		}
	}
	return nil
}

// provenance returns rows with the program of a plugin, its checksum and its limits.
func provenance(p *kinds.Plugin, row pluginRow) [][]string {
	lines := [][]string{{"program", report.Safe(strings.Join(append([]string{row.Path}, p.Spec.Place.Args...), " "))}}
	if row.SHA256 == "" {
		lines = append(lines, []string{"sha256", "not checked: ledgerd plugin add would keep a copy and check it before " +
			"every start"})
	} else {
		lines = append(lines, []string{"sha256", row.SHA256 + ", checked before every start"})
	}
	for _, limit := range p.Spec.Limits.InForce() {
		lines = append(lines, []string{"limit", limit})
	}
	return lines
}
