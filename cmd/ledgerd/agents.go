package main

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// agentRow is a program that works, or whoever else holds items.
type agentRow struct {
	Agent   string      `json:"agent"`
	Host    string      `json:"host"`
	PID     int         `json:"pid"`
	Version string      `json:"version"`
	Kinds   []string    `json:"kinds"`
	Stalled []string    `json:"stalled"`
	Shard   string      `json:"shard"`
	Held    int64       `json:"held"`
	Started report.Time `json:"started_at"`
	Seen    report.Time `json:"seen_at"`
	Age     *float64    `json:"heartbeat_age_s"`
	Skew    *float64    `json:"clock_skew_ms"`
}

func (a *app) agentsCommand() *cobra.Command {
	return &cobra.Command{
		Annotations: map[string]string{rowsAnnotation: "yes"},
		Use:         "agents", Short: "List who works: daemons with their heartbeat, and people who hold items", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Lists the programs that work this ledger and whoever else holds items: a person, or a program that is
gone; these have no heartbeat.

With -o json: [{"agent","host","pid","version","kinds","stalled","shard","held","started_at",
"seen_at","heartbeat_age_s","clock_skew_ms"}]. stalled are kinds whose plugin crashes again and again there, or
does not start, so that nothing is given to it for a while. clock_skew_ms is how far the machine's clock is ahead of the
database's; leases do not depend on it. It is 0 until an agent's second heartbeat, after 10 s.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.agents(cmd.Context())
		},
	}
}

func (a *app) agents(ctx context.Context) error {
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	agents, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	held, err := l.LeasedBy(ctx)
	if err != nil {
		return err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return err
	}
	rows := []agentRow{}
	for _, g := range agents {
		age := max(0, now.Sub(g.SeenAt).Seconds())
		skew := float64(g.Skew) / float64(time.Millisecond)
		row := agentRow{Agent: g.Name, Host: g.Host, PID: g.PID, Version: g.Version, Kinds: slices.Sorted(maps.Keys(g.Kinds)), Stalled: stalledKinds(g, now), Held: held[g.Name],
			Started: report.Time(g.StartedAt), Seen: report.Time(g.SeenAt), Age: &age, Skew: &skew}
		if g.Shard.Count > 0 {
			row.Shard = g.Shard.String()
		}
		rows = append(rows, row)
		delete(held, g.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		rows = append(rows, agentRow{Agent: name, Kinds: []string{}, Stalled: []string{}, Held: held[name]})
	}
	n, err := report.List(a.printer(), each(rows), "agent", "kinds", "stalled", "shard", "held", "heartbeat_age_s", "version", "clock_skew_ms")
	if err == nil && n == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}

// stalledKinds are the kinds to which an agent gives nothing now because their plugin crashes again and again, or
// does not start.
func stalledKinds(g ledger.Agent, now time.Time) []string {
	kinds := []string{}
	for kind, until := range g.Stalled {
		if until.After(now) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}
