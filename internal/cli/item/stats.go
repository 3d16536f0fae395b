package item

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// groupRow counts the items with one value of the field --by. As JSON the value has the name of the field.
type groupRow struct {
	by        string
	Group     string `json:"group"` // the value as text
	Done      int64  `json:"done"`
	Failed    int64  `json:"failed"`
	Doubt     int64  `json:"doubt"`
	Left      int64  `json:"left"`
	Cancelled int64  `json:"cancelled"`
	PutOff    int64  `json:"put_off"`
	value     json.RawMessage
}

// MarshalJSON implements json.Marshaler.
func (g groupRow) MarshalJSON() ([]byte, error) {
	value := g.value
	if value == nil {
		value = json.RawMessage("null")
	}
	return fmt.Appendf(nil, `{%s:%s,"done":%d,"failed":%d,"doubt":%d,"left":%d,"cancelled":%d,"put_off":%d}`,
		ledger.JSON(g.by), value, g.Done, g.Failed, g.Doubt, g.Left, g.Cancelled, g.PutOff), nil
}

// groupColumns returns the columns of groups. A table has the column put_off only if an item was put off.
func groupColumns(p *report.Printer, rows []groupRow) []string {
	columns := []string{"group", "done", "failed", "doubt", "left", "cancelled"}
	if p.Format != report.Table || slices.ContainsFunc(rows, func(r groupRow) bool { return r.PutOff > 0 }) {
		columns = append(columns, "put_off")
	}
	return columns
}

// noValue is the text of the group of items without the field.
const noValue = "(none)"

// groups is stats --by kind, scope, shard_key or a field of the payload.
func groups(ctx context.Context, a *app.App, f app.FilterFlags, by string, limit int) error {
	if slices.Contains([]string{"done", "failed", "doubt", "left", "cancelled", "put_off"}, by) {
		return failure.Usage("bad_flag", "kind, scope, shard_key or a field of the payload",
			"--by %q is a column of the counts; name a field to group by", by)
	}
	l, chosen, err := a.OpenChosen(ctx, f)
	if err != nil {
		return err
	}
	defer l.Close()
	p := a.Printer()
	within := time.Duration(0)
	if p.Format == report.Table {
		within = lookTime
	}
	groups, whole, err := l.Groups(ctx, chosen, by, within)
	if err != nil {
		return err
	}
	counted := int64(0)
	for _, g := range groups {
		counted += g.Done + g.Failed + g.Doubt + g.Left + g.Cancelled + g.PutOff
	}
	groups = shortened(a, groups, limit, false)
	rows := make([]groupRow, len(groups))
	for i, g := range groups {
		name := noValue
		if g.Value != nil && json.Unmarshal(g.Value, &name) != nil {
			name = string(g.Value)
		}
		rows[i] = groupRow{by, name, g.Done, g.Failed, g.Doubt, g.Left, g.Cancelled, g.PutOff, g.Value}
	}
	if p.Format == report.JSON {
		err = p.Object(struct {
			Groups []groupRow `json:"groups"`
		}{rows})
	} else {
		_, err = report.List(p, report.Each(rows), groupColumns(p, rows)...)
	}
	if !whole && !a.Quiet {
		fmt.Fprintf(a.Stderr, "these are the newest %s items that match, as far as it has counted in %s; -o csv counts all\n",
			report.Count(counted), report.Seconds(lookTime))
	}
	if len(groups) == 1 && groups[0].Value == nil && !a.Quiet {
		fmt.Fprintf(a.Stderr, "none of these items has %q in its payload; there are also kind, scope, shard_key, hour, code and worker\n", by)
	}
	return a.OrExitEmpty(len(rows), err)
}

// shortened returns the first limit groups of --by, or of those by time the latest, and tells how many there are.
func shortened[G any](a *app.App, all []G, limit int, byTime bool) []G {
	if len(all) <= limit {
		return all
	}
	end, part := "first", all[:limit]
	if byTime {
		end, part = "latest", all[len(all)-limit:]
	}
	if !a.Quiet {
		fmt.Fprintf(a.Stderr, "these are the %s %s of %s groups; a greater --limit for more\n", end, report.Count(int64(limit)),
			report.Count(int64(len(all))))
	}
	return part
}

