package main

import (
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
	Kind        string   `json:"kind"`
	Ready       int64    `json:"ready"`
	Waiting     int64    `json:"waiting"`
	Leased      int64    `json:"leased"`
	Dead        int64    `json:"dead"`
	Doubt       int64    `json:"doubt"`
	Done1h      int64    `json:"done_1h"`
	Failed1h    int64    `json:"failed_1h"`
	PerSecond1m float64  `json:"per_second_1m"`
	OldestReady float64  `json:"oldest_ready_s"`
	ETA         *float64 `json:"eta_s"`
	WorkMS1h    *float64 `json:"work_ms_1h"`
}

// approximate are the columns that come from tallies.
var approximate = []string{"done_1h", "failed_1h", "per_second_1m", "eta_s", "work_ms_1h"}

func newStatsRow(k ledger.KindStats, now time.Time) statsRow {
	row := statsRow{Kind: k.Kind, Ready: k.Ready, Waiting: k.Waiting, Leased: k.Leased, Dead: k.Dead, Doubt: k.Doubt,
		Done1h: k.Done, Failed1h: k.Failed, PerSecond1m: math.Round(k.PerSecond*100) / 100}
	if !k.OldestReady.IsZero() {
		row.OldestReady = max(0, now.Sub(k.OldestReady).Round(time.Millisecond).Seconds())
	}
	if k.ETA > 0 || k.PerSecond > 0 && k.Ready+k.Leased == 0 {
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
	Kind        string `json:"kind"`
	Ready       string `json:"ready"`
	Waiting     string `json:"waiting"`
	Leased      string `json:"leased"`
	Dead        string `json:"dead"`
	Doubt       string `json:"doubt"`
	Done1h      string `json:"done_1h"`
	Failed1h    string `json:"failed_1h"`
	PerSecond1m string `json:"per_second_1m"`
	OldestReady string `json:"oldest_ready_s"`
	ETA         string `json:"eta_s"`
	WorkMS1h    string `json:"work_ms_1h"`
}

func (r statsRow) shown() shownStats {
	about := func(v *float64) string {
		if v == nil {
			return ""
		}
		return "≈" + strconv.FormatFloat(*v, 'f', -1, 64)
	}
	return shownStats{r.Kind, report.Count(r.Ready), report.Count(r.Waiting), report.Count(r.Leased), report.Count(r.Dead), report.Count(r.Doubt),
		"≈" + report.Count(r.Done1h), "≈" + report.Count(r.Failed1h), about(&r.PerSecond1m), strconv.FormatFloat(r.OldestReady, 'f', -1, 64), about(r.ETA), about(r.WorkMS1h)}
}

func (a *app) statsCommand() *cobra.Command {
	return &cobra.Command{
		Use: "stats", Short: "Count what is open, and what ended in the last hour", GroupID: groupLook, Args: arguments(0, 0),
		Long: `Counts the backlog by kind, exactly, and says how fast it is being worked.

What ended (done_1h, failed_1h: attempts; per_second_1m: attempts over the last minute; work_ms_1h: mean
time of one in its handler) comes from what workers add up and write every 5 s, and so is not exact: it
is marked with ≈ in tables. What people finished by hand is not in it. eta_s is how long what is ready
and leased takes at the rate of the last minute.

With -o json: {"kinds":[{"kind","ready","waiting","leased","dead","doubt","done_1h","failed_1h",
"per_second_1m","oldest_ready_s","eta_s","work_ms_1h"}],"agents":4,"approximate":["done_1h",…],"at":…};
jsonl, csv: the rows of kinds.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			l, err := a.open(ctx)
			if err != nil {
				return err
			}
			defer l.Close()
			s, err := l.Stats(ctx)
			if err != nil {
				return err
			}
			return a.tellStats(s)
		},
	}
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
		_, err = report.List(p, each(shown), "kind", "ready", "waiting", "leased", "dead", "doubt", "done_1h", "failed_1h", "per_second_1m", "oldest_ready_s", "eta_s")
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
