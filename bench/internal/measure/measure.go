// Package measure runs the same work on several sides in alternating rounds and keeps the figures of each. It knows
// neither ledgers nor peers.
//
// One round runs every side of a scenario once. The next round starts with another side, so that a machine that becomes
// slower or faster meanwhile does so for all sides. Medians are compared.
package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// Sample is the result of one run of one side: metric → figure.
type Sample map[string]float64

// Metric is the meaning of a figure.
type Metric struct {
	Name string `json:"name"`
	Unit string `json:"unit"` // "/s", "ms", "µs", "MiB", "%"
}

// Sampler measures one side once.
type Sampler func(context.Context) (Sample, error)

// Side is one of the sides that do the work of a scenario.
type Side struct {
	Name string
	Run  Sampler
}

// Target is what a scenario has to reach: a bound on a figure of a side, or on its ratio to the figure of another side.
// Of several other sides the best one counts: with a lower bound the one with the greatest median, with an upper bound
// the one with the least.
type Target struct {
	Text   string   `json:"text"`
	Metric string   `json:"metric"`
	Side   string   `json:"side"`
	Of     []string `json:"of,omitempty"` // the sides that it is compared with
	Min    float64  `json:"min,omitempty"`
	Max    float64  `json:"max,omitempty"`
	Aim    float64  `json:"aim,omitempty"` // an even better value
}

// Scenario is one piece of work and the sides that do it.
type Scenario struct {
	Name    string
	Title   string
	About   string
	Metrics []Metric
	Sides   []Side
	Targets []Target
	// Growth marks a scenario whose sides are the steps of something that grows; it is its name.
	Growth string
	// OneIn makes long scenarios run fewer rounds: one in so many, at least one; 0 means all.
	OneIn int
	// Prepare sets up what all rounds need, and returns how to remove it.
	Prepare func(context.Context) (remove func() error, err error)
}

// Figures are the results of one side for one metric, round by round.
type Figures struct {
	Side   string    `json:"side"`
	Metric string    `json:"metric"`
	Values []float64 `json:"values"`
	Median float64   `json:"median"`
	Min    float64   `json:"min"`
	Max    float64   `json:"max"`
}

// Verdict is a target with its result.
type Verdict struct {
	Target
	Value float64 `json:"value"` // ratio of the medians, or the median
	Low   float64 `json:"low"`   // least and greatest of the rounds
	High  float64 `json:"high"`
	Met   bool    `json:"met"`
}

// Aimed reports whether the aim is reached as well.
func (v Verdict) Aimed() bool {
	switch {
	case v.Aim == 0:
		return false
	case v.Max > 0:
		return v.Value <= v.Aim
	}
	return v.Value >= v.Aim
}

// Result is a scenario with its results.
type Result struct {
	Name     string    `json:"name"`
	Title    string    `json:"title"`
	About    string    `json:"about"`
	Growth   string    `json:"growth,omitempty"`
	Rounds   int       `json:"rounds"`
	Seconds  float64   `json:"seconds"`
	Metrics  []Metric  `json:"metrics"`
	Sides    []string  `json:"sides"`
	Figures  []Figures `json:"figures"`
	Verdicts []Verdict `json:"verdicts,omitempty"`
	Error    string    `json:"error,omitempty"`
}

// Run runs a scenario. It calls progress for every round. A side that fails ends the scenario; earlier results are
// kept.
func Run(ctx context.Context, s Scenario, rounds int, progress io.Writer) (r Result) {
	if s.OneIn > 0 {
		rounds = max(1, (rounds+s.OneIn-1)/s.OneIn)
	}
	r = Result{Name: s.Name, Title: s.Title, About: s.About, Growth: s.Growth, Rounds: rounds, Metrics: s.Metrics}
	for _, side := range s.Sides {
		r.Sides = append(r.Sides, side.Name)
	}
	began := time.Now()
	if err := r.run(ctx, s, progress); err != nil {
		r.Error = err.Error()
	}
	r.Seconds = time.Since(began).Seconds()
	for _, t := range s.Targets {
		if v, ok := r.judge(t); ok {
			r.Verdicts = append(r.Verdicts, v)
		}
	}
	return r
}

func (r *Result) run(ctx context.Context, s Scenario, progress io.Writer) (err error) {
	if s.Prepare != nil {
		remove, err := s.Prepare(ctx)
		if remove != nil {
			defer func() { err = errors.Join(err, remove()) }()
		}
		if err != nil {
			return fmt.Errorf("preparing: %w", err)
		}
	}
	for round := range r.Rounds {
		for i := range s.Sides {
			side := s.Sides[(i+round)%len(s.Sides)]
			runtime.GC() // so that the garbage of the side before is not counted
			debug.FreeOSMemory()
			sample, err := side.Run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", side.Name, err)
			}
			fmt.Fprintf(progress, "  round %d  %-34s", round+1, side.Name)
			for _, m := range s.Metrics {
				if v, ok := sample[m.Name]; ok {
					r.keep(side.Name, m.Name, v)
					fmt.Fprintf(progress, "  %s %s", m.Name, Format(v, m.Unit))
				}
			}
			fmt.Fprintln(progress)
		}
	}
	return nil
}

func (r *Result) keep(side, metric string, v float64) {
	i := slices.IndexFunc(r.Figures, func(f Figures) bool { return f.Side == side && f.Metric == metric })
	if i < 0 {
		i = len(r.Figures)
		r.Figures = append(r.Figures, Figures{Side: side, Metric: metric})
	}
	f := &r.Figures[i]
	f.Values = append(f.Values, v)
	f.Median, f.Min, f.Max = Median(f.Values), slices.Min(f.Values), slices.Max(f.Values)
}

// Of returns the figures of a side, nil if there are none.
func (r *Result) Of(side, metric string) *Figures {
	for i, f := range r.Figures {
		if f.Side == side && f.Metric == metric {
			return &r.Figures[i]
		}
	}
	return nil
}

// judge compares a target with the figures; ok is false if figures are missing.
func (r *Result) judge(t Target) (v Verdict, ok bool) {
	ours := r.Of(t.Side, t.Metric)
	if ours == nil {
		return v, false
	}
	v = Verdict{Target: t, Value: ours.Median, Low: ours.Min, High: ours.Max}
	if len(t.Of) > 0 {
		theirs := r.best(t)
		if theirs == nil {
			return v, false
		}
		v.Value = ours.Median / theirs.Median
		var pairs []float64
		for i := range min(len(ours.Values), len(theirs.Values)) {
			pairs = append(pairs, ours.Values[i]/theirs.Values[i])
		}
		v.Low, v.High = slices.Min(pairs), slices.Max(pairs)
	}
	v.Met = (t.Min == 0 || v.Value >= t.Min) && (t.Max == 0 || v.Value <= t.Max)
	return v, true
}

// best returns the figures of the best other side, nil if those of one are missing.
func (r *Result) best(t Target) (best *Figures) {
	for _, side := range t.Of {
		f := r.Of(side, t.Metric)
		if f == nil {
			return nil
		}
		if best == nil || t.Max == 0 && f.Median > best.Median || t.Max > 0 && f.Median < best.Median {
			best = f
		}
	}
	return best
}

// Median returns the median of at least one value; of an even number, the mean of the two in the middle.
func Median(values []float64) float64 {
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// Percentile returns percentile p, 0 … 1, of durations, in milliseconds, by the nearest rank above.
func Percentile(took []time.Duration, p float64) float64 {
	v := slices.Sorted(slices.Values(took))
	return float64(v[min(len(v)-1, int(p*float64(len(v))))].Nanoseconds()) / 1e6
}
