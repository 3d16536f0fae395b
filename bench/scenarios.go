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

// tries is how many items one round of the start scenarios adds, to measure how long each takes until it starts.
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
		s.singlePostgres(), s.renewPostgres(),
		s.besidePostgres(), s.besideSQLite(), s.pinned(), s.firstClaim(),
		s.daemons(), s.processes(), s.memory(),
		s.backlog("postgres", "Postgres", s.OnPostgres), s.backlog("sqlite", "SQLite", s.OnSQLite),
		s.batches("postgres", "Postgres", s.OnPostgres), s.batches("sqlite", "SQLite", s.OnSQLite),
		s.questions("postgres", "Postgres", s.OnPostgres), s.questions("sqlite", "SQLite", s.OnSQLite),
		s.http(), s.httpWork(), s.httpIdle(), s.filecsv(), s.urlcheck(), s.photo(),
	}
}

func (s *suite) addPostgres() measure.Scenario {
	n := s.n(300_000)
	mine := func(clients int) measure.Sampler {
		return func(ctx context.Context) (measure.Sample, error) {
			rate, err := ours.AddOnly(ctx, s.OnPostgres, n, clients)
			return measure.Sample{"add": rate}, err
		}
	}
	river := func(clients int) measure.Sampler {
		return s.river(func(ctx context.Context, r *peers.River) (measure.Sample, error) {
			rate, err := r.Add(ctx, n, clients)
			return measure.Sample{"add": rate}, err
		})
	}
	graphile := func(clients int) measure.Sampler {
		return s.graphile(func(_ context.Context, g *peers.Graphile) (measure.Sample, error) {
			rate, err := g.Add(n, clients)
			return measure.Sample{"add": rate}, err
		})
	}
	sc := measure.Scenario{
		Name: "add-postgres", Title: "bulk add, Postgres",
		About: fmt.Sprintf("%s new items in calls of %s; ledgerd looks each one up and answers for it, River inserts "+
			"with InsertManyFast (COPY), graphile-worker with add_jobs.", count(n), count(ours.AddBatch)),
		Metrics: []measure.Metric{addRate},
	}
	for i, clients := range []string{"1 client", "2 clients"} {
		of := []string{"River, " + clients, peers.GraphileWorker + ", " + clients}
		sc.Sides = append(sc.Sides, measure.Side{Name: "ledgerd, " + clients, Run: mine(i + 1)},
			measure.Side{Name: of[0], Run: river(i + 1)}, measure.Side{Name: of[1], Run: graphile(i + 1)})
		sc.Targets = append(sc.Targets, measure.Target{Text: "bulk add, Postgres, " + clients +
			", to the faster of River's InsertManyFast and graphile-worker's add_jobs", Metric: "add",
			Side: "ledgerd, " + clients, Of: of, Min: 1, Aim: 1.5})
	}
	return sc
}

// river returns the run of a side that is River. do gets an installation of River; it is made before and removed
// afterwards.
func (s *suite) river(do func(context.Context, *peers.River) (measure.Sample, error)) measure.Sampler {
	return func(ctx context.Context) (measure.Sample, error) {
		r, err := peers.NewRiver(ctx, s.Postgres)
		if err != nil {
			return nil, err
		}
		sample, err := do(ctx, r)
		return sample, errors.Join(err, r.Remove())
	}
}

// graphile returns the run of a side that is graphile-worker. do gets an installation of it with a process; both are
// made before and removed afterwards.
func (s *suite) graphile(do func(context.Context, *peers.Graphile) (measure.Sample, error)) measure.Sampler {
	return func(ctx context.Context) (measure.Sample, error) {
		g, err := peers.NewGraphile(ctx, s.Programs, s.Postgres)
		if err != nil {
			return nil, err
		}
		sample, err := do(ctx, g)
		return sample, errors.Join(err, g.Remove())
	}
}

// addAndDrain returns the run of a side that is ledgerd: n items are added and drained.
func (s *suite) addAndDrain(on ours.On, n int, plugin bool) measure.Sampler {
	return func(ctx context.Context) (measure.Sample, error) {
		return s.AddAndDrain(ctx, on, n, plugin)
	}
}

