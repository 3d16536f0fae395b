package item

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
)

func AgentsCommand(a *app.App) *cobra.Command {
	var expect []string
	cmd := &cobra.Command{
		Annotations: map[string]string{app.RowsAnnotation: "yes"},
		Use:         "agents", Short: "List who works: daemons with their heartbeat, and people who hold items",
		GroupID: app.GroupLook, Args: app.Arguments(0, 0),
		Long: `Lists the programs that work this ledger and whoever else holds items. The state of a program is at_work, that of a
person, who has no heartbeat, person. A program that gave no sign lately and did not say goodbye is gone: it was killed, or
its machine is cut off. It is listed for a day, with its last heartbeat, and works no kinds.

With -o json: [{"agent","host","pid","version","kinds","stalled","state","plugins":[{"kind","version","state","until",
"restarts","code","error","error_at","rss_bytes"}],"shard","held","started_at","seen_at","heartbeat_age_s",
"clock_skew_ms"}]. stalled are kinds whose plugin crashes again and again there, or does not start, so that nothing is
given to it before until. The state of a plugin is running, restarting, crashing or absent (it does not start); code and
error are the class and the reason of its newest crash, or of why it does not start, at error_at by the clock of its
machine. A heartbeat is 10 s old at most, and so is what it tells of plugins. clock_skew_ms is how far the machine's
clock is ahead of the database's; leases do not depend on it. It is 0 until an agent's second heartbeat, after 10 s.

With --expect it exits with 1 if one of these programs does not work now, and names it.`,
		Example: "  ledgerd agents -q --expect box-a,box-b",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return agents(cmd.Context(), a, expect)
		},
	}
	cmd.Flags().StringSliceVar(&expect, "expect", nil, "`names` of programs that must be at work, with commas between")
	return cmd
}

// missing returns the expected names that no live program has. A program "box-a/2" counts as "box-a".
func missing(expect []string, living []ledger.Agent) []string {
	return slices.DeleteFunc(slices.Clone(expect), func(name string) bool {
		return slices.ContainsFunc(living, func(g ledger.Agent) bool {
			return g.Name == name || strings.HasPrefix(g.Name, name+"/")
		})
	})
}

// agent is an alias in lower case: an embedded field named Agent would hide the column agent.
type agent = answer.Agent

// shownAgent is the row of an agent for people.
type shownAgent struct {
	agent
	Trouble string `json:"trouble"`
}

// pluginsText describes the plugins that do not run, or have crashed, for people.
func pluginsText(all []answer.Plugin) string {
	var parts []string
	for _, p := range all {
		running := p.State == string(health.Running)
		if running && p.Restarts == 0 {
			continue
		}
		text := p.Kind + " " + p.State
		switch {
		case !running && p.Code != "":
			text += " (" + p.Code + ")"
		case p.Restarts > 0:
			text += ", " + report.Plural(int64(p.Restarts), "restart")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}

func agents(ctx context.Context, a *app.App, expect []string) error {
	l, err := a.Open(ctx, app.ToRead)
	if err != nil {
		return err
	}
	defer l.Close()
	rows, live, err := answer.Agents(ctx, l.Any)
	if err != nil {
		return err
	}
	columns := []string{"agent", "state", "kinds", "stalled", "shard", "held", "heartbeat_age_s",
		"version", "clock_skew_ms"}
	n := 0
	if p := a.Printer(); p.Format == report.Table {
		shown := make([]shownAgent, len(rows))
		for i, row := range rows {
			shown[i] = shownAgent{row, pluginsText(row.Plugins)}
		}
		n, err = report.List(p, report.Each(shown), slices.Insert(columns, 3, "trouble")...)
	} else {
		n, err = report.List(p, report.Each(rows), columns...)
	}
	if err != nil {
		return err
	}
	if gone := missing(expect, live); len(gone) > 0 {
		return failure.New(failure.ExitError, "not_at_work", "not at work: "+strings.Join(gone, ", "),
			"start it there: ledgerd serve")
	}
	if n == 0 && a.ErrorOnEmpty {
		return failure.Status(failure.ExitEmpty)
	}
	return nil
}
