package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// statsRow is the backlog of a kind, and what ended lately. A figure that nobody can know is null.
type statsRow struct {
	Kind         string   `json:"kind"`
	Ready        int64    `json:"ready"`
	Waiting      int64    `json:"waiting"`
	Leased       int64    `json:"leased"`
	Dead         int64    `json:"dead"`
	Doubt        int64    `json:"doubt"`
	RoundsDone   int64    `json:"rounds_done"`
	RoundsFailed int64    `json:"rounds_failed"`
	Left         int64    `json:"left"`
	Done1h       int64    `json:"done_1h"`
	Failed1h     int64    `json:"failed_1h"`
	PerSecond1m  float64  `json:"per_second_1m"`
	OldestReady  float64  `json:"oldest_ready_s"`
	ETA          *float64 `json:"eta_s"`
	WorkMS1h     *float64 `json:"work_ms_1h"`
	Paused       bool     `json:"paused"`
	Workers      int      `json:"workers"`
}

// approximate are the columns that come from tallies.
var approximate = []string{"done_1h", "failed_1h", "per_second_1m", "eta_s", "work_ms_1h"}

func newStatsRow(k ledger.KindStats, now time.Time) statsRow {
	row := statsRow{Kind: k.Kind, Ready: k.Ready, Waiting: k.Waiting, Leased: k.Leased, Dead: k.Dead, Doubt: k.Doubt,
		RoundsDone: k.RoundsDone, RoundsFailed: k.RoundsFailed, Left: k.Open(), Done1h: k.Done, Failed1h: k.Failed, PerSecond1m: math.Round(k.PerSecond*100) / 100,
		Paused: k.Paused, Workers: k.Workers}
	if !k.OldestReady.IsZero() {
		row.OldestReady = max(0, inSeconds(now.Sub(k.OldestReady)))
	}
	if k.ETA > 0 || k.PerSecond > 0 && k.Ready+k.Leased == 0 && !k.Paused && k.Workers > 0 {
		eta := k.ETA.Round(100 * time.Millisecond).Seconds()
		row.ETA = &eta
	}
	if k.Done+k.Failed > 0 {
		ms := float64(k.Worked.Round(time.Microsecond)) / float64(time.Millisecond)
		row.WorkMS1h = &ms
	}
	return row
}

// shownStats is a statsRow for people: figures that are not exact have a mark.
type shownStats struct {
	Kind         string `json:"kind"`
	Ready        string `json:"ready"`
	Waiting      string `json:"waiting" spare:"7"`
	Leased       string `json:"leased" spare:"8"`
	Dead         string `json:"dead"`
	Doubt        string `json:"doubt" spare:"10"`
	RoundsDone   string `json:"rounds_done" spare:"2"`
	RoundsFailed string `json:"rounds_failed" spare:"3"`
	Left         string `json:"left"`
	Done1h       string `json:"done_1h" spare:"5"`
	Failed1h     string `json:"failed_1h" spare:"4"`
	PerSecond1m  string `json:"per_second_1m" heading:"per_s" spare:"6"`
	OldestReady  string `json:"oldest_ready_s" heading:"oldest_s" spare:"1"`
	ETA          string `json:"eta_s"`
	WorkMS1h     string `json:"work_ms_1h"`
	Paused       string `json:"paused"`
	Workers      int    `json:"workers" spare:"9"`
}

// shownStatsColumns are the columns of the table; where they are too wide, those with the tag spare are left out.
var shownStatsColumns = []string{"kind", "ready", "waiting", "leased", "dead", "doubt", "rounds_done", "rounds_failed", "left", "done_1h", "failed_1h",
	"per_second_1m", "oldest_ready_s", "eta_s", "paused", "workers"}

func (r statsRow) shown() shownStats {
	about := func(v *float64) string {
		if v == nil {
			return ""
		}
		return "≈" + strconv.FormatFloat(*v, 'f', -1, 64)
	}
	return shownStats{r.Kind, report.Count(r.Ready), report.Count(r.Waiting), report.Count(r.Leased), report.Count(r.Dead), report.Count(r.Doubt),
		report.Count(r.RoundsDone), report.Count(r.RoundsFailed), report.Count(r.Left), "≈" + report.Count(r.Done1h), "≈" + report.Count(r.Failed1h), about(&r.PerSecond1m), strconv.FormatFloat(r.OldestReady, 'f', -1, 64), about(r.ETA), about(r.WorkMS1h),
		map[bool]string{true: "paused"}[r.Paused], r.Workers}
}