func (s *suite) drainPostgres() measure.Scenario {
	n := s.n(200_000)
	return measure.Scenario{
		Name: "drain-postgres", Title: "drain, Postgres",
		About: fmt.Sprintf("%s items that need no work: claim, hand over, record the end. Through a plugin every item "+
			"goes to another process and back. cpu and wal are what the drain costs the whole Postgres server per item: "+
			"processor time, and write-ahead log.", count(n)),
		Metrics: []measure.Metric{drainRate, addRate, {Name: "cpu", Unit: "µs"}, {Name: "wal", Unit: "B"}},
		Sides: []measure.Side{
			{Name: "ledgerd", Run: s.addAndDrain(s.OnPostgres, n, false)},
			{Name: "ledgerd, plugin", Run: s.addAndDrain(s.OnPostgres, n, true)},
			{Name: "River", Run: s.river(func(ctx context.Context, r *peers.River) (measure.Sample, error) {
				return r.AddAndDrain(ctx, n)
			})},
			{Name: peers.GraphileWorker, Run: s.graphile(func(ctx context.Context, g *peers.Graphile) (measure.Sample, error) {
				return g.AddAndDrain(ctx, n)
			})},
		},
		Targets: []measure.Target{
			{Text: "drain, Postgres, in process, to graphile-worker in process", Metric: "drain", Side: "ledgerd",
				Of: []string{peers.GraphileWorker}, Min: 2, Aim: 3},
			{Text: "drain, Postgres, through a plugin's process, to graphile-worker in process", Metric: "drain",
				Side: "ledgerd, plugin", Of: []string{peers.GraphileWorker}, Min: 1.4, Aim: 2},
			{Text: "drain, Postgres, in process, the server's processor time per item", Metric: "cpu", Side: "ledgerd", Max: 11,
				Aim: 6},
			{Text: "drain, Postgres, in process, write-ahead log per item", Metric: "wal", Side: "ledgerd", Max: 640, Aim: 460},
		},
	}
}

func (s *suite) drainSQLite() measure.Scenario {
	n, fewer := s.n(100_000), s.n(20_000)
	return measure.Scenario{
		Name: "drain-sqlite", Title: "add and drain, SQLite",
		About: fmt.Sprintf("As on Postgres, %s items for ledgerd, and %s for the others, which takes them as long; a "+
			"smaller table is no disadvantage. River inserts with InsertManyFast, goqite and backlite in transactions of %s.",
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
			{Text: "bulk add, SQLite, to River's InsertManyFast", Metric: "add", Side: "ledgerd",
				Of: []string{"River"}, Min: 2.5},
			{Text: "drain, SQLite, in process, to River", Metric: "drain", Side: "ledgerd", Of: []string{"River"}, Min: 10,
				Aim: 14},
			{Text: "drain, SQLite, through a plugin's process, to River in process", Metric: "drain", Side: "ledgerd, plugin",
				Of: []string{"River"}, Min: 9},
			{Text: "drain, SQLite, in process, to goqite", Metric: "drain", Side: "ledgerd", Of: []string{"goqite"},
				Min: 9},
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
		About: fmt.Sprintf(
			"%d items a round, one every 25 ms, added with connections of their own, as another process does.", tries),
		Metrics: []measure.Metric{p50, p99},
		Sides: []measure.Side{
			{Name: "ledgerd", Run: func(ctx context.Context) (measure.Sample, error) {
				return latency(ours.StartLatency(ctx, s.OnPostgres, tries, false))
			}},
			{Name: "River", Run: s.river(func(ctx context.Context, r *peers.River) (measure.Sample, error) {
				return latency(r.StartLatency(ctx, tries))
			})},
			{Name: peers.GraphileWorker, Run: s.graphile(func(_ context.Context, g *peers.Graphile) (measure.Sample, error) {
				return latency(g.StartLatency(tries))
			})},
		},
		Targets: []measure.Target{
			{Text: "add → start, Postgres, p50, to River", Metric: "p50", Side: "ledgerd", Of: []string{"River"}, Max: 1,
				Aim: 0.7},
			{Text: "add → start, Postgres, p99, to River", Metric: "p99", Side: "ledgerd", Of: []string{"River"}, Max: 0.5},
		},
	}
}

func (s *suite) startSQLite() measure.Scenario {
	return measure.Scenario{
		Name: "start-sqlite", Title: "add → start of the handler, idle system, SQLite", OneIn: 2,
		About: fmt.Sprintf("%d items a round, one every 25 ms, added by the program that works them, or with a "+
			"connection of their own, as another process does. River's are added by the program that works them.", tries),
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
			{Text: "add → start, SQLite, added by another process, p50", Metric: "p50", Side: "ledgerd, added by another",
				Max: 2, Aim: 1},
		},
	}
}

