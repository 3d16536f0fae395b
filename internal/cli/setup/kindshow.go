package setup

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/cli/attention"
	"github.com/ledgerd/ledgerd/internal/config"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/definition"
)

// shownKind is what kind show prints with -o json.
type shownKind struct {
	answer.Kind
	Pause    *pauseRow             `json:"pause"`  // null: it is not paused, or the journal does not have it
	Config   json.RawMessage       `json:"config"` // null: nothing has worked it yet
	Defaults map[string]defaultRow `json:"defaults"`
	Items    kindItems             `json:"items"`
	Workers  []kindWorker          `json:"workers"`
	Refused  []refusedWorker       `json:"refused"`
}

// pauseRow is who paused a kind, when and why.
type pauseRow struct {
	By     string      `json:"by"`
	At     report.Time `json:"at"`
	Reason string      `json:"reason"`
}

type defaultRow struct {
	Value  json.RawMessage `json:"value"`
	Kept   bool            `json:"kept"`
	Varied bool            `json:"varied"`
}

type kindItems struct {
	Ready   int64 `json:"ready"`
	Waiting int64 `json:"waiting"`
	Held    int64 `json:"held"`
	Dead    int64 `json:"dead"`
	Doubt   int64 `json:"doubt"`
}

type kindWorker struct {
	Agent      string          `json:"agent"`
	Host       string          `json:"host"`
	PID        int             `json:"pid"`
	Since      report.Time     `json:"since"`
	Definition string          `json:"definition"`
	Config     json.RawMessage `json:"config"`
}

func kindShowCommand(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "show KIND", Short: "Show a kind: what works it, with which settings, how it is treated, what is left of it",
		Args: app.Arguments(1, 1),
		Long: `Shows what the ledger knows of a kind: the plugin with the settings in force, the fields of the payload that run
and add take from the kind if they are not given, its policy, its open items, the agents that work it, and
the agents that wait until they may work it with other settings. Settings have no secrets.

With -o json: the fields of kind ls, and "pause":{"by","at","reason"} (null: it is not paused),
"config" (null: nothing has worked it yet), "defaults":{NAME:{"value","kept": kind set gave it, "varied": commands gave different values, so it must be given}}, "items":{"ready","waiting",
"held","dead","doubt"}, "workers":[{"agent","host","pid","since","definition","config"}], "refused" (to work it with other
settings):[{"agent","host","pid","since","config"}].`,
		Example: "  ledgerd kind show urlcheck",
		RunE: func(cmd *cobra.Command, args []string) error {
			return kindShow(cmd.Context(), a, args[0])
		},
	}
}

func kindShow(ctx context.Context, a *app.App, name string) error {
	l, err := a.Open(ctx, app.ToRead)
	if err != nil {
		return err
	}
	defer l.Close()
	k, err := l.Kind(ctx, name)
	if errors.Is(err, ledger.ErrNotFound) {
		return a.UnknownKind(ctx, l.Any, name)
	}
	if err != nil {
		return err
	}
	k.Defaults = k.Defaults.Flat()
	st, err := l.Standing(ctx, name)
	if err != nil {
		return err
	}
	agents, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	s := shownKind{Kind: answer.NewKind(k), Config: object(k.Config), Defaults: map[string]defaultRow{},
		Items:   kindItems{st.Ready, st.Waiting, st.Held + st.Persons, st.Dead, st.Doubt},
		Workers: []kindWorker{}, Refused: []refusedWorker{}}
	pauses, err := l.Pauses(ctx, k)
	if err != nil {
		return err
	}
	pause, paused := pauses[k.Name]
	if paused {
		s.Pause = &pauseRow{pause.Actor, report.Time(pause.At), pause.Detail}
	}
	for field, d := range k.Defaults {
		s.Defaults[field] = defaultRow(d)
	}
	for _, g := range agents {
		if definition, works := g.Kinds[name]; works {
			s.Workers = append(s.Workers, kindWorker{g.Name, g.Host, g.PID, report.Time(g.StartedAt), definition,
				object(g.Configs[name])})
		}
	}
	for _, g := range refused(agents, name) {
		s.Refused = append(s.Refused, refusedWorker{g.Name, g.Host, g.PID, report.Time(g.StartedAt), object(g.Configs[name])})
	}
	p := a.Printer()
	switch p.Format {
	case report.Table:
		return showKind(p, s, k, pause)
	case report.CSV:
		return failure.Usage("bad_flag", "", "kind show has more than rows: -o table, json or jsonl")
	}
	return p.Object(s)
}

