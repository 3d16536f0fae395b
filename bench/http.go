package main

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledgerd/bench/internal/measure"
	"github.com/ledgerd/ledgerd/bench/internal/ours"
)

// http measures the ledger as programs see it that use only the HTTP API.
func (s *suite) http() measure.Scenario {
	n, few := s.n(50_000), s.n(10_000)
	over := func(n, limit, clients int) measure.Sampler {
		return func(ctx context.Context) (measure.Sample, error) {
			rate, err := s.OverHTTP(ctx, s.OnPostgres, n, limit, clients)
			return measure.Sample{"drain": rate}, err
		}
	}
	return measure.Scenario{
		Name: "http-postgres", Title: "over HTTP, Postgres", OneIn: 2,
		About: fmt.Sprintf("`ledgerd api` with clients that claim and end items that need no work: %s items in lists of 100 "+
			"by 4 clients, %s one by one on 32 connections; %s items added as lines of JSON in calls of %s by one client; and "+
			"%d items added one every 25 ms while a claim waits for them, until its answer is read.", count(n), count(few),
			count(n), count(ours.AddBatch), tries),
		Metrics: []measure.Metric{drainRate, addRate, p50, p99},
		Sides: []measure.Side{
			{Name: "lists of 100", Run: over(n, 100, 4)},
			{Name: "one by one, 32 connections", Run: over(few, 1, 32)},
			{Name: "lines of JSON", Run: func(ctx context.Context) (measure.Sample, error) {
				rate, err := s.AddOverHTTP(ctx, s.OnPostgres, n)
				return measure.Sample{"add": rate}, err
			}},
			{Name: "a claim that waits", Run: func(ctx context.Context) (measure.Sample, error) {
				return latency(s.ClaimLatency(ctx, s.OnPostgres, tries))
			}},
		},
		Targets: []measure.Target{
			{Text: "claim and end over HTTP, lists of 100, Postgres", Metric: "drain", Side: "lists of 100", Min: 25_000, Aim: 36_800},
			{Text: "claim and end over HTTP, one by one, Postgres", Metric: "drain", Side: "one by one, 32 connections", Min: 3000},
			{Text: "add over HTTP as lines of JSON, Postgres", Metric: "add", Side: "lines of JSON", Min: 40_000},
			{Text: "add → answer of a waiting claim over HTTP, p50", Metric: "p50", Side: "a claim that waits", Max: 10},
			{Text: "add → answer of a waiting claim over HTTP, p99", Metric: "p99", Side: "a claim that waits", Max: 50},
		},
	}
}

// httpWork compares a daemon that reaches the ledger over HTTP with one that opens the database.
func (s *suite) httpWork() measure.Scenario {
	n := s.n(60_000)
	return measure.Scenario{
		Name: "http-work", Title: "a daemon over HTTP and one on the database, Postgres", OneIn: 2,
		About: fmt.Sprintf("%s items, worked by one `ledgerd work` process with a plugin's process. It reaches the ledger "+
			"through `ledgerd api`, a third process on the same machine, or on the database itself; rates by the database's "+
			"clock.", count(n)),
		Metrics: []measure.Metric{drainRate},
		Sides: []measure.Side{
			{Name: "on the database", Run: func(ctx context.Context) (measure.Sample, error) {
				did, err := s.Daemons(ctx, s.OnPostgres, n, 1)
				return measure.Sample{"drain": did.PerSecond}, err
			}},
			{Name: "over HTTP", Run: func(ctx context.Context) (measure.Sample, error) {
				did, err := s.DaemonOverHTTP(ctx, s.OnPostgres, n)
				return measure.Sample{"drain": did.PerSecond}, err
			}},
		},
		Targets: []measure.Target{{Text: "`ledgerd work` over HTTP, Postgres, to `ledgerd work` on the database",
			Metric: "drain", Side: "over HTTP", Of: []string{"on the database"}, Min: 0.6}},
	}
}

// httpIdle measures what waiting claims cost.
func (s *suite) httpIdle() measure.Scenario {
	const claims, side = 1000, "waiting"
	return measure.Scenario{
		Name: "http-idle", Title: "claims that wait over HTTP, Postgres", OneIn: 5,
		About: fmt.Sprintf("%s claims of as many agents wait at the same time for items that do not come, each 30 s and "+
			"then again: processor time of the process `ledgerd api`, in percent of a core, and its memory (VmRSS) beyond what "+
			"it had before.", count(claims)),
		Metrics: []measure.Metric{{Name: "cpu", Unit: "%"}, {Name: "memory", Unit: "MiB"}},
		Sides: []measure.Side{{Name: side, Run: func(ctx context.Context) (measure.Sample, error) {
			cpu, mib, err := s.IdleClaims(ctx, s.OnPostgres, claims)
			return measure.Sample{"cpu": cpu, "memory": mib}, err
		}}},
		Targets: []measure.Target{
			{Text: fmt.Sprintf("%s claims that wait over HTTP, percent of a core", count(claims)), Metric: "cpu", Side: side,
				Max: 2},
			{Text: fmt.Sprintf("%s claims that wait over HTTP, MiB", count(claims)), Metric: "memory", Side: side, Max: 40},
		},
	}
}
