package main

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

type pausedRow struct {
	Kind    string `json:"kind"`
	Paused  bool   `json:"paused"`
	Changed bool   `json:"changed"`
}

func (a *app) kindPauseCommand() *cobra.Command {
	return a.pausing("pause", "Stop claiming items of a kind", true,
		`Items that are being worked are worked to their end. Items that are added wait. Daemons need not be told.
The journal keeps who paused it.`)
}

func (a *app) kindResumeCommand() *cobra.Command {
	return a.pausing("resume", "Claim items of a paused kind again", false, `The journal keeps who resumed it.`)
}

func (a *app) pausing(name, short string, paused bool, long string) *cobra.Command {
	return &cobra.Command{
		Use: name + " KIND…", Short: short, Args: arguments(1, -1),
		Long:    short + ".\n\n" + long + "\n\nWith -o json: [{\"kind\",\"paused\",\"changed\"}].",
		Example: "  ledgerd kind " + name + " urlcheck",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			l, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			known, err := checkKinds(ctx, l.Ledger, args) // all of them, or none
			if err != nil {
				return err
			}
			var rows []pausedRow
			for _, kind := range args {
				if known[kind].Paused != paused {
					stored, err := l.EditKind(ctx, actor(), kind, func(k *ledger.Kind, _ bool) { k.Paused = paused })
					if err != nil {
						return err
					}
					a.warnOfConfig(stored, func(key string) bool { return key == "paused" })
				}
				rows = append(rows, pausedRow{kind, paused, known[kind].Paused != paused})
			}
			if p := a.printer(); p.Format != report.Table {
				_, err = report.List(p, each(rows))
				return err
			}
			for _, r := range rows {
				text := name + "d"
				if !r.Changed {
					text = "was " + text + " already"
				}
				fmt.Fprintf(a.stdout, "%s %s\n", r.Kind, text)
			}
			return nil
		},
	}
}

// checkKinds refuses names that are no kinds of the ledger, and returns all kinds.
func checkKinds(ctx context.Context, l *ledger.Ledger, names []string) (map[string]ledger.Kind, error) {
	all, err := l.Kinds(ctx)
	if err != nil {
		return nil, err
	}
	known := map[string]ledger.Kind{}
	for _, k := range all {
		known[k.Name] = k
	}
	for _, name := range names {
		if _, there := known[name]; !there {
			hint := "all kinds: ledgerd kind ls"
			if near := settings.Suggest(name, slices.Sorted(maps.Keys(known))); near != "" {
				hint = "did you mean " + near + "?   " + hint
			}
			return nil, usage("unknown_kind", hint, "no kind %q in this ledger", name)
		}
	}
	return known, nil
}
