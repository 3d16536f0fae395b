package main

// inLimits are bugs of limits of how much is leased, and how fast.
var inLimits = []mutant{
	{
		name: "limit-without-lock",
		bug:  "several claims count the leased items of a limited kind at the same time",
		patches: []patch{{
			"ledger/postgres", "limitedClaim.begin",
			`pg_advisory_xact_lock($1)", []any{c.s.limitLock(g.Kind)},`,
			`pg_advisory_xact_lock_shared($1)", []any{c.s.limitLock(g.Kind)},`,
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/ConcurrentLimits", "are leased"}},
	},
	{
		name: "limit-forgotten",
		bug:  "a leased item no longer counts under its limit once it is to be cancelled",
		patches: []patch{{
			"ledger/postgres", "updateWorks",
			"CASE WHEN w.leased THEN b.limit_key END",
			"NULL",
		}, {
			"ledger/postgres", "updateWorks",
			"w.leased AND b.limit_key IS NOT NULL",
			"false",
		}, {
			"ledger/postgres", "updateWorks",
			"w.leased AND b.running",
			"false",
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/LimitsAreFreed", "claimed"}},
	},
	{
		name: "limit-ignores-leased",
		bug:  "items that are leased when a limit is set do not count under it",
		patches: []patch{{
			"ledger/sqlite", "tx.PutKind",
			"x.countLeased(k)",
			"nil",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/LimitsComeAndGo", "are leased"}},
	},
	{
		name: "rate-one-too-many",
		bug:  "after a pause, one item more than the burst starts at once",
		patches: []patch{{
			"ledger/scheduler", "Rate.Allows",
			"int(room / t),",
			"int(room/t) + 1,",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LimitsRate", "claimed"}},
	},
	{
		name: "rate-skips-keys",
		bug:  "a claim skips shard keys whose rate still allows one more item",
		patches: []patch{{
			"ledger/scheduler", "Admission.heldByRate",
			"a.now.Add(time.Duration(n-1)*r.interval())",
			"a.now.Add(time.Duration(n-2)*r.interval())",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LimitsRatePerShardKey", "claimed"}},
	},
	{
		name: "first-keys-only",
		bug:  "a claim looks at the first five thousand shard keys, finds nothing ready, and reports that nothing is ready at all",
		patches: []patch{{
			"ledger/scheduler", "Admission.Walk",
			"a.More =",
			"_ =",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestManyKeysAreHeldBack", "is not found"}},
	},
	{
		name: "same-key-first",
		bug:  "every claim begins with the same shard key",
		patches: []patch{{
			"ledger/scheduler", "Admission.walk",
			"last = key",
			"last = at",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LimitsTakeTurns", "claimed"}},
	},
}
