package main

import "github.com/ledgerd/ledgerd/internal/chaostest"

// inPostgres are bugs of the store on Postgres.
var inPostgres = []mutant{
	{
		name:   "clock-of-the-client",
		bug:    "leases go by the clock of whoever asks",
		origin: "ShedLock 132",
		patches: []patch{{
			"ledger/postgres/sql.go", "\tif s.clock != nil {\n", "\tif s.clock == nil {\n\t\ts.clock = time.Now\n\t}\n\tif s.clock != nil {\n",
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Clock, []string{"S1", "S2", "linear"}}},
	},
	{
		name: "limit-in-a-subselect",
		bug:  "rows are picked by IN (SELECT … LIMIT n), which the planner may run again",
		patches: []patch{{
			"ledger/postgres/claim.go",
			" WHERE item_id = ANY((SELECT ids FROM cut)::bigint[])\n",
			" WHERE item_id IN (SELECT item_id FROM {{S}}.ledger_backlog WHERE state = 1 AND gate = 0 AND kind = $1 ORDER BY priority, due_at, item_id LIMIT {{LIMIT}} FOR UPDATE SKIP LOCKED)\n",
		}},
		caught: []detector{tests{"ledger/postgres", "TestClaimNeverTakesMore", "leased|asked for"}},
	},
	{
		name: "claim-without-locks",
		bug:  "a claim picks rows without locking them",
		patches: []patch{{
			"ledger/postgres/claim.go", "LIMIT {{LIMIT}} FOR UPDATE SKIP LOCKED) x", "LIMIT {{LIMIT}}) x",
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Kill, []string{"S1", "S2", "S11", "linear"}}},
	},
	{
		name:   "unknown-commit-repeated",
		bug:    "a commit without an answer is taken for one that failed, and its transaction is repeated",
		origin: "layers on FoundationDB",
		patches: []patch{{
			"ledger/postgres/run.go", `return fmt.Errorf("%w: %w", errUnknownFate, err)`, `return repeatable{fmt.Errorf("%w", err)}`,
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Cut, []string{"S2", "S4", "S6", "S11", "linear"}}},
	},
	{
		name:   "unknown-commit-is-success",
		bug:    "a commit without an answer is taken for one that went well",
		origin: "layers on FoundationDB",
		patches: []patch{{
			"ledger/postgres/run.go", `return fmt.Errorf("%w: %w", errUnknownFate, err)`, "_ = fmt.Sprint(err)\n\t\treturn nil",
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Cut, []string{"S5", "S11", "linear"}}},
	},
	{
		name:   "commit-without-wal",
		bug:    "commits are acknowledged before they are on disk",
		origin: "NATS: acknowledged before fsync",
		patches: []patch{{
			"ledger/postgres/connect.go", `{"jit", "off"},`, `{"jit", "off"}, {"synchronous_commit", "off"},`,
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Crash, []string{"S5", "S11", "linear"}}},
	},
	{
		name: "taken-early",
		bug:  "leases are taken back a second before they run out",
		patches: []patch{{
			"ledger/postgres/due.go", "AND expires_at <= (SELECT coalesce($3::timestamptz, now()))", "AND expires_at <= (SELECT coalesce($3::timestamptz, now()) + interval '1 s')",
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Kill, []string{"S1"}}},
	},
	{
		name: "dedupe-by-looking",
		bug:  "whether a key is known is looked up before it is inserted, without a unique index",
		patches: []patch{{
			"schema/postgres/00001_ledger.sql", ",\n  UNIQUE (kind, scope, key)\n);", "\n);\nCREATE INDEX ledger_items_key ON ledger_items (kind, scope, key);",
		}, {
			"ledger/postgres/insert.go", "\tif !trust {\n\t\ttemplate", "\tif trust && !trust {\n\t\ttemplate",
		}, {
			"ledger/postgres/insert.go", "if t.s.newness.Load() == mostlyKnown {", "if true {",
		}},
		caught: []detector{
			tests{"ledger/postgres", "TestStore/ConcurrentAdds", "has ids|verdicts added"},
		},
	},
	{
		name: "last-statement-repeated",
		bug:  "after a deadlock only the last statement is repeated",
		patches: []patch{{
			"ledger/postgres/update.go",
			"\to.failed = o.pipe.run(o.ctx, waiting)\n",
			"\tif o.failed = o.pipe.run(o.ctx, waiting); rolledBack(o.failed) {\n\t\to.rollback()\n\t\to.failed = o.pipe.run(o.ctx, waiting[len(waiting)-1:])\n\t}\n",
		}},
		caught: []detector{tests{"ledger/postgres", "TestDeadlocksAreRepeated", "did not meet"}},
	},
	{
		name:   "read-only-kept",
		bug:    "a connection to a server that takes no writes any more stays in the pool",
		origin: "River 1225, gpustack 6107",
		patches: []patch{{
			"ledger/postgres/run.go", "if readOnly(err) || ctx.Err() != nil {", "if ctx.Err() != nil {",
		}},
		caught: []detector{tests{"ledger/postgres", "TestReadOnlySessionIsDropped", "after it has shown"}},
	},
	{
		name: "cancelled-kept",
		bug:  "the connection of a cancelled call is used again, though the request to cancel may yet arrive",
		patches: []patch{{
			"ledger/postgres/run.go", "if readOnly(err) || ctx.Err() != nil {", "if readOnly(err) {",
		}},
		caught: []detector{tests{"ledger/postgres", "TestCancelledCallsConnection", "is used again"}},
	},
	{
		name: "state-outside",
		bug:  "the statement that claims names the state outside of the sub-select, too",
		patches: []patch{{
			"ledger/postgres/claim.go",
			" WHERE item_id = ANY((SELECT ids FROM cut)::bigint[])\n",
			" WHERE state = 1 AND gate = 0 AND item_id = ANY((SELECT ids FROM cut)::bigint[])\n",
		}},
		caught: []detector{tests{"ledger/postgres", "TestPlans/all_waiting_at_the_last_ANALYZE", "touches|Scan of"}},
	},
	{
		name: "bare-clock",
		bug:  "a condition names clock_timestamp() without a sub-select, so that no index serves it",
		patches: []patch{{
			"ledger/postgres/due.go", "AND b.due_at <= (SELECT {{NOW}})\n", "AND b.due_at <= {{NOW}}\n",
		}},
		caught: []detector{tests{"ledger/postgres", "TestPlans/all_waiting", "look for what is due: .* touches"}},
	},
	{
		name: "count-while-locking",
		bug:  "what an agent holds is counted by the statement that claims the rest, and two of them see the same",
		patches: []patch{{
			"ledger/postgres/claim.go", "\"SELECT pg_advisory_xact_lock($1)\", []any{lockKey(\"agent\", s.schema, g.Agent)}", "\"SELECT $1::bigint\", []any{lockKey(\"agent\", s.schema, g.Agent)}",
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/ConcurrentResume", "holds"}},
	},
	{
		name: "position-for-ever",
		bug:  "a process never looks behind the position of its claims again",
		patches: []patch{{
			"ledger/postgres/positions.go", "if !now.Before(f.whole) {", "if f.whole.IsZero() {",
		}},
		caught: []detector{tests{"ledger/postgres", "TestPositionsFindLateRows", "was not found"}},
	},
	{
		name:   "expiry-by-another-clock",
		bug:    "leases are taken back by a later clock than the one by which that is written down",
		origin: "ours, found by the chaos harness",
		patches: []patch{{
			"ledger/postgres/due.go", "AND expires_at <= (SELECT coalesce($3::timestamptz, now()))", "AND expires_at <= (SELECT coalesce($3::timestamptz, {{NOW}}))",
		}},
		caught: []detector{tests{"ledger/postgres", "TestExpiryByTheTransactionsClock", "takes 1"}},
	},
	{
		name:   "on-after-a-failure",
		bug:    "after a statement that failed the others of its transaction are run, and commit by themselves",
		origin: "ours, found by the comparison of stores",
		patches: []patch{{
			"ledger/postgres/update.go", "\tif o.failed != nil {\n\t\treturn o.failed\n\t}\n", "",
		}, {
			"ledger/postgres/update.go", "if !o.begun || o.failed != nil {", "if !o.begun {",
		}, {
			"ledger/postgres/tx.go", "\tif t.err != nil {\n\t\treturn t.err\n\t}\n\treturn err\n", "\tif err == nil {\n\t\treturn t.err\n\t}\n\treturn err\n",
		}},
		caught: []detector{tests{"ledger/postgres", "TestNothingAfterAFailure", "Name:half|{half "}},
	},
}
