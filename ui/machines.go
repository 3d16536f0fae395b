package ui

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// machinesData are the programs that work, and the state of their plugins.
type machinesData struct {
	Items      []answer.Agent
	Plugins    []plugin
	Lines      []string
	Work, Gone int64 // programs that work, and that are gone
	Held       int64 // items of programs that are gone
	People     int64 // that hold items
	Down       int64 // plugins that do not run
}

// plugin is the process of a plugin on a machine.
type plugin struct {
	answer.Plugin
	Agent string
	Class string // of its sign
	RAM   string
}

func machines(v *view) (any, error) {
	l, err := get[answer.List[answer.Agent]](v, "/agents", nil)
	d := machinesData{Items: l.Items, Lines: []string{"ledgerd agents", "GET /api/v1/agents"}}
	for _, a := range l.Items {
		switch a.State {
		case answer.AtWork:
			d.Work++
		case answer.Gone:
			d.Gone, d.Held = d.Gone+1, d.Held+a.Held
		default:
			d.People++
		}
		for _, p := range a.Plugins {
			row := plugin{Plugin: p, Agent: a.Agent, Class: "done"}
			if p.RSS != nil {
				row.RAM = counted(*p.RSS>>20, "MiB", "MiB")
			}
			if p.State != "running" {
				row.Class = "dead"
				d.Down++
			}
			d.Plugins = append(d.Plugins, row)
		}
	}
	slices.SortStableFunc(d.Plugins, func(a, b plugin) int { // plugins that do not run come first
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Kind, b.Kind))
	})
	return d, err
}