var statsHelp = `Counts the backlog of each kind, exactly, and shows how fast it is worked:

  links   ready 120 (the oldest for 3m20s)   leased 8   dead 2
          this round: done 4,823   failed 49
          last hour: done ≈4,823   failed ≈55   95 % within 2.048s
          workers 2   ≈38/s   nothing left in ≈3s

Figures that are 0 are left out. ≈ marks what is not exact, ≥ what was not counted to the end. Below it stands what needs
attention, each with the next command: kinds that are paused or not worked, items in doubt, and dead items with their
three most frequent causes. Counts of causes are marked with ≥ if two seconds were too short to read all dead items
of the kind.

-o csv, json and jsonl have all figures as columns, and --columns makes a table of some of them. Of the backlog:
  ready, waiting, leased, dead, doubt: items in these states
  rounds_done, rounds_failed: recurring items that wait for their next round, because the current one is done or failed.
  Only the first 100,000 waiting items of the kind are read. If there are more, these figures are too low, and left and
  eta_s are too high.
  rounds_put_off: recurring items whose round a person has put off (ledgerd retry --due)
  left: items still to be worked: ready, leased and waiting ones, without those of the three columns rounds_…
  oldest_ready_s: for how many seconds the oldest ready item has been ready
  paused, workers: whether the kind is paused, and how many programs work it

Columns of attempts that ended, also of items that people and scripts finish by hand. Workers write these figures every
5 s, so they are not exact:
  done_1h, failed_1h: attempts of the last hour
  per_second_1m: attempts that were done or failed, per second of the last minute
  work_ms_1h: mean time of an attempt in its handler
  eta_s: time until nothing is left, at the rate of the last minute. It is longer if the kind has a rate limit, if the
  next waiting item is due later, or if a person has put items off. A kind with a rate per shard key has no eta_s.
  wait_p50_s_1h, wait_p95_s_1h, wait_p99_s_1h: time from due to begin. Half, 95 % and 99 % of the attempts of the last
  hour began within so many seconds. An attempt of a worker begins when the handler gets the item, one of a person when
  the item is claimed.
  work_p50_s_1h, work_p95_s_1h, work_p99_s_1h: time from begin to end, in the same way
Percentiles are upper bounds: times are counted in 24 ranges, below 0.004 s, 0.008 s …
16777.216 s, and longer, and the bound of a range is shown. So the figure is at most twice the exact one. It is null if
no attempt ended, or if the time is longer than 16777.216 s.

With -o json: {"kinds":[{"kind","ready","waiting","leased","dead","doubt","rounds_done","rounds_failed",
"rounds_put_off","left","done_1h","failed_1h","per_second_1m","oldest_ready_s","eta_s","work_ms_1h",
"wait_p50_s_1h",…,"work_p99_s_1h","paused","workers"}],"agents":4,"approximate":["done_1h",…],"at":…,
"minutes":[{"at","kind","done","failed","waits"}]}. minutes has what ended in each minute of the last hour, not exact
either; waits counts it by the 24 ranges of the time from due to begin, without zeros at the end.
With -o jsonl and csv: the rows of kinds.

--by kind, scope, shard_key or a field of the payload counts items instead: those that --where and the other filters
match, in the columns done, failed, doubt, left, cancelled and put_off. An item without a shard key counts by its key. A recurring item counts by its current round (see round: of
--where). A dot leads into an object: --by customer.country. For a field that is named so itself, use payload.kind.
The last group has the items without the field, or with a payload that is not JSON. A table counts for at most two
seconds, newest items first, and then reports how far it came. CSV and JSON count all items, at one moment. With
--by template -o json: {"groups":[{"template":"A","done","failed","doubt","left","cancelled","put_off"}]}; in the last
group template is null.

--by hour, code or worker counts attempts that ended since --since (24 h ago): by hour in UTC, by the code of those that
failed, crashed, were lost or are in doubt, or by the agent that had them, as agents names it. --by also takes several of
hour, code, worker, kind and scope: --by hour,kind. An item
that failed twice and was then done counts three times. The figures are exact, and go back as far as attempts are kept
(keep of the kind: 30 days). A table counts for at most two seconds (with --since ten), latest attempts first, and
marks rows that are not complete with ≥. CSV and JSON count all attempts. With -o json:
{"groups":[{"code","` + strings.Join(endedColumns([]string{stats.ByHour}), `","`) + `"}]}.

--by round counts recurring items by kind and round: done and failed in it, newly_failed of those whose round before was
done, and recovered of those whose round before failed. Both are 0 in the earliest round, since only rounds that are
counted are compared. It goes back 7 days, or as far as --since. A round that is not
over has the items that have ended in it. A table counts for ten seconds, latest rounds first; CSV and JSON count to the
end. With -o json: {"groups":[{"kind","round","done","failed","newly_failed","recovered","last_ended_at"}]}.`

