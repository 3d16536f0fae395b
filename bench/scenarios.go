package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/ours"
	"github.com/ledgerd/ledgerd/bench/internal/peers"
)

// suite makes the scenarios.
type suite struct {
	*ours.Bench
	scale float64
}

// n scales a number of items.
func (s *suite) n(items int) int { return max(1000, int(float64(items)*s.scale)) }

// tries is how many items' start is waited for in a round.
const tries = 200

var (
	drainRate = measure.Metric{Name: "drain", Unit: "/s"}
	addRate   = measure.Metric{Name: "add", Unit: "/s"}
	p50       = measure.Metric{Name: "p50", Unit: "ms"}
	p99       = measure.Metric{Name: "p99", Unit: "ms"}
)

func (s *suite) scenarios() []measure.Scenario {
	return []measure.Scenario{
		s.addPostgres(), s.drainPostgres(), s.drainSQLite(), s.startPostgres(), s.startSQLite(),
		s.besidePostgres(), s.besideSQLite(), s.pinned(), s.firstClaim(),
		s.daemons(), s.processes(), s.memory(),
		s.backlog("postgres", "Postgres", s.OnPostgres), s.backlog("sqlite", "SQLite", s.OnSQLite),
		s.batches("postgres", "Postgres", s.OnPostgres), s.batches("sqlite", "SQLite", s.OnSQLite),
		s.questions("postgres", "Postgres", s.OnPostgres), s.questions("sqlite", "SQLite", s.OnSQLite),
		s.filecsv(), s.urlcheck(), s.photo(),
	}
}

func (s *suite) addPostgres() measure.Scenario {
	n := s.n(300_000)
	mine := func(clients int) func(context.Context) (measure.Sample, error) {
		return func(ctx context.Context) (measure.Sample, error) {
			rate, err := ours.AddOnly(ctx, s.OnPostgres, n, clients)
			return measure.Sample{"add": rate}, err
		}
	}
	river := func(clients int) func(context.Context) (measure.Sample, error) {
		return func(ctx context.Context) (_ measure.Sample, err error) {
			r, err := peers.NewRiver(ctx, s.Postgres)
			if err != nil {
				return nil, err
			}
			rate, err := r.Add(ctx, n, clients)
			return measure.Sample{"add": rate}, errors.Join(err, r.Remove())
		}
	}
	return measure.Scenario{
		Name: "add-postgres", Title: "bulk add, Postgres",
		About:   fmt.Sprintf("%s new items in calls of %s; ledgerd looks each one up and answers for it, River inserts with InsertManyFast (COPY).", count(n), count(ours.AddBatch)),
		Metrics: []measure.Metric{addRate},
		Sides: []measure.Side{
			{Name: "ledgerd, 1 client", Run: mine(1)}, {Name: "River, 1 client", Run: river(1)},
			{Name: "ledgerd, 2 clients", Run: mine(2)}, {Name: "River, 2 clients", Run: river(2)},
		},
		Targets: []measure.Target{
			{Text: "bulk add, Postgres, 1 client, to River's InsertManyFast", Metric: "add", Side: "ledgerd, 1 client", Of: "River, 1 client", Min: 1},
			{Text: "bulk add, Postgres, 2 clients, to River's InsertManyFast", Metric: "add", Side: "ledgerd, 2 clients", Of: "River, 2 clients", Min: 1.2},
		},
	}
}

// addAndDrain is a side of ledgerd's.
func (s *suite) addAndDrain(on ours.On, n int, plugin bool) func(context.Context) (measure.Sample, error) {
	return func(ctx context.Context) (measure.Sample, error) {
		add, drain, err := s.AddAndDrain(ctx, on, n, plugin)
		return measure.Sample{"add": add, "drain": drain}, err
	}
}