// groupRow is how the items of one value stand.
type groupRow struct {
	by        string
	Group     string `json:"group"` // the value; with JSON it has the name of what it is
	Done      int64  `json:"done"`
	Failed    int64  `json:"failed"`
	Doubt     int64  `json:"doubt"`
	Left      int64  `json:"left"`
	Cancelled int64  `json:"cancelled"`
	value     json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (g groupRow) MarshalJSON() ([]byte, error) {
	value := g.value
	if value == nil {
		value = json.RawMessage("null")
	}
	return fmt.Appendf(nil, `{%s:%s,"done":%d,"failed":%d,"doubt":%d,"left":%d,"cancelled":%d}`,
		ledger.JSON(g.by), value, g.Done, g.Failed, g.Doubt, g.Left, g.Cancelled), nil
}

// noValue is how tables show the group of what has no such field.
const noValue = "(none)"

// groups counts items by what they have in common.
func (a *app) groups(ctx context.Context, f filter, by string) error {
	if slices.Contains([]string{"done", "failed", "doubt", "left", "cancelled", ""}, by) {
		return usage("bad_flag", "kind, scope or a field of the payload", "--by %q: is what is counted", by)
	}
	chosen, err := f.parse()
	if err != nil {
		return err
	}
	l, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	p := a.printer()
	within := time.Duration(0)
	if p.Format == report.Table {
		within = lookTime
	}
	groups, whole, err := l.Groups(ctx, chosen, by, within)
	if err != nil {
		return err
	}
	counted := int64(0)
	rows := make([]groupRow, len(groups))
	for i, g := range groups {
		name := noValue
		if g.Value != nil && json.Unmarshal(g.Value, &name) != nil {
			name = string(g.Value)
		}
		counted += g.Done + g.Failed + g.Doubt + g.Left + g.Cancelled
		rows[i] = groupRow{by, name, g.Done, g.Failed, g.Doubt, g.Left, g.Cancelled, g.Value}
	}
	if p.Format == report.JSON {
		err = p.Object(struct {
			Groups []groupRow `json:"groups"`
		}{rows})
	} else {
		_, err = report.List(p, each(rows))
	}
	if !whole && !a.quiet {
		fmt.Fprintf(a.stderr, "these are the newest %s items that match, as far as it has counted in %s; -o csv counts all\n", report.Count(counted), seconds(lookTime))
	}
	if err == nil && len(rows) == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}

// inSeconds is to the millisecond, as the nearest number that is written with three digits.
func inSeconds(d time.Duration) float64 {
	return float64(d.Round(time.Millisecond).Milliseconds()) / 1000
}

func (a *app) statsCommand() *cobra.Command {
	var f filter
	var by string
	cmd := &cobra.Command{
		Use: "stats", Short: "Count what is open, and what ended in the last hour", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Counts the backlog by kind, exactly, and says how fast it is being worked; --kind: only of these.

Recurring items that wait for their next round count as waiting, too: rounds_done and rounds_failed are
those of which the current round is done, or failed for good (of the first 100,000 that wait). left is what
is left to do: waiting but for these, ready and leased.

What ended (done_1h, failed_1h: attempts; per_second_1m: attempts over the last minute; work_ms_1h: mean
time of one in its handler) comes from what workers add up and write every 5 s, and so is not exact: it
is marked with ≈ in tables. What people finished by hand is not in it. eta_s is how long what is ready
and leased takes at the rate of the last minute, and not less
than a rate limit of the kind allows.

A table that is wider than the terminal leaves out columns, those without a figure first; -o csv has them all.

With -o json: {"kinds":[{"kind","ready","waiting","leased","dead","doubt","rounds_done","rounds_failed","left",
"done_1h","failed_1h",
"per_second_1m","oldest_ready_s","eta_s","work_ms_1h"}],"agents":4,"approximate":["done_1h",…],"at":…};
jsonl, csv: the rows of kinds.

With --by it counts the items that match, by kind, scope or a field of the payload (dots lead into objects):
done, failed, doubt, left, cancelled, of recurring items as their current round stands (see round: of --where).
Items without the field, or with a payload that is no JSON, are a group of their own, the last one. For people
(-o table) it counts for at most two seconds, from the newest item on, and says so; in CSV and JSON, all are
counted, exactly and at one moment. With -o json:
{"groups":[{"template":"A","done","failed","doubt","left","cancelled"}]}, where template is what --by
names, and null stands for none.`,
		Example: "  ledgerd stats --by template --scope kitty-lovers",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if cmd.Flags().Changed("by") {
				return a.groups(ctx, f, by)
			}
			if len(f.where)+len(f.scopes)+len(f.states)+len(f.agent) > 0 {
				return usage("bad_flag", "say what to count by: --by kind", "--where, --scope, --state and --agent go with --by")
			}
			if _, err := f.parse(); err != nil {
				return err
			}
			l, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			if _, err := checkKinds(ctx, l.Ledger, f.kinds); err != nil {
				return err
			}
			all, err := l.Stats(ctx)
			if err != nil {
				return err
			}
			if len(f.kinds) > 0 {
				all.Kinds = slices.DeleteFunc(all.Kinds, func(k ledger.KindStats) bool { return !slices.Contains(f.kinds, k.Kind) })
			}
			return a.tellStats(all)
		},
	}
	f.define(cmd)
	cmd.Flags().StringVar(&by, "by", "", "count the items by `kind`, scope or a field of the payload")
	return cmd
}

func (a *app) tellStats(s ledger.Stats) (err error) {
	rows := make([]statsRow, len(s.Kinds))
	shown := make([]shownStats, len(s.Kinds))
	for i, k := range s.Kinds {
		rows[i] = newStatsRow(k, s.At)
		shown[i] = rows[i].shown()
	}
	switch p := a.printer(); p.Format {
	case report.JSON:
		err = p.Object(struct {
			Kinds       []statsRow  `json:"kinds"`
			Agents      int         `json:"agents"`
			Approximate []string    `json:"approximate"`
			At          report.Time `json:"at"`
		}{rows, s.Agents, approximate, report.Time(s.At)})
	case report.Table:
		_, err = report.List(p, each(shown), shownStatsColumns...)
	default:
		_, err = report.List(p, each(rows))
	}
	if err == nil && len(rows) == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}

// each yields the rows of a list that is at hand.
func each[T any](rows []T) func(yield func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for row := range slices.Values(rows) {
			if !yield(row, nil) {
				return
			}
		}
	}
}