func StatsCommand(a *app.App) *cobra.Command {
	var f app.FilterFlags
	var by string
	var last app.DurationFlag
	var limit int
	cmd := &cobra.Command{
		Use: "stats", SuggestFor: []string{"status"}, GroupID: app.GroupLook,
		Short: "Count what is open, and what ended in the last hour",
		Args:  app.Arguments(0, 0),
		Long:  statsHelp,
		Example: `  ledgerd stats --by template --scope kitty-lovers
  ledgerd stats --by hour,kind --since 8h -o csv
  ledgerd stats --by code --since 8h
  ledgerd stats --by worker --since 1h
  ledgerd stats --by round --kind links`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			ended, err := byEnded(by)
			if limited := cmd.Flags().Changed("limit"); limited && (by == "" || limit < 1) {
				return failure.Usage("bad_flag", "ledgerd stats --by code --limit 20", "--limit is 1 or more, and goes with --by")
			} else if !limited && a.Printer().Format != report.Table {
				limit = math.MaxInt
			}
			switch {
			case err != nil:
				return err
			case ended != nil:
				return endedGroups(ctx, a, f, ended, last.Duration, limit)
			case by == byRound:
				return roundGroups(ctx, a, f, last.Duration, limit)
			case cmd.Flags().Changed("since"):
				return failure.Usage("bad_flag", "ledgerd stats --by hour --since 8h; of items: --where since:8h",
					"--since goes with --by hour, code, worker and round")
			case cmd.Flags().Changed("by"):
				return groups(ctx, a, f, by, limit)
			}
			if len(f.Where)+len(f.Scopes)+len(f.States)+len(f.Agents) > 0 {
				return failure.Usage("bad_flag", "name what to count by: --by kind",
					"--where, --scope, --state and --agent go with --by")
			}
			l, _, err := a.OpenChosen(ctx, f)
			if err != nil {
				return err
			}
			defer l.Close()
			all, err := l.Stats(ctx)
			if err != nil {
				return err
			}
			if len(f.Kinds) > 0 {
				all.Kinds = slices.DeleteFunc(all.Kinds, func(k stats.Kind) bool { return !slices.Contains(f.Kinds, k.Kind) })
			}
			if err := tellStats(a, all); err != nil || a.Quiet || a.Output.String() != string(report.Table) {
				return err
			}
			return sayAttention(ctx, a, l.Any, all)
		},
	}
	f.Define(cmd)
	cmd.Flags().StringVar(&by, "by", "", "count items by `kind`, scope, shard_key or a field of the payload, attempts by hour, kind, "+
		"scope, code or worker, or recurring items by round")
	cmd.Flags().IntVar(&limit, "limit", 100, "with --by, most `rows`; CSV and JSON have all unless it is given")
	cmd.Flags().Var(&last, "since", "of attempts, only those that ended in the last 8h, 7d …")
	return cmd
}

// tellStats prints the figures of each kind.
func tellStats(a *app.App, s stats.Summary) (err error) {
	rows := make([]answer.KindStats, len(s.Kinds))
	for i, k := range s.Kinds {
		rows[i] = answer.NewKindStats(k, s.At)
	}
	switch p := a.Printer(); {
	case p.Format == report.JSON:
		err = p.Object(answer.NewStats(s))
	case p.Format == report.Table && p.Columns == nil:
		err = writeBlocks(p.Out, rows)
	default:
		_, err = report.List(p, report.Each(rows))
	}
	return a.OrExitEmpty(len(rows), err)
}
