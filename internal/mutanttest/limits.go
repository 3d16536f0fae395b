package main

// inLimits are bugs of limits of how much is leased, and how fast.
var inLimits = []mutant{
	{
		name: "limit-without-lock",
		bug:  "several claims of a kind with limits count at the same time",
		patches: []patch{{
			"ledger/postgres/limit.go", `statement{"SELECT pg_advisory_xact_lock($1)", []any{c.s.limitLock(g.Kind)}, nil},`,
			`statement{"SELECT pg_advisory_xact_lock_shared($1)", []any{c.s.limitLock(g.Kind)}, nil},`,
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/ConcurrentLimits", "are leased"}},
	},
	{
		name: "limit-in-old-snapshot",
		bug:  "what is leased of a shard key is counted in the statement that takes the lock, so in a snapshot from before it",
		patches: []patch{{
			"ledger/postgres/limit.go", `statement{"SELECT pg_advisory_xact_lock($1)", []any{c.s.limitLock(g.Kind)}, nil},`,
			`statement{"SELECT $1::bigint", []any{c.s.limitLock(g.Kind)}, nil},`,
		}, {
			"ledger/postgres/lanes.go", "FROM k\nCROSS JOIN LATERAL (SELECT count(*) AS n",
			"FROM k CROSS JOIN (SELECT pg_advisory_xact_lock(4711)) AS locked\nCROSS JOIN LATERAL (SELECT count(*) AS n",
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/ConcurrentLimits", "are leased"}},
	},
	{
		name: "limit-forgotten",
		bug:  "an item that is to be cancelled while it is leased no longer counts as running",
		patches: []patch{{
			"ledger/postgres/apply.go", "limit_key = CASE WHEN w.state = 2 THEN b.limit_key END", "limit_key = NULL",
		}, {
			"ledger/postgres/apply.go", "CASE WHEN w.state = 2 AND b.limit_key IS NOT NULL THEN b.gate ELSE", "CASE WHEN false THEN b.gate ELSE",
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/LimitsAreFreed", "claimed"}},
	},
	{
		name: "limit-from-now-on",
		bug:  "what is leased when a limit is set does not count",
		patches: []patch{{
			"ledger/sqlite/tx.go", "return x.countLeased(k)", "return nil",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/LimitsComeAndGo", "are leased"}},
	},
	{
		name: "rate-not-written",
		bug:  "claims do not write down how far the rate of their kind is used up",
		patches: []patch{{
			"ledger/limit.go", "a.Moved = append(a.Moved, a.whole)", "_ = a.whole",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LimitsRate", "claimed"}},
	},
	{
		name: "rate-one-too-many",
		bug:  "after a pause one more than the burst begins at once",
		patches: []patch{{
			"ledger/limit.go", "return int(room / t), 0", "return int(room/t) + 1, 0",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LimitsRate", "claimed"}},
	},
	{
		name: "rate-passed-over",
		bug:  "shard keys of which one more may begin are passed over",
		patches: []patch{{
			"ledger/limit.go", "p.After, p.Until = a.now.Add(time.Duration(n-1)*r.interval())", "p.After, p.Until = a.now.Add(time.Duration(n-2)*r.interval())",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LimitsRatePerShardKey", "claimed"}},
	},
	{
		name: "keys-not-looked-at",
		bug:  "a claim that finds nothing among the first five thousand shard keys says that there is nothing",
		patches: []patch{{
			"ledger/limit.go", "next, a.More = at.goOn(next.key)", "next, _ = at.goOn(next.key)",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestManyKeysAreHeldBack", "is not found"}},
	},
	{
		name: "turns-not-taken",
		bug:  "every claim begins with the same shard key",
		patches: []patch{{
			"ledger/limit.go", "\t\tif a.take(l, ready) > 0 {\n\t\t\tlast = key\n", "\t\tif a.take(l, ready) > 0 {\n\t\t\tlast = at\n",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LimitsTakeTurns", "claimed"}},
	},
}
