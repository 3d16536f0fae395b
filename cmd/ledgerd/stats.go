package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/report"
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

func (a *app) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stats", Short: "Count what is open, and what ended in the last hour", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Counts the backlog by kind.

With -o json: {"kinds":[{"kind","ready","waiting","leased","dead","doubt","done_1h","failed_1h",
"oldest_ready_s"}],"agents":4,"at":…}; jsonl, csv: the rows of kinds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
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
