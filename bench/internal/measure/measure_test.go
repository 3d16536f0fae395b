package measure

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"
)

// Each round begins with another side, figures are kept by side and metric, and targets are judged by the ratio of the
// medians.
func TestRun(t *testing.T) {
	var order string
	side := func(name string, values ...float64) Side {
		return Side{Name: name, Run: func(context.Context) (Sample, error) {
			order += name
			v := values[0]
			values = values[1:]
			return Sample{"rate": v}, nil
		}}
	}
	removed := false
	r := Run(t.Context(), Scenario{
		Metrics: []Metric{{"rate", "/s"}},
		Sides:   []Side{side("a", 10, 40, 30), side("b", 10, 10, 20)},
		Targets: []Target{
			{Metric: "rate", Side: "a", Of: []string{"b"}, Min: 3}, {Metric: "rate", Side: "a", Of: []string{"b"}, Min: 3.1},
			{Metric: "rate", Side: "b", Max: 9.9}, {Metric: "rate", Side: "c", Min: 1},
		},
		Prepare: func(context.Context) (func() error, error) {
			return func() error { removed = true; return nil }, nil
		},
	}, 3, io.Discard)
	if order != "abbaab" {
		t.Errorf("the sides ran in the order %s", order)
	}
	if !removed || r.Error != "" {
		t.Errorf("removed %v, error %q", removed, r.Error)
	}
	if f := r.Of("a", "rate"); f.Median != 30 || f.Min != 10 || f.Max != 40 {
		t.Errorf("figures %+v", f)
	}
	if len(r.Verdicts) != 3 {
		t.Fatalf("%d verdicts, want 3: nothing was measured of c", len(r.Verdicts))
	}
	if v := r.Verdicts[0]; v.Value != 3 || v.Low != 1 || v.High != 4 || !v.Met {
		t.Errorf("verdict %+v", v)
	}
	if r.Verdicts[1].Met || r.Verdicts[2].Met {
		t.Error("a target is met that is not")
	}
}

// Of several other sides the best one counts, whether more or less is better. Without the figures of one there is no
// verdict.
func TestBest(t *testing.T) {
	side := func(name string, v float64) Side {
		return Side{Name: name, Run: func(context.Context) (Sample, error) { return Sample{"v": v}, nil }}
	}
	r := Run(t.Context(), Scenario{
		Metrics: []Metric{{"v", "ms"}}, Sides: []Side{side("a", 6), side("slow", 3), side("fast", 12)},
		Targets: []Target{
			{Metric: "v", Side: "a", Of: []string{"slow", "fast"}, Min: 0.5, Aim: 0.6},
			{Metric: "v", Side: "a", Of: []string{"fast", "slow"}, Max: 3, Aim: 2},
			{Metric: "v", Side: "a", Of: []string{"slow"}, Min: 1, Aim: 2},
			{Metric: "v", Side: "a", Max: 7, Aim: 6},
			{Metric: "v", Side: "a", Max: 7},
			{Metric: "v", Side: "a", Of: []string{"slow", "missing"}, Min: 1},
		},
	}, 1, io.Discard)
	want := []struct {
		value float64
		aimed bool
	}{{0.5, false}, {2, true}, {2, true}, {6, true}, {6, false}}
	if len(r.Verdicts) != len(want) {
		t.Fatalf("%d verdicts, want %d: %+v", len(r.Verdicts), len(want), r.Verdicts)
	}
	for i, w := range want {
		if v := r.Verdicts[i]; v.Value != w.value || !v.Met || v.Aimed() != w.aimed {
			t.Errorf("verdict %d: %+v, aimed %v; want %+v, met", i, v, v.Aimed(), w)
		}
	}
}

// Figures from before a side failed are kept, and so is its error.
func TestRunFails(t *testing.T) {
	n := 0
	r := Run(t.Context(), Scenario{
		Metrics: []Metric{{"rate", "/s"}}, OneIn: 2,
		Sides: []Side{{"a", func(context.Context) (Sample, error) {
			if n++; n == 2 {
				return nil, errors.New("broken")
			}
			return Sample{"rate": 1}, nil
		}}},
	}, 3, io.Discard)
	if r.Error != "a: broken" || len(r.Of("a", "rate").Values) != 1 || r.Rounds != 2 {
		t.Errorf("result %+v", r)
	}
}

func TestPercentile(t *testing.T) {
	var took []time.Duration
	for i := range 200 {
		took = append(took, time.Duration(i+1)*time.Millisecond)
	}
	slices.Reverse(took)
	if got := Percentile(took, 0.5); got != 101 {
		t.Errorf("p50 %v", got)
	}
	if got := Percentile(took, 0.99); got != 199 {
		t.Errorf("p99 %v", got)
	}
	if got := Percentile(took[:1], 0.99); got != 200 {
		t.Errorf("p99 of one %v", got)
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		v    float64
		unit string
		want string
	}{
		{94_449, "/s", "94,400/s"}, {1_234_567, "/s", "1,230,000/s"}, {999.6, "/s", "999/s"}, {0.25, "ms", "0.25 ms"}, {12.5,
			"ms", "13 ms"},
		{33.33, "%", "33.3 %"}, {17.64, "µs", "17.6 µs"}, {919.4, "B", "919 B"},
		{2.499, "x", "2.50"}, {41.4, "MiB", "41 MiB"},
	} {
		if got := Format(c.v, c.unit); got != c.want {
			t.Errorf("%v %s is written %q, want %q", c.v, c.unit, got, c.want)
		}
	}
}
