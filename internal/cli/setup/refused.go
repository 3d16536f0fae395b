package setup

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/definition"
	"github.com/ledgerd/ledgerd/ledger/finding"
)

// refusedWorker is a program that waits to work the kind: live programs work it with other settings.
type refusedWorker struct {
	Agent  string          `json:"agent"`
	Host   string          `json:"host"`
	PID    int             `json:"pid"`
	Since  report.Time     `json:"since"`
	Config json.RawMessage `json:"config"`
}

// refused returns the live programs that wait to work a kind with other settings, each process once.
func refused(live []ledger.Agent, kind string) (all []ledger.Agent) {
	for _, g := range live {
		_, works := g.Kinds[kind]
		known := slices.ContainsFunc(all, func(o ledger.Agent) bool { return o.Host == g.Host && o.PID == g.PID })
		if !works && g.Configs[kind] != "" && !known {
			all = append(all, g)
		}
	}
	return all
}

// refusedRows are the rows of the programs that wait, each with its settings that differ from config.
func (s *shownKind) refusedRows(config string) (rows [][]string) {
	for _, w := range s.Refused {
		rows = append(rows, []string{w.Agent, "host " + w.Host, fmt.Sprintf("pid %d", w.PID), "since " +
			report.Local(time.Time(w.Since)), report.Safe(differing(config, string(w.Config)))})
	}
	return rows
}

// differing words the settings that differ. Heartbeats have no secrets, so a secret that differs is not among them.
func differing(have, want string) string {
	var texts []string
	for _, d := range definition.Differences(have, want) {
		texts = append(texts, d.String())
	}
	if len(texts) == 0 {
		return "no difference can be shown: it is a secret, or about to go away"
	}
	return strings.Join(texts, ", ")
}

// refusals warns of programs that wait to work a kind with other settings.
func refusals(kinds []ledger.Kind, live []ledger.Agent) (all []finding.Finding) {
	for _, k := range kinds {
		var workers []string
		for _, g := range live {
			if _, works := g.Kinds[k.Name]; works {
				workers = append(workers, g.Name)
			}
		}
		for _, g := range refused(live, k.Name) {
			all = append(all,
				finding.Warning("kind", fmt.Sprintf("kind %s is not worked by %s: it is to work it with other settings than %s (%s)",
					k.Name, g.Name,
					cmp.Or(strings.Join(workers, ", "), "another program"), differing(k.Config, g.Configs[k.Name])),
					"it waits until no other agent works the kind with other settings, and tries again every few seconds", "give all the same config, and each of them SIGHUP: ledgerd kind show "+k.Name))
		}
	}
	return all
}
