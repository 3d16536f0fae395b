package answer

import (
	"math"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Stats is the backlog of a ledger, and how fast it is worked.
type Stats struct {
	Kinds       []KindStats `json:"kinds"`
	Agents      int         `json:"agents"`
	Approximate []string    `json:"approximate"` // figures that are not exact
	At          report.Time `json:"at"`          // when it was counted
	// Minutes are what ended in each minute of the last hour, by time and kind; one in which nothing ended is left out.
	// These figures are not exact.
	Minutes []Minute `json:"minutes"`
}

// Minute counts the attempts of a kind that ended within one minute.
type Minute struct {
	At     report.Time `json:"at"` // its start
	Kind   string      `json:"kind"`
	Done   int64       `json:"done"`
	Failed int64       `json:"failed"`
	// Waits count the attempts that ended by how long they had waited from when they were due until they were begun: the
	// first figure is those below 0.004 s, each next one those below twice that bound, and the 24th those that waited for
	// 16777.216 s or longer. Zeros at the end are left out.
	Waits []int64 `json:"waits"`
}

// NewStats makes one.
func NewStats(s stats.Summary) Stats {
	rows := make([]KindStats, len(s.Kinds))
	for i, k := range s.Kinds {
		rows[i] = NewKindStats(k, s.At)
	}
	minutes := make([]Minute, len(s.Paces))
	for i, p := range s.Paces {
		waits := p.Waits[:]
		for len(waits) > 0 && waits[len(waits)-1] == 0 {
			waits = waits[:len(waits)-1]
		}
		minutes[i] = Minute{report.Time(p.At), p.Kind, p.Done, p.Failed, waits}
	}
	return Stats{rows, s.Agents, approximate, report.Time(s.At), minutes}
}

// KindStats is the backlog of a kind, and the attempts that ended lately. A figure that cannot be known is null.
type KindStats struct {
	Kind         string   `json:"kind"`
	Ready        int64    `json:"ready"`
	Waiting      int64    `json:"waiting"`
	Leased       int64    `json:"leased"`
	Dead         int64    `json:"dead"`
	Doubt        int64    `json:"doubt"`
	RoundsDone   int64    `json:"rounds_done"`
	RoundsFailed int64    `json:"rounds_failed"`
	RoundsPutOff int64    `json:"rounds_put_off"`
	Left         int64    `json:"left"`
	Done1h       int64    `json:"done_1h"`
	Failed1h     int64    `json:"failed_1h"`
	PerSecond1m  float64  `json:"per_second_1m"`
	OldestReady  float64  `json:"oldest_ready_s"`
	ETA          *float64 `json:"eta_s"`
	WorkMS1h     *float64 `json:"work_ms_1h"`
	// The times within which half, 95 % and 99 % of the attempts of the last hour were begun after they were due, and
	// ended after that. Each is the bound of a range (0.004, 0.008, 0.016 … 16777.216) and up to twice the exact time;
	// null if there were none, or if it was longer than the last bound.
	WaitP50 *float64 `json:"wait_p50_s_1h"`
	WaitP95 *float64 `json:"wait_p95_s_1h"`
	WaitP99 *float64 `json:"wait_p99_s_1h"`
	WorkP50 *float64 `json:"work_p50_s_1h"`
	WorkP95 *float64 `json:"work_p95_s_1h"`
	WorkP99 *float64 `json:"work_p99_s_1h"`
	Paused  bool     `json:"paused"`
	Workers int      `json:"workers"`
}

// approximate are the figures that come from tallies.
var approximate = []string{"done_1h", "failed_1h", "per_second_1m", "eta_s", "work_ms_1h",
	"wait_p50_s_1h", "wait_p95_s_1h", "wait_p99_s_1h", "work_p50_s_1h", "work_p95_s_1h", "work_p99_s_1h"}

// NewKindStats makes one.
func NewKindStats(k stats.Kind, now time.Time) KindStats {
	row := KindStats{Kind: k.Kind, Ready: k.Ready, Waiting: k.Waiting, Leased: k.Leased, Dead: k.Dead, Doubt: k.Doubt,
		RoundsDone: k.RoundsDone, RoundsFailed: k.RoundsFailed, RoundsPutOff: k.RoundsPutOff,
		Left: k.Open(), Done1h: k.Done, Failed1h: k.Failed, PerSecond1m: math.Round(k.PerSecond*100) / 100,
		Paused: k.Paused, Workers: k.Workers}
	if !k.OldestReady.IsZero() {
		row.OldestReady = max(0, report.InSeconds(now.Sub(k.OldestReady)))
	}
	if k.ETA > 0 || k.PerSecond > 0 && k.Open() == 0 && !k.Paused && k.Workers > 0 {
		eta := k.ETA.Round(100 * time.Millisecond).Seconds()
		row.ETA = &eta
	}
	if k.Done+k.Failed > 0 {
		ms := float64(k.Worked.Round(time.Microsecond)) / float64(time.Millisecond)
		row.WorkMS1h = &ms
	}
	for _, p := range []struct {
		into    **float64
		of      stats.Latencies
		percent int
	}{{&row.WaitP50, k.Waits, 50}, {&row.WaitP95, k.Waits, 95}, {&row.WaitP99, k.Waits, 99},
		{&row.WorkP50, k.Works, 50}, {&row.WorkP95, k.Works, 95}, {&row.WorkP99, k.Works, 99}} {
		if bound := p.of.Within(p.percent).Seconds(); bound > 0 {
			*p.into = &bound
		}
	}
	return row
}
