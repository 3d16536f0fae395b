package answer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/ledgers"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// Agent is a program that works, or another holder of items.
type Agent struct {
	Agent   string   `json:"agent"`
	Host    string   `json:"host"`
	PID     int      `json:"pid"`
	Version string   `json:"version"`
	Kinds   []string `json:"kinds"`
	Stalled []string `json:"stalled"`
	// State is at_work, gone or person. Gone: its heartbeat expired and it did not sign off. It is listed for a day.
	State   string      `json:"state" oneof:"at_work|gone|person"`
	Plugins []Plugin    `json:"plugins"`
	Shard   string      `json:"shard"`
	Held    int64       `json:"held"`
	Started report.Time `json:"started_at"`
	Seen    report.Time `json:"seen_at"`
	Age     *float64    `json:"heartbeat_age_s"`
	Skew    *float64    `json:"clock_skew_ms"`
}

// Plugin is the state of a plugin process of an agent.
type Plugin struct {
	Kind    string `json:"kind"`
	Version string `json:"version"`
	// State is running, restarting, crashing or absent. Crashing: it crashes again and again, and gets no items before
	// until. Absent: it does not start, and is started again at until.
	State    string      `json:"state" oneof:"running|restarting|crashing|absent"`
	Until    report.Time `json:"until"`
	Restarts int         `json:"restarts"`
	Code     string      `json:"code"`  // of its newest crash or failed start; "" if there was none
	Error    string      `json:"error"` // the reason, one line, without secrets; it may name paths of that machine
	ErrorAt  report.Time `json:"error_at"`
	RSS      *int64      `json:"rss_bytes"`
}

// plugins returns the plugins of an agent, by kind.
func plugins(g ledger.Agent) []Plugin {
	all := []Plugin{}
	for _, kind := range slices.Sorted(maps.Keys(g.Plugins)) {
		p := g.Plugins[kind]
		row := Plugin{Kind: kind, Version: p.Version, State: string(p.State), Until: report.Time(g.Stalled[kind]),
			Restarts: p.Restarts, Code: p.Code, Error: p.Error, ErrorAt: report.Time(p.ErrorAt)}
		if p.RSS > 0 {
			row.RSS = &p.RSS
		}
		all = append(all, row)
	}
	return all
}

// States of agents.
const (
	AtWork = "at_work"
	Gone   = "gone"
	Person = "person"
)

// Agents returns the programs that work a ledger, and all others that hold items: people, and programs that are gone.
// live are the programs that work. A program that did not sign off is listed for a day, even if it holds nothing.
func Agents(ctx context.Context, l ledgers.Any) (rows []Agent, live []ledger.Agent, err error) {
	if live, err = l.Agents(ctx); err != nil {
		return nil, nil, err
	}
	held, err := l.LeasedBy(ctx)
	if err != nil {
		return nil, nil, err
	}
	known, err := l.Heartbeats(ctx)
	if err != nil {
		return nil, nil, err
	}
	lapsed, err := l.Lapsed(ctx)
	if err != nil {
		return nil, nil, err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return nil, nil, err
	}
	rows = []Agent{}
	for _, g := range live {
		skew := float64(g.Skew) / float64(time.Millisecond)
		row := beat(g, now)
		row.State, row.Plugins, row.Kinds = AtWork, plugins(g), report.OrEmpty(slices.Sorted(maps.Keys(g.Kinds)))
		row.Stalled, row.Held, row.Skew = StalledKinds(g, now), held[g.Name], &skew
		if g.Shard.Count > 0 {
			row.Shard = g.Shard.String()
		}
		rows = append(rows, row)
		delete(held, g.Name)
	}
	gone := map[string]ledger.Agent{}
	for _, g := range lapsed {
		gone[g.Name], held[g.Name] = g, held[g.Name]
	}
	for _, g := range known { // also those that lapsed long ago and still hold leases
		gone[g.Name] = g
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		row := Agent{Agent: name, State: Person}
		if g, is := gone[name]; is {
			row = beat(g, now)
			row.State = Gone
		}
		row.Plugins, row.Kinds, row.Stalled, row.Held = []Plugin{}, []string{}, []string{}, held[name]
		rows = append(rows, row)
	}
	return rows, live, nil
}

// beat makes an Agent of a program, from its newest heartbeat.
func beat(g ledger.Agent, now time.Time) Agent {
	age := max(0, now.Sub(g.SeenAt).Round(100*time.Millisecond).Seconds())
	return Agent{Agent: g.Name, Host: g.Host, PID: g.PID, Version: g.Version, Started: report.Time(g.StartedAt),
		Seen: report.Time(g.SeenAt), Age: &age}
}

// StalledKinds returns the kinds that an agent does not work now, because their plugin crashes again and again or
// does not start.
func StalledKinds(g ledger.Agent, now time.Time) []string {
	kinds := []string{}
	for kind, until := range g.Stalled {
		if until.After(now) {
			kinds = append(kinds, kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}