func (s *suite) drainPostgres() measure.Scenario {
	n := s.n(200_000)
	return measure.Scenario{
		Name: "drain-postgres", Title: "drain, Postgres",
		About:   fmt.Sprintf("%s items that need no work: claim, hand over, record the end. Through a plugin every item goes to another process and back.", count(n)),
		Metrics: []measure.Metric{drainRate, addRate},
		Sides: []measure.Side{
			{Name: "ledgerd", Run: s.addAndDrain(s.OnPostgres, n, false)},
			{Name: "ledgerd, plugin", Run: s.addAndDrain(s.OnPostgres, n, true)},
			{Name: "River", Run: func(ctx context.Context) (_ measure.Sample, err error) {
				r, err := peers.NewRiver(ctx, s.Postgres)
				if err != nil {
					return nil, err
				}
				add, drain, err := r.AddAndDrain(ctx, n)
				return measure.Sample{"add": add, "drain": drain}, errors.Join(err, r.Remove())
			}},
		},
		Targets: []measure.Target{
			{Text: "drain, Postgres, in process, to River in process", Metric: "drain", Side: "ledgerd", Of: "River", Min: 3.5, Aim: 5},
			{Text: "drain, Postgres, through a plugin's process, to River in process", Metric: "drain", Side: "ledgerd, plugin", Of: "River", Min: 2.2, Aim: 3},
		},
	}
}

func (s *suite) drainSQLite() measure.Scenario {
	n, fewer := s.n(100_000), s.n(20_000)
	return measure.Scenario{
		Name: "drain-sqlite", Title: "add and drain, SQLite",
		About: fmt.Sprintf("As on Postgres, %s items for ledgerd, and %s for the others, which takes them as long; a smaller table is no disadvantage. River inserts with InsertManyFast, goqite and backlite in transactions of %s.",
			count(n), count(fewer), count(ours.AddBatch)),
		Metrics: []measure.Metric{drainRate, addRate},
		Sides: []measure.Side{
			{Name: "ledgerd", Run: s.addAndDrain(s.OnSQLite, n, false)},
			{Name: "ledgerd, plugin", Run: s.addAndDrain(s.OnSQLite, n, true)},
			{Name: "River", Run: func(ctx context.Context) (measure.Sample, error) {
				r, err := peers.RunRiverSQLite(ctx, s.Programs, s.Dir, fewer, 0)
				return measure.Sample{"add": r.Add, "drain": r.Drain}, err
			}},
			{Name: "goqite", Run: func(ctx context.Context) (measure.Sample, error) {
				add, drain, err := peers.Goqite(ctx, s.Dir, fewer)
				return measure.Sample{"add": add, "drain": drain}, err
			}},
			{Name: "backlite", Run: func(ctx context.Context) (measure.Sample, error) {
				add, drain, err := peers.Backlite(ctx, s.Dir, fewer)
				return measure.Sample{"add": add, "drain": drain}, err
			}},
		},
		Targets: []measure.Target{
			{Text: "bulk add, SQLite, to River's InsertManyFast", Metric: "add", Side: "ledgerd", Of: "River", Min: 2.5},
			{Text: "drain, SQLite, in process, to River", Metric: "drain", Side: "ledgerd", Of: "River", Min: 15, Aim: 20},
			{Text: "drain, SQLite, through a plugin's process, to River in process", Metric: "drain", Side: "ledgerd, plugin", Of: "River", Min: 9},
			{Text: "drain, SQLite, in process, to goqite", Metric: "drain", Side: "ledgerd", Of: "goqite", Min: 9},
		},
	}
}

func latency(took []time.Duration, err error) (measure.Sample, error) {
	if err != nil {
		return nil, err
	}
	return measure.Sample{"p50": measure.Percentile(took, 0.5), "p99": measure.Percentile(took, 0.99)}, nil
}

func (s *suite) startPostgres() measure.Scenario {
	return measure.Scenario{
		Name: "start-postgres", Title: "add → start of the handler, idle system, Postgres", OneIn: 2,
		About:   fmt.Sprintf("%d items a round, one every 25 ms, added with connections of their own, as another process does.", tries),
		Metrics: []measure.Metric{p50, p99},
		Sides: []measure.Side{
			{Name: "ledgerd", Run: func(ctx context.Context) (measure.Sample, error) {
				return latency(ours.StartLatency(ctx, s.OnPostgres, tries, false))
			}},
			{Name: "River", Run: func(ctx context.Context) (_ measure.Sample, err error) {
				r, err := peers.NewRiver(ctx, s.Postgres)
				if err != nil {
					return nil, err
				}
				sample, err := latency(r.StartLatency(ctx, tries))
				return sample, errors.Join(err, r.Remove())
			}},
		},
		Targets: []measure.Target{
			{Text: "add → start, Postgres, p50, to River", Metric: "p50", Side: "ledgerd", Of: "River", Max: 0.5},
			{Text: "add → start, Postgres, p99, to River", Metric: "p99", Side: "ledgerd", Of: "River", Max: 0.5},
		},
	}
}