func (s *suite) singlePostgres() measure.Scenario {
	n := s.n(3000)
	side := func(how ours.Single) measure.Sampler {
		return func(ctx context.Context) (measure.Sample, error) { return ours.OneByOne(ctx, s.OnPostgres, n, how) }
	}
	return measure.Scenario{
		Name: "single-postgres", Title: "claim and end one at a time, Postgres", OneIn: 2,
		About: fmt.Sprintf("%s items that need no work, one client that has one of them at a time. With one call it ends an "+
			"item and claims the next; with two it waits for the end before it claims. What is not prepared is parsed and "+
			"planned by the server each time, as behind a pooler. cpu is the server's processor time for each item.", count(n)),
		Metrics: []measure.Metric{drainRate, {Name: "cpu", Unit: "µs"}},
		Sides: []measure.Side{
			{Name: "one call", Run: side(ours.Single{OneCall: true})},
			{Name: "two calls", Run: side(ours.Single{})},
			{Name: "two calls, not prepared", Run: side(ours.Single{Unprepared: true})},
		},
		Targets: []measure.Target{{Text: "claim and end one at a time, Postgres, to two calls of statements that are not " +
			"prepared", Metric: "drain", Side: "one call", Of: []string{"two calls, not prepared"}, Min: 2, Aim: 2.8}},
	}
}

func (s *suite) renewPostgres() measure.Scenario {
	const items, times = 1000, 50
	return measure.Scenario{
		Name: "renew-postgres", Title: "renewal of leases, Postgres", OneIn: 2,
		About: fmt.Sprintf("%s items that one claim holds are renewed together, %d times. cpu and wal are what one renewal "+
			"of all of them costs the whole server; an engine with a lease in each row wrote 566 kB.", count(items), times),
		Metrics: []measure.Metric{{Name: "cpu", Unit: "µs"}, {Name: "wal", Unit: "B"}},
		Sides: []measure.Side{{Name: "ledgerd", Run: func(ctx context.Context) (measure.Sample, error) {
			return ours.Renewals(ctx, s.OnPostgres, items, times)
		}}},
		Targets: []measure.Target{{Text: fmt.Sprintf("renewal of %s leases, Postgres, write-ahead log", count(items)),
			Metric: "wal", Side: "ledgerd", Max: 28_300}},
	}
}

func (s *suite) firstClaim() measure.Scenario {
	const polls, batch = 3600, 500
	n := s.n(1_000_000)
	side := func(on ours.On) measure.Sampler {
		return func(ctx context.Context) (measure.Sample, error) {
			claim, finish, err := ours.FirstClaim(ctx, on, polls, n, batch)
			return measure.Sample{"claim": claim.Seconds() * 1000, "finish": finish.Seconds() * 1000}, err
		}
	}
	var targets []measure.Target
	for _, name := range []string{"Postgres", "SQLite"} {
		for _, metric := range []string{"claim", "finish"} {
			targets = append(targets, measure.Target{Text: fmt.Sprintf("first %s of %d after an idle hour and %s adds, %s",
				metric, batch, count(n), name), Metric: metric, Side: name, Max: 100})
		}
	}
	return measure.Scenario{
		Name: "first-claim", Title: "first claim and finish after an idle hour", OneIn: 3,
		About: fmt.Sprintf("%s polls of an empty ledger (an hour's), then %s adds, then the first claim and finish of "+
			"%d, on the connections that polled; on Postgres with statistics from before the adds.", count(polls), count(n),
			batch),
		Metrics: []measure.Metric{{Name: "claim", Unit: "ms"}, {Name: "finish", Unit: "ms"}},
		Sides:   []measure.Side{{Name: "Postgres", Run: side(s.OnPostgres)}, {Name: "SQLite", Run: side(s.OnSQLite)}},
		Targets: targets,
	}
}

func (s *suite) pinned() measure.Scenario {
	n := s.n(1_000_000)
	side := func(pinned bool) measure.Sampler {
		return func(ctx context.Context) (measure.Sample, error) {
			rate, late, err := ours.DrainWithLate(ctx, s.OnPostgres, n, pinned)
			if err != nil {
				return nil, err
			}
			return measure.Sample{"drain": rate, "p50": measure.Percentile(late, 0.5), "p99": measure.Percentile(late,
				0.99)}, nil
		}
	}
	return measure.Scenario{
		Name: "pinned", Title: "drain of a million under a pinned horizon, Postgres", OneIn: 3,
		About: fmt.Sprintf("%s items, while a transaction that began before sits idle and keeps the server from "+
			"removing what was finished; every 100 ms an item of higher priority is added: p50 and p99 of the time until its "+
			"handler starts.", count(n)),
		Metrics: []measure.Metric{drainRate, p50, p99},
		Sides:   []measure.Side{{Name: "free", Run: side(false)}, {Name: "pinned", Run: side(true)}},
		Targets: []measure.Target{
			{Text: "drain of a million under a pinned horizon, to without it", Metric: "drain", Side: "pinned",
				Of: []string{"free"}, Min: 0.8},
			{Text: "items of higher priority meanwhile, pinned, p99", Metric: "p99", Side: "pinned", Max: 250},
		},
	}
}
