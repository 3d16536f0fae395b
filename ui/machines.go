package ui

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledgerd/internal/answer"
)

// machinesData are the programs that work, and the state of their plugins.
type machinesData struct {
	Items   []answer.Agent
	Plugins []plugin
	Say     string
	Lines   []string
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
	var work, gone, people, held, down int64
	for _, a := range l.Items {
		switch a.State {
		case answer.AtWork:
			work++
		case answer.Gone:
			gone, held = gone+1, held+a.Held
		default:
			people++
		}
		for _, p := range a.Plugins {
			row := plugin{Plugin: p, Agent: a.Agent, Class: "done"}
			if p.RSS != nil {
				row.RAM = counted(*p.RSS>>20, "MiB", "MiB")
			}
			if p.State != "running" {
				row.Class = "dead"
				down++
			}
			d.Plugins = append(d.Plugins, row)
		}
	}
	slices.SortStableFunc(d.Plugins, func(a, b plugin) int { // what does not run comes first
		return cmp.Or(cmp.Compare(a.Class, b.Class), cmp.Compare(a.Kind, b.Kind))
	})
	d.Say = counted(work, "program is", "programs are") + " at work"
	if people > 0 {
		d.Say += ", " + counted(people, "person holds", "people hold") + " items"
	}
	if down > 0 {
		d.Say += "; " + counted(down, "plugin does", "plugins do") + " not run"
	}
	if gone > 0 {
		d.Say += "; " + counted(gone, "program is", "programs are") + " gone, with " + counted(held, "lease", "leases")
	}
	d.Say += "."
	return d, err
}
