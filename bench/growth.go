package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

// beside measures the drain of n items in ledgers that hold something else already.
func (s *suite) beside(name, database string, on ours.On, n int, million int) measure.Scenario {
	fills := []struct {
		side string
		fill func(context.Context, *ours.Place) error
	}{
		{"empty", nil},
		{count(5*million) + " finished", func(ctx context.Context, p *ours.Place) error { return p.History(ctx, 5*million) }},
		{count(million) + " in the future", func(ctx context.Context, p *ours.Place) error { return p.Future(ctx, million) }},
	}
	standing := make([]*ours.Standing, len(fills))
	sc := measure.Scenario{
		Name: "beside-" + name, Title: "drain beside what is finished or in the future, " +
			database, Growth: "history", OneIn: 2,
		About:   fmt.Sprintf("%s items are added and drained in a ledger that holds something else already.", count(n)),
		Metrics: []measure.Metric{drainRate},
		Prepare: func(ctx context.Context) (func() error, error) {
			remove := func() (err error) {
				for _, st := range standing {
					if st != nil {
						err = errors.Join(err, st.Close())
					}
				}
				return err
			}
			for i, f := range fills {
				if f.fill == nil {
					continue // a new one for each round
				}
				var err error
				if standing[i], err = ours.NewStanding(ctx, on, func(p *ours.Place) error { return f.fill(ctx, p) }); err != nil {
					return remove, fmt.Errorf("%s: %w", f.side, err)
				}
			}
			return remove, nil
		},
	}
	for i, f := range fills {
		if f.fill == nil {
			sc.Sides = append(sc.Sides, measure.Side{Name: f.side, Run: s.addAndDrain(on, n, false)})
			continue
		}
		sc.Sides = append(sc.Sides, measure.Side{Name: f.side, Run: func(ctx context.Context) (measure.Sample, error) {
			rate, err := standing[i].Drain(ctx, n)
			return measure.Sample{"drain": rate}, err
		}})
		sc.Targets = append(sc.Targets, measure.Target{Text: "drain beside " + f.side + ", " + database +
			", to an empty ledger", Metric: "drain", Side: f.side, Of: []string{"empty"}, Min: 0.9})
	}
	return sc
}

func (s *suite) besidePostgres() measure.Scenario {
	return s.beside("postgres", "Postgres", s.OnPostgres, s.n(200_000), s.n(1_000_000))
}

func (s *suite) besideSQLite() measure.Scenario {
	return s.beside("sqlite", "SQLite", s.OnSQLite, s.n(100_000), s.n(1_000_000))
}

// together is a side: so many daemons on one ledger.
func (s *suite) together(on ours.On, n, daemons int) measure.Sampler {
	return func(ctx context.Context) (measure.Sample, error) {
		did, err := s.Daemons(ctx, on, n, daemons)
		if err != nil {
			return nil, err
		}
		return measure.Sample{"drain": did.PerSecond, "least": did.Shares[0], "most": did.Shares[len(did.Shares)-1]}, nil
	}
}

var shareMetrics = []measure.Metric{drainRate, {Name: "least", Unit: "%"}, {Name: "most", Unit: "%"}}

func (s *suite) daemons() measure.Scenario {
	n := s.n(300_000)
	sc := measure.Scenario{
		Name: "daemons", Title: "several daemons on one Postgres", Growth: "daemons", OneIn: 2,
		About: fmt.Sprintf("%s items, worked by `ledgerd work` processes with a plugin's process each, all on this "+
			"machine, which one of them keeps busy; rates by the database's clock, and the share of the one that did least "+
			"and most.", count(n)),
		Metrics: shareMetrics,
		Targets: []measure.Target{
			{Text: "four daemons on one Postgres, together, to one", Metric: "drain", Side: "4 daemons",
				Of: []string{"1 daemon"}, Min: 0.95, Aim: 1},
			{Text: "four daemons, the one that did least", Metric: "least", Side: "4 daemons", Min: 20},
			{Text: "four daemons, the one that did most", Metric: "most", Side: "4 daemons", Max: 30},
		},
	}
	for _, d := range []int{1, 2, 4, 8} {
		name := fmt.Sprintf("%d daemons", d)
		if d == 1 {
			name = "1 daemon"
		}
		sc.Sides = append(sc.Sides, measure.Side{Name: name, Run: s.together(s.OnPostgres, n, d)})
	}
	return sc
}

