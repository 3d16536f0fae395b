package main

import (
	"fmt"

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

func (a *app) pauseCommand() *cobra.Command {
	return a.pausing("pause", "Let no more items of a kind be claimed", true,
		`What is being worked is worked to its end; what is added waits. Daemons need not be told. The journal
keeps who paused it.`)
}

func (a *app) resumeCommand() *cobra.Command {
	return a.pausing("resume", "Let items of a paused kind be claimed again", false, `The journal keeps who resumed it.`)
}

func (a *app) pausing(name, short string, paused bool, long string) *cobra.Command {
	return &cobra.Command{
		Use: name + " KIND…", Short: short, GroupID: groupLook, Args: arguments(1, -1),
		Long:    short + ".\n\n" + long + "\n\nWith -o json: [{\"kind\",\"paused\",\"changed\"}].",
		Example: "  ledgerd " + name + " urlcheck",
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			l, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			known, err := l.Kinds(ctx)
			if err != nil {
				return err
			}
			was := map[string]bool{}
			var names []string
			for _, k := range known {
				was[k.Name] = k.Paused
				names = append(names, k.Name)
			}
			for _, kind := range args { // all of them, or none
				if _, there := was[kind]; !there {
					hint := "all kinds: ledgerd kind ls"
					if near := settings.Suggest(kind, names); near != "" {
						hint = "did you mean " + near + "?   " + hint
					}
					return usage("unknown_kind", hint, "no kind %q in this ledger", kind)
				}
			}
			var rows []pausedRow
			for _, kind := range args {
				if was[kind] != paused {
					if _, err := l.EditKind(ctx, actor(), kind, func(k *ledger.Kind, _ bool) { k.Paused = paused }); err != nil {
						return err
					}
				}
				rows = append(rows, pausedRow{kind, paused, was[kind] != paused})
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
