package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// statsRow is the backlog of a kind, and what ended in the last hour.
type statsRow struct {
	Kind        string  `json:"kind"`
	Ready       int64   `json:"ready"`
	Waiting     int64   `json:"waiting"`
	Leased      int64   `json:"leased"`
	Dead        int64   `json:"dead"`
	Doubt       int64   `json:"doubt"`
	Done1h      int64   `json:"done_1h"`
	Failed1h    int64   `json:"failed_1h"`
	OldestReady float64 `json:"oldest_ready_s"`
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
	groups, err := l.Groups(ctx, chosen, by)
	if err != nil {
		return err
	}
	rows := make([]groupRow, len(groups))
	for i, g := range groups {
		name := noValue
		if g.Value != nil && json.Unmarshal(g.Value, &name) != nil {
			name = string(g.Value)
		}
		rows[i] = groupRow{by, name, g.Done, g.Failed, g.Doubt, g.Left, g.Cancelled, g.Value}
	}
	p := a.printer()
	if p.Format == report.JSON {
		err = p.Object(struct {
			Groups []groupRow `json:"groups"`
		}{rows})
	} else {
		_, err = report.List(p, each(rows))
	}
	if err == nil && len(rows) == 0 && a.errorOnEmpty {
		return status(exitEmpty)
	}
	return err
}

func (a *app) statsCommand() *cobra.Command {
	var f filter
	var by string
	cmd := &cobra.Command{
		Use: "stats", Short: "Count what is open, and what ended in the last hour", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Counts the backlog by kind.

With -o json: {"kinds":[{"kind","ready","waiting","leased","dead","doubt","done_1h","failed_1h",
"oldest_ready_s"}],"agents":4,"at":…}; jsonl, csv: the rows of kinds.

With --by it counts all items that match, exactly, by kind, scope or a field of the payload (dots lead
into objects): done, failed (dead), doubt, left (waiting, ready or leased), cancelled. Items without
the field, or with a payload that is no JSON, are a group of their own, the last one. With -o json:
{"groups":[{"template":"A","done","failed","doubt","left","cancelled"}]}, where template is what --by
names, and null stands for none.`,
		Example: "  ledgerd stats --by template --scope kitty-lovers",
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			if cmd.Flags().Changed("by") {
				return a.groups(ctx, f, by)
			}
			if len(f.where)+len(f.kinds)+len(f.scopes) > 0 {
				return usage("bad_flag", "say what to count by: --by kind", "--where, --kind and --scope go with --by")
			}
			l, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			now := time.Now()
			counts, err := l.Counts(ctx, now.Add(-time.Hour))
			if err != nil {
				return err
			}
			agents, err := l.Agents(ctx)
			if err != nil {
				return err
			}
			rows := make([]statsRow, len(counts))
			for i, c := range counts {
				rows[i] = statsRow{c.Kind, c.Ready, c.Waiting, c.Leased, c.Dead, c.Doubt, c.Done, c.Failed, 0}
				if !c.OldestReady.IsZero() {
					rows[i].OldestReady = max(0, now.Sub(c.OldestReady).Round(time.Millisecond).Seconds())
				}
			}
			p := a.printer()
			if p.Format == report.JSON {
				err = p.Object(struct {
					Kinds  []statsRow  `json:"kinds"`
					Agents int         `json:"agents"`
					At     report.Time `json:"at"`
				}{rows, len(agents), report.Time(now)})
			} else {
				_, err = report.List(p, each(rows))
			}
			if err == nil && len(rows) == 0 && a.errorOnEmpty {
				return status(exitEmpty)
			}
			return err
		},
	}
	f.define(cmd)
	cmd.Flags().StringVar(&by, "by", "", "count the items by `kind`, scope or a field of the payload")
	return cmd
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