func (s *suite) startSQLite() measure.Scenario {
	return measure.Scenario{
		Name: "start-sqlite", Title: "add → start of the handler, idle system, SQLite", OneIn: 2,
		About:   fmt.Sprintf("%d items a round, one every 25 ms, added by the program that works them, or with a connection of their own, as another process does. River's are added by the program that works them.", tries),
		Metrics: []measure.Metric{p50, p99},
		Sides: []measure.Side{
			{Name: "ledgerd", Run: func(ctx context.Context) (measure.Sample, error) {
				return latency(ours.StartLatency(ctx, s.OnSQLite, tries, true))
			}},
			{Name: "ledgerd, added by another", Run: func(ctx context.Context) (measure.Sample, error) {
				return latency(ours.StartLatency(ctx, s.OnSQLite, tries, false))
			}},
			{Name: "River", Run: func(ctx context.Context) (measure.Sample, error) {
				r, err := peers.RunRiverSQLite(ctx, s.Programs, s.Dir, 0, tries)
				return measure.Sample{"p50": r.P50, "p99": r.P99}, err
			}},
		},
		Targets: []measure.Target{
			{Text: "add → start, SQLite, p50", Metric: "p50", Side: "ledgerd", Max: 1},
			{Text: "add → start, SQLite, added by another process, p50", Metric: "p50", Side: "ledgerd, added by another", Max: 1},
		},
	}
}

func (s *suite) firstClaim() measure.Scenario {
	const polls, batch = 3600, 500
	n := s.n(1_000_000)
	side := func(on ours.On) func(context.Context) (measure.Sample, error) {
		return func(ctx context.Context) (measure.Sample, error) {
			claim, finish, err := ours.FirstClaim(ctx, on, polls, n, batch)
			return measure.Sample{"claim": claim.Seconds() * 1000, "finish": finish.Seconds() * 1000}, err
		}
	}
	var targets []measure.Target
	for _, name := range []string{"Postgres", "SQLite"} {
		for _, metric := range []string{"claim", "finish"} {
			targets = append(targets, measure.Target{Text: fmt.Sprintf("first %s of %d after an idle hour and %s adds, %s", metric, batch, count(n), name), Metric: metric, Side: name, Max: 100})
		}
	}
	return measure.Scenario{
		Name: "first-claim", Title: "first claim and finish after an idle hour", OneIn: 2,
		About:   fmt.Sprintf("%s polls of an empty ledger (an hour's), then %s adds, then the first claim and finish of %d, on the connections that polled; on Postgres with statistics from before the adds.", count(polls), count(n), batch),
		Metrics: []measure.Metric{{Name: "claim", Unit: "ms"}, {Name: "finish", Unit: "ms"}},
		Sides:   []measure.Side{{Name: "Postgres", Run: side(s.OnPostgres)}, {Name: "SQLite", Run: side(s.OnSQLite)}},
		Targets: targets,
	}
}

func (s *suite) pinned() measure.Scenario {
	n := s.n(1_000_000)
	side := func(pinned bool) func(context.Context) (measure.Sample, error) {
		return func(ctx context.Context) (measure.Sample, error) {
			rate, late, err := ours.DrainWithLate(ctx, s.OnPostgres, n, pinned)
			if err != nil {
				return nil, err
			}
			return measure.Sample{"drain": rate, "p50": measure.Percentile(late, 0.5), "p99": measure.Percentile(late, 0.99)}, nil
		}
	}
	return measure.Scenario{
		Name: "pinned", Title: "drain of a million under a pinned horizon, Postgres", OneIn: 3,
		About:   fmt.Sprintf("%s items, while a transaction that began before sits idle and keeps the server from removing what was finished; every 100 ms an item of higher priority is added: p50 and p99 of the time until its handler starts.", count(n)),
		Metrics: []measure.Metric{drainRate, p50, p99},
		Sides:   []measure.Side{{Name: "free", Run: side(false)}, {Name: "pinned", Run: side(true)}},
		Targets: []measure.Target{
			{Text: "drain of a million under a pinned horizon, to without it", Metric: "drain", Side: "pinned", Of: "free", Min: 0.8},
			{Text: "items of higher priority meanwhile, pinned, p99", Metric: "p99", Side: "pinned", Max: 250},
		},
	}
}
