package item

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/rivo/uniseg"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// writeBlocks writes stats for people: a block for each kind, of at most four lines. Figures that are 0 are left out.
func writeBlocks(out io.Writer, kinds []answer.KindStats) error {
	names := 0
	for _, k := range kinds {
		names = max(names, uniseg.StringWidth(report.Safe(k.Kind)))
	}
	for _, k := range kinds {
		name := report.Safe(k.Kind)
		head := name + strings.Repeat(" ", names-uniseg.StringWidth(name)+2)
		for _, line := range [][]string{backlog(k), roundOf(k), lastHour(k), pace(k)} {
			if len(line) == 0 {
				continue
			}
			if _, err := fmt.Fprintln(out, head+strings.Join(line, "   ")); err != nil {
				return err
			}
			head = strings.Repeat(" ", names+2)
		}
	}
	return nil
}

// counts returns "word number" for each pair of a word and an int64, without those of 0.
func counts(all ...any) (words []string) {
	for i := 0; i < len(all); i += 2 {
		if n := all[i+1].(int64); n > 0 {
			words = append(words, all[i].(string)+" "+report.Count(n))
		}
	}
	return words
}

// backlog is the first line: the unfinished items of a kind, those that need a person, and whether it is paused.
func backlog(k answer.KindStats) []string {
	waiting := k.Waiting - k.RoundsDone - k.RoundsFailed - k.RoundsPutOff
	line := counts("ready", k.Ready, "leased", k.Leased, "waiting", waiting)
	if k.OldestReady >= 1 && k.Ready > 0 {
		line[0] += fmt.Sprintf(" (the oldest for %s)", roughly(k.OldestReady))
	}
	if k.Left == 0 {
		line = append(line, "nothing left")
	}
	line = append(line, counts("dead", k.Dead, "doubt", k.Doubt)...)
	if k.Paused {
		line = append(line, "paused")
	}
	return line
}

// roundOf is the second line: recurring items that wait for their next round.
func roundOf(k answer.KindStats) []string {
	line := counts("done", k.RoundsDone, "failed", k.RoundsFailed, "put off", k.RoundsPutOff)
	if len(line) == 0 {
		return nil
	}
	more := ""
	if k.RoundsDone+k.RoundsFailed+k.RoundsPutOff >= stats.StandingCap {
		more = "≥ "
	}
	line[0] = "this round: " + more + line[0]
	return line
}

// lastHour is the third line: the attempts that ended in the last hour.
func lastHour(k answer.KindStats) []string {
	line := counts("done ≈", k.Done1h, "failed ≈", k.Failed1h)
	for i := range line {
		line[i] = strings.Replace(line[i], "≈ ", "≈", 1)
	}
	if len(line) > 0 {
		line[0] = "last hour: " + line[0]
	}
	if k.WorkP95 != nil && len(line) > 0 {
		line = append(line, "95 % within "+roughly(*k.WorkP95))
	}
	return line
}

// pace is the fourth line: how fast a kind is worked, and when nothing will be left.
func pace(k answer.KindStats) []string {
	line := counts("workers", int64(k.Workers))
	if k.PerSecond1m > 0 {
		line = append(line, "≈"+strconv.FormatFloat(k.PerSecond1m, 'f', -1, 64)+"/s")
	}
	if k.ETA != nil && k.Left > 0 {
		line = append(line, "nothing left in ≈"+roughly(*k.ETA))
	}
	return line
}

// roughly returns a number of seconds in at most two units: 0.5s, 12s, 3m20s, 5h10m, 3d4h.
func roughly(seconds float64) string {
	const day = 24 * time.Hour
	d := time.Duration(seconds * float64(time.Second))
	switch {
	case d < 10*time.Second:
		d = d.Round(time.Millisecond)
	case d < time.Hour:
		d = d.Round(time.Second)
	case d < day:
		d = d.Round(time.Minute)
	default:
		d = d.Round(time.Hour)
	}
	if d > day && d%day > 0 {
		return settings.FormatDuration(d.Truncate(day)) + settings.FormatDuration(d%day)
	}
	return settings.FormatDuration(d)
}