// object returns a config as JSON; nil (null in JSON) if it is "".
func object(config string) json.RawMessage {
	if config == "" {
		return nil
	}
	return json.RawMessage(config)
}

// showKind prints a kind for people.
func showKind(p *report.Printer, s shownKind, k ledger.Kind, pause ledger.JournalEntry) error {
	var b strings.Builder
	field := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-8s %s\n", name, report.Safe(value))
		}
	}
	fmt.Fprintf(&b, "%s\n", k.Name)
	field("plugin", s.worked())
	field("input", s.input())
	field("policy", s.policy())
	field("limits", s.Limits)
	if s.Paused {
		field("paused", cmp.Or(attention.ByWhom(pause), "yes")+": ledgerd kind resume "+k.Name)
	}
	i := s.Items
	field("items", fmt.Sprintf("ready %s   waiting %s   held %s   dead %s   doubt %s", report.Count(i.Ready),
		report.Count(i.Waiting), report.Count(i.Held), report.Count(i.Dead), report.Count(i.Doubt)))
	if _, err := fmt.Fprint(p.Out, b.String()); err != nil {
		return err
	}
	sections := []struct {
		title string
		rows  [][]string
		whole []int
	}{
		{"settings in force (--with)", settingRows(k.Config), nil},
		{"payload of new items, if run and add do not give it (--set)", s.defaultRows(k), nil},
		{"worked now by", s.workerRows(k.Config), []int{3}}, // since when
		{"to be worked with other settings by these, which wait for those", s.refusedRows(k.Config), []int{3}},
	}
	for _, part := range sections {
		if len(part.rows) == 0 {
			continue
		}
		fmt.Fprintf(p.Out, "\n%s\n", part.title)
		if err := p.Align("  ", part.rows, part.whole...); err != nil {
			return err
		}
	}
	return nil
}

// worked describes the plugin that works the kind.
func (s *shownKind) worked() string {
	if s.Definition != "" {
		return s.Definition
	}
	if s.Plugin != "" {
		return s.Plugin + ", which has not worked it yet"
	}
	return "nothing has worked it yet"
}

func (s *shownKind) input() string {
	text := s.Input
	if s.InputField != "" {
		text += " as " + s.InputField
	}
	return strings.TrimSpace(text + "   " + strings.Join(s.Match, " "))
}

func (s *shownKind) policy() string {
	seconds := func(n float64) string { return config.FormatDuration(time.Duration(n * float64(time.Second))) }
	text := fmt.Sprintf("on_lost %s   max_failures %d   max_crashes %d   max_lost %d   backoff %s … %s", s.OnLost,
		s.MaxFailures, s.MaxCrashes, s.MaxLost, seconds(s.BackoffBase), seconds(s.BackoffCap))
	if s.Timeout > 0 {
		text += "   timeout " + seconds(s.Timeout)
	}
	if s.Keep == nil {
		return text + "   keep forever"
	}
	return text + "   keep " + seconds(*s.Keep)
}

// settingRows are the settings of a config, in the order of their names.
func settingRows(config string) (rows [][]string) {
	for _, d := range definition.Differences("", config) {
		rows = append(rows, []string{d.Name, report.Safe(d.Want)})
	}
	return rows
}

func (s *shownKind) defaultRows(k ledger.Kind) (rows [][]string) {
	have, varied := k.DefaultFields()
	for _, name := range slices.Sorted(maps.Keys(k.Defaults)) {
		note := ""
		switch {
		case slices.Contains(varied, name):
			note = "given last; others were given before, so it must be given"
		case !slices.Contains(have, name):
			note = "given last, and not used: what may come into doubt is not done from memory"
		case k.Defaults[name].Kept:
			note = "by kind set"
		default:
			note = "as commands gave it"
		}
		rows = append(rows, []string{name, report.Safe(string(k.Defaults[name].Value)), note})
	}
	return rows
}

// workerRows are the rows of the programs that work the kind, each with its settings that differ from config.
func (s *shownKind) workerRows(config string) (rows [][]string) {
	for _, w := range s.Workers {
		var differing []string
		for _, d := range definition.Differences(config, string(w.Config)) {
			differing = append(differing, d.Name+" "+d.Want)
		}
		rows = append(rows, []string{w.Agent, "host " + w.Host, fmt.Sprintf("pid %d", w.PID), "since " +
			report.Brief(time.Time(w.Since)), w.Definition, report.Safe(strings.Join(differing, ", "))})
	}
	return rows
}