func (s *suite) processes() measure.Scenario {
	n := s.n(300_000)
	return measure.Scenario{
		Name: "processes", Title: "two processes on one SQLite file", Growth: "processes", OneIn: 2,
		About:   fmt.Sprintf("%s items, worked by `ledgerd work` processes with a plugin's process each.", count(n)),
		Metrics: shareMetrics,
		Sides: []measure.Side{{Name: "1 process", Run: s.together(s.OnSQLite, n, 1)},
			{Name: "2 processes", Run: s.together(s.OnSQLite, n, 2)}},
		Targets: []measure.Target{
			{Text: "two processes on one SQLite file, together, to one", Metric: "drain", Side: "2 processes",
				Of: []string{"1 process"}, Min: 0.8},
			{Text: "two processes on one SQLite file, the one that did less", Metric: "least", Side: "2 processes", Min: 30},
		},
	}
}

func (s *suite) memory() measure.Scenario {
	small, big := s.n(100_000), s.n(1_000_000)
	side := func(on ours.On, n int) measure.Sampler {
		return func(ctx context.Context) (measure.Sample, error) {
			did, err := s.Daemons(ctx, on, n, 1)
			if err != nil {
				return nil, err
			}
			m := did.Memory[:max(1, len(did.Memory)-5)] // without what came when all was done
			q := len(m) / 4
			return measure.Sample{"most": maximum(m), "plugin": maximum(did.Plugin),
				"growth": measure.Median(m[3*q:]) / measure.Median(m[q:2*q+1])}, nil
		}
	}
	sc := measure.Scenario{
		Name: "memory", Title: "memory of a daemon", Growth: "memory", OneIn: 5,
		About: "A `ledgerd work` process works a backlog: the most that it and its plugin's process had in memory " +
			"(VmRSS), and what it had in the last quarter of the time to the second.",
		Metrics: []measure.Metric{{Name: "most", Unit: "MiB"}, {Name: "plugin", Unit: "MiB"}, {Name: "growth", Unit: "x"}},
	}
	for _, db := range []struct {
		name string
		on   ours.On
	}{{"Postgres", s.OnPostgres}, {"SQLite", s.OnSQLite}} {
		name := fmt.Sprintf("%s, %s items", db.name, count(big))
		sc.Sides = append(sc.Sides, measure.Side{Name: fmt.Sprintf("%s, %s items", db.name, count(small)),
			Run: side(db.on, small)}, measure.Side{Name: name, Run: side(db.on, big)})
		sc.Targets = append(sc.Targets,
			measure.Target{Text: "memory of a daemon, " + name + ", MiB", Metric: "most", Side: name, Max: 100},
			measure.Target{Text: "memory of a daemon, " + name + ", end to beginning", Metric: "growth", Side: name, Max: 1.1})
	}
	return sc
}

func maximum(values []float64) (most float64) {
	for _, v := range values {
		most = max(most, v)
	}
	return most
}

var callMetrics = []measure.Metric{{Name: "rate", Unit: "/s"}, {Name: "claim", Unit: "ms"},
	{Name: "finish", Unit: "ms"}}

// calls are the figures of a series of claims and finishes.
func calls(rate float64, claim, finish interface{ Seconds() float64 }) measure.Sample {
	return measure.Sample{"rate": rate, "claim": claim.Seconds() * 1000, "finish": finish.Seconds() * 1000}
}

// backlog measures claims and finishes of 500 at backlogs of several sizes.
func (s *suite) backlog(name, database string, on ours.On) measure.Scenario {
	const batch, times = 500, 20
	sc := measure.Scenario{
		Name: "backlog-" + name, Title: "claim and finish beside a backlog, " + database, Growth: "backlog", OneIn: 5,
		About: fmt.Sprintf("One client claims and finishes %d batches of %d, one after the other; medians of the calls.",
			times, batch),
		Metrics: callMetrics,
	}
	for _, size := range []int{0, s.n(10_000), s.n(100_000), s.n(1_000_000)} {
		sc.Sides = append(sc.Sides, measure.Side{Name: count(size) + " more items",
			Run: func(ctx context.Context) (measure.Sample, error) {
				rate, claim, finish, err := ours.Batches(ctx, on, batch, times, size)
				return calls(rate, claim, finish), err
			}})
	}
	return sc
}

// batches measures claims and finishes of several sizes.
func (s *suite) batches(name, database string, on ours.On) measure.Scenario {
	sc := measure.Scenario{
		Name: "batch-" + name, Title: "batch size, " + database, Growth: "batch", OneIn: 5,
		About:   "One client claims and finishes batches, one after the other; medians of the calls.",
		Metrics: callMetrics,
	}
	for _, size := range []int{1, 10, 100, 500, 1000, 5000} {
		times := max(10, min(500, 50_000/size))
		sc.Sides = append(sc.Sides, measure.Side{Name: "batches of " + count(size),
			Run: func(ctx context.Context) (measure.Sample, error) {
				rate, claim, finish, err := ours.Batches(ctx, on, size, times, 0)
				return calls(rate, claim, finish), err
			}})
	}
	return sc
}
