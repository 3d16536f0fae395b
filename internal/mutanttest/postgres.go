package main

import "github.com/ledgerd/ledgerd/internal/chaostest"

// inPostgres are bugs of the store on Postgres.
var inPostgres = []mutant{
	{
		name:   "clock-of-the-client",
		bug:    "leases are timed by the clock of the client, not of the database",
		origin: "ShedLock 132",
		patches: []patch{{
			"ledger/postgres", "Store.render",
			"!= nil {",
			`== nil {
		s.clock = time.Now
	}
	if s.clock != nil {`,
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Clock, []string{"S1", "S2", "linear"}}},
	},
	{
		name: "limit-in-a-subselect",
		bug:  "a claim picks rows by IN (SELECT … LIMIT n); the planner may run this sub-select several times",
		patches: []patch{{
			"ledger/postgres", "claimTemplate",
			"= ANY((SELECT places FROM cut)::tid[])",
			"IN (SELECT ctid FROM {{S}}.ledger_backlog WHERE stage = 1 AND lock_id IS NULL AND gate = 0 AND kind = $1 " +
				"ORDER BY priority, due_at, item_id LIMIT {{LIMIT}} FOR UPDATE SKIP LOCKED)",
		}},
		caught: []detector{tests{"ledger/postgres", "TestClaimNeverTakesMore", "leased|asked for"}},
	},
	{
		name: "claim-without-locks",
		bug:  "a claim picks rows without locking them",
		patches: []patch{{
			"ledger/postgres", "claimTemplate",
			"{{LIMIT}} FOR UPDATE SKIP LOCKED)",
			"{{LIMIT}})",
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Kill, []string{"S1", "S2", "S11", "linear"}}},
	},
	{
		name: "plan-of-an-empty-table",
		bug:  "the prepared statement that ends attempts joins a list of items; a plan from the time when the table was empty later reads the whole table",
		patches: []patch{{
			"ledger/postgres", "completedOne",
			"b WHERE b.item_id` + listed + `",
			"b USING ` + unnest(\"bigint\") + ` f(item_id) WHERE b.item_id = f.item_id",
		}},
		caught: []detector{tests{"ledger/postgres", "TestPreparedPlans", "plans of|touches|in vain"}},
	},
	{
		name:   "unknown-commit-repeated",
		bug:    "a commit has no answer; it is treated as failed, and the transaction is repeated",
		origin: "layers on FoundationDB",
		patches: []patch{{
			"ledger/postgres", "committing",
			`fmt.Errorf("%w: %w", errUnknownFate, err)`,
			`repeatable{fmt.Errorf("%w", err)}`,
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Cut, []string{"S2", "S4", "S6", "S11", "linear"}}},
	},
	{
		name:   "commit-without-wal",
		bug:    "commits are acknowledged before they are on disk",
		origin: "NATS: acknowledged before fsync",
		patches: []patch{{
			"ledger/postgres", "settings",
			`{"jit", "off"},`,
			`{"jit", "off"}, {"synchronous_commit", "off"},`,
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Crash, []string{"S5", "S11", "linear"}}},
	},
	{
		name: "expired-early",
		bug:  "leases are expired one second too early",
		patches: []patch{{
			"ledger/postgres", "atNow",
			"coalesce($3::timestamptz, now()))",
			"coalesce($3::timestamptz, now()) + interval '1 s')",
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Kill, []string{"S1"}}},
	},
	{
		name: "lookup-then-insert",
		bug:  "a key is looked up and then inserted, without a unique index",
		patches: []patch{{
			"schema/postgres/00001_ledger.sql", "",
			",\n  UNIQUE (kind, scope, key)\n);",
			"\n);\nCREATE INDEX ledger_items_key ON ledger_items (kind, scope, key);",
		}, {
			"ledger/postgres", "insertTemplate",
			"!trust {",
			"trust && !trust {",
		}, {
			"ledger/postgres", "tx.insertChunk",
			"t.s.newness.Load() == mostlyKnown",
			"true",
		}},
		caught: []detector{
			tests{"ledger/postgres", "TestStore/ConcurrentAdds", "has ids|verdicts added"},
		},
	},
	{
		name:   "read-only-connection-kept",
		bug:    "a connection stays in the pool although its server has become read-only",
		origin: "River 1225, gpustack 6107",
		patches: []patch{{
			"ledger/postgres", "Store.once",
			"readOnly(err) || unprepared(err) || ctx.Err()",
			"ctx.Err()",
		}},
		caught: []detector{tests{"ledger/postgres", "TestReadOnlySessionIsDropped", "after it has shown"}},
	},
	{
		name: "cancelled-connection-kept",
		bug:  "a call is cancelled, and its connection is used again before the cancel request has arrived",
		patches: []patch{{
			"ledger/postgres", "Store.once",
			"|| ctx.Err() != nil {",
			"{",
		}},
		caught: []detector{tests{"ledger/postgres", "TestCancelledCallsConnection", "is used again"}},
	},
	{
		name: "lease-in-a-condition",
		bug:  "the planner estimates how many rows have no lease; statistics from a time when all were leased let it expect none",
		patches: []patch{{
			"ledger/postgres", "isReady",
			"coalesce(lock_id IS NULL, false)",
			"lock_id IS NULL",
		}},
		caught: []detector{tests{"ledger/postgres", "TestPlans/all_leased_at_the_last_ANALYZE", "touches|Scan of"}},
	},
	{
		name: "lease-outlives-its-items",
		bug:  "the row of a claim stays when the last of its items has ended",
		patches: []patch{{
			"ledger/postgres", "sweepTemplate",
			"IS NULL LIMIT",
			"IS NULL AND false LIMIT",
		}},
		caught: []detector{tests{"ledger/postgres", "TestLeasesGoWithTheirItems", "leases after the last"}},
	},
	{
		name: "half-an-exchange",
		bug:  "a round trip ends an attempt and claims the next item; the claim fails and undoes the end, but the end is reported as recorded",
		patches: []patch{{
			"ledger/postgres", "Store.CompleteAndClaim",
			"		return nil, ledger.Claimed{}, err\n",
			"		return landed, ledger.Claimed{More: true}, nil\n",
		}},
		caught: []detector{tests{"ledger/postgres", "TestHalvesOfAnExchange/ledger_leases", "is leased|ended with"}},
	},
	{
		name: "renewal-of-a-part",
		bug:  "a renewal of one item renews all that was claimed with it",
		patches: []patch{{
			"ledger/postgres", "renewWhole",
			"bool_and(",
			"bool_or(",
		}},
		caught: []detector{tests{"ledger/postgres", "TestRenewalsOfClaims", "before|rows were written|lost"}},
	},
	{
		name: "renewal-misses-an-item",
		bug:  "an item of a claim has an expiry of its own; a renewal of the whole claim does not move this expiry",
		patches: []patch{{
			"ledger/postgres", "split",
			"SET split = true",
			"SET split = false",
		}},
		caught: []detector{tests{"ledger/postgres", "TestRenewalsOfClaims", "renewed again"}},
	},
	{
		name: "renewal-beside-expiry",
		bug:  "expiry does not mark the claim whose items it takes back; a renewal at the same time treats these items as held",
		patches: []patch{{
			"ledger/postgres", "tendTemplate",
			"SET split = true, due_at",
			"SET due_at",
		}, {
			"ledger/postgres", "renewWhole",
			" FOR UPDATE SKIP LOCKED),\nr AS",
			"),\nr AS",
		}},
		caught: []detector{tests{"ledger/postgres", "TestNoRenewalBesideExpiry", "renewed"}},
	},
	{
		name: "count-while-locking",
		bug:  "one statement counts what an agent holds and claims the rest; two such statements at once see the same count",
		patches: []patch{{
			"ledger/postgres", "Store.resume",
			`pg_advisory_xact_lock($1)",`,
			`$1::bigint",`,
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/ConcurrentResume", "holds"}},
	},
	{
		name: "position-never-reset",
		bug:  "a process searches only from the position that its claims have reached, and never again from the start",
		patches: []patch{{
			"ledger/postgres", "frontier.begin",
			"!now.Before(f.whole)",
			"f.whole.IsZero()",
		}},
		caught: []detector{tests{"ledger/postgres", "TestPositionsFindLateRows", "was not found"}},
	},
	{
		name:   "expiry-by-another-clock",
		bug:    "a lease is expired by one reading of the clock, and its end is recorded with an earlier reading",
		origin: "ledgerd, found by the chaos harness",
		patches: []patch{{
			"ledger/postgres", "atNow",
			"coalesce($3::timestamptz, now()))",
			"coalesce($3::timestamptz, {{NOW}}))",
		}},
		caught: []detector{tests{"ledger/postgres", "TestExpiryByTheTransactionsClock", "takes 1"}},
	},
	{
		name:   "statements-after-a-failure",
		bug:    "a statement fails; the later statements of its transaction are run all the same, and commit by themselves",
		origin: "ledgerd, found by the comparison of stores",
		patches: []patch{{
			"ledger/postgres", "own.later",
			`	if o.failed != nil {
		return o.failed
	}
`,
			"",
		}, {
			"ledger/postgres", "own.commit",
			"|| o.failed != nil {",
			"{",
		}, {
			"ledger/postgres", "tx.told",
			"t.err !=",
			"err ==",
		}},
		caught: []detector{tests{"ledger/postgres", "TestNothingAfterAFailure", "Name:half|{half "}},
	},
}
