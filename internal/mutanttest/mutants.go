//go:build unix

package main

import "github.com/ledgerd/ledgerd/internal/chaostest"

// mutants are all planted bugs, by the invariant that each breaks. They are few: each stands for a way in which an
// invariant could break, and shows that a test would notice.
var mutants = []mutant{
	{
		invariant: "S1",
		name:      "claim-without-locks",
		bug:       "a claim picks rows without locking them",
		patches: []patch{{
			"ledger/postgres", "claimTemplate",
			"{{LIMIT}} FOR UPDATE SKIP LOCKED)",
			"{{LIMIT}})",
		}, { // newer releases of Postgres leave out a row that has got another ctid meanwhile
			"ledger/postgres", "claimTemplate",
			"ctid = ANY((SELECT places FROM cut)::tid[])",
			"item_id = ANY((SELECT ids FROM cut)::bigint[])",
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Kill, []string{"S1", "S2", "S11", "linear"}}},
	},
	{
		invariant: "S1",
		name:      "expiry-from-a-snapshot",
		bug:       "expired leases are looked up before the write lock is taken, and not checked again under it",
		origin:    "River 1302",
		patches: []patch{{
			"ledger/sqlite", "tx.LoadExpired",
			"if err := x.begin(); err != nil {\n\t\treturn nil, err\n\t}\n\treturn x.leased(`expires_at <= ?1`, limit)",
			`var ids []int64
	err := x.s.readInside(x.turn.ctx, x.s.probes, true, func(s session) error {
		const expired = "SELECT item_id FROM ledger_backlog WHERE state = 2 AND expires_at <= ?1 " +
			"ORDER BY expires_at, item_id LIMIT ?2"
		return s.query(expired, func(r row) error {
			ids = append(ids, r.int(0))
			return nil
		}, x.s.clock(), limit)
	})
	if err != nil {
		return nil, err
	}
	recs, err := x.Load(ids)
	recs = slices.DeleteFunc(recs, func(r ledger.Record) bool { return r.Work == nil || r.Work.State != ledger.StateLeased })
	return recs, err`,
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Hog, []string{"S1", "linear"}}},
	},
	{
		invariant: "S1",
		name:      "clock-of-the-client",
		bug:       "leases are timed by the clock of the client, not of the database",
		origin:    "ShedLock 132",
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
		invariant: "S1",
		name:      "renewal-beside-expiry",
		bug:       "expiry does not mark the claim whose items it takes back; a renewal at the same time treats these items as held",
		patches: []patch{{
			"ledger/postgres", "tendTemplate",
			"SET split = true, due_at",
			"SET due_at",
		}, {
			"ledger/postgres", "takenTemplate", "l.split{{EXPIRED}}", "true{{EXPIRED}}",
		}, {
			"ledger/postgres", "renewWhole",
			" FOR UPDATE SKIP LOCKED),\nr AS",
			"),\nr AS",
		}},
		caught: []detector{tests{"ledger/postgres", "TestNoRenewalBesideExpiry", "renewed"}},
	},
	{
		invariant: "S1",
		name:      "lease-trusted-for-ever",
		bug:       "a lease could not be renewed, but its handler goes on beside the next holder",
		patches: []patch{{
			"ledger/worker", "lane.watchRunning",
			"!now.Before(t.trustedUntil)",
			"now.IsZero()",
		}},
		caught: []detector{tests{"ledger/worker", "TestLeaseIsNotTrustedBlindly", "the context ended after the lease"}},
	},
	{
		invariant: "S2",
		name:      "attempts-start-again",
		bug:       "attempt numbers begin with 1 again after the earlier attempts were pruned",
		patches: []patch{{
			"ledger/sqlite", "prune",
			"?2, payload",
			"?2 * 0, payload",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/(AttemptNumbersGoOn|PruneKeepsIdentity)", "S2"}},
	},
	{
		invariant: "S3",
		name:      "late-failure",
		bug:       "a worker that lost its lease reports a failure, and this ends the attempt of the next holder",
		origin:    "Oban 532",
		patches: []patch{{
			"ledger", "Ledger.settleOne",
			"r.Work.LockID == ls.LockID:",
			"(r.Work.LockID == ls.LockID || res.Outcome == OutcomeFailed):",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Pause, []string{"S3"}},
			tests{"ledger/memory", "TestStore/FinishIsFenced", "lease lost"},
		},
	},
	{
		invariant: "S3",
		name:      "complete-by-id",
		bug:       "an item can be completed by its id alone, without its lease",
		origin:    "Oban, River, goqite, graphile-worker, pg-boss, asynq, backlite",
		patches: []patch{{
			"ledger/sqlite", "completePlain",
			"b.lock_id = ?2",
			"b.state = 2 AND ?2 IS NOT NULL",
		}, {
			"ledger/sqlite", "completeFull",
			"b.lock_id = v.column2",
			"b.state = 2",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/FinishIsFenced", "lease"}},
	},
	{
		invariant: "S2",
		name:      "restored-from-one",
		bug:       "attempts that are claimed after a restoration have the numbers that may have been given before",
		patches: []patch{{
			"ledger", "Grant.Next",
			"g.Floor",
			"0",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/Restored", "first attempt in the incarnation"}},
	},
	{
		invariant: "S8",
		name:      "restored-fences",
		bug:       "a restoration raises the numbers of attempts, but not those of items and locks",
		patches: []patch{{
			"ledger/sqlite", "tx.PutFloors",
			"Name: name}, above)",
			"Name: name}, above*0)",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/Restored", "must be above"}},
	},
	{
		invariant: "S3",
		name:      "lease-row-ends-by-id",
		bug:       "on Postgres, where a claim is a row of its own, an item can be completed by its id alone",
		patches: []patch{{
			"ledger/postgres", "completedOne",
			"b.lock_id = $2 AND",
			"b.lock_id IS NOT NULL AND",
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/FinishIsFenced", "lease"}},
	},
	{
		invariant: "S3",
		name:      "lease-row-renewed-by-id",
		bug:       "on Postgres, where a claim is a row of its own, a late renewal takes an item away from its new holder",
		patches: []patch{{
			"ledger/postgres", "renewRows",
			"SET expires_at",
			"SET lock_id = ($2::uuid[])[1], expires_at",
		}, {
			"ledger/postgres", "renewRows",
			"` + heldBy + ` AND b.lock_id = ANY(ARRAY(SELECT lock_id FROM l))",
			"b.item_id` + listed + ` AND b.lock_id IS NOT NULL",
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/RenewKeeps", "lease lost"}},
	},
	{
		invariant: "S3",
		name:      "late-renewal",
		bug:       "a late renewal takes the item away from its new holder",
		patches: []patch{{
			"ledger/sqlite", "Store.Renew",
			"?3, renewals = coalesce(renewals, 0) + 1 WHERE item_id IN (SELECT value FROM json_each(?1)) AND lock_id = ?2",
			"?3, lock_id = ?2 WHERE item_id IN (SELECT value FROM json_each(?1)) AND state = 2",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Pause, []string{"S3", "S11", "linear"}},
			tests{"ledger/sqlite", "TestStore/RenewKeeps", "lease lost"},
		},
	},
	{
		invariant: "S4",
		name:      "unknown-commit-repeated",
		bug:       "a commit has no answer; it is treated as failed, and the transaction is repeated",
		origin:    "layers on FoundationDB",
		patches: []patch{{
			"ledger/postgres", "committing",
			`fmt.Errorf("%w: %w", errUnknownFate, err)`,
			`repeatable{fmt.Errorf("%w", err)}`,
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Cut, []string{"S2", "S4", "S6", "S11", "linear"}}},
	},
	{
		invariant: "S5",
		name:      "no-fsync",
		bug:       "commits are acknowledged before they are on disk",
		origin:    "NATS: acknowledged before fsync",
		patches: []patch{{
			"ledger/sqlite", "Store.connect",
			`:= "FULL"`,
			`:= "OFF"`,
		}, {
			"ledger/sqlite", "Store.settle",
			`{"FULL": "2",`,
			`{"OFF": "0",`,
		}},
		caught: []detector{tests{"ledger/sqlite", "TestDurableBeforeAnswer", "answered before the disk had it"}},
	},
	{
		invariant: "S5",
		name:      "commit-without-wal",
		bug:       "commits are acknowledged before they are on disk",
		origin:    "NATS: acknowledged before fsync",
		patches: []patch{{
			"ledger/postgres", "settings",
			`{"jit", "off"},`,
			`{"jit", "off"}, {"synchronous_commit", "off"},`,
		}},
		caught: []detector{chaos{chaostest.Postgres, chaostest.Crash, []string{"S5", "S11", "linear"}}},
	},
	{
		invariant: "S5",
		name:      "standby-not-awaited",
		bug:       "a commit is acknowledged although its wait for the synchronous standby was cancelled",
		origin:    "Postgres reports such a commit as done, with a warning",
		patches: []patch{{
			"ledger/postgres", "noteUnreplicated",
			`n.Routine == "SyncRepWaitForLSN"`,
			`n.Routine == ""`,
		}},
		caught: []detector{tests{"ledger/postgres", "TestUnreplicatedCommit", "cancelled by an operator: <nil>"}},
	},
	{
		invariant: "S5",
		name:      "answer-before-commit",
		bug:       "a call is answered before its transaction is committed",
		origin:    "NATS: acknowledged before fsync",
		patches: []patch{{
			"ledger/sqlite", "writer.tick",
			`failpoint.Here("sqlite.commit")`,
			`for _, t := range done {
			t.wake <- nil
		}
		done = nil
		failpoint.Here("sqlite.commit")`,
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.DiskFull, []string{"S5", "S11", "linear"}}},
	},
	{
		invariant: "S6",
		name:      "lookup-then-insert",
		bug:       "a key is looked up and then inserted, without a unique index",
		patches: []patch{{
			"schema/postgres/00017_ledger.sql", "",
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
		invariant: "S7",
		name:      "period-twice",
		bug:       "a period is completed a second time",
		patches: []patch{{
			"ledger", "Record.settleRecurring",
			"out.Completed() && !r.DonePeriod.Before(period)",
			"false",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/RecurringOncePerPeriod", "outcomes"}},
	},
	{
		invariant: "S7",
		name:      "period-in-utc",
		bug:       "a period has the day of UTC, not the day in the item's time zone",
		patches: []patch{{
			"ledger/recurrence", "Rule.Name",
			"p.In(e.zone)",
			"p.UTC()",
		}},
		caught: []detector{tests{"ledger/recurrence", "TestEvery", "is named"}},
	},
	{
		invariant: "S8",
		name:      "commit-without-check",
		bug:       "a transaction under a lock commits without checking that the lock is still held",
		patches: []patch{{
			"ledger/locks", "InTx",
			"m.Check(ctx, r.Conn(tx), l)",
			"nil",
		}},
		caught: []detector{tests{"ledger/locks", "TestInTxLost|TestFrozenHolderCannotCommit", "1 effects"}},
	},
	{
		invariant: "S8",
		name:      "fence-drawn-early",
		bug:       "a fencing number is drawn before other processes are kept from taking the lock, so it can be smaller than the number of an earlier holder",
		patches: []patch{{
			"ledger/postgres", "tx.GrantLock",
			"!inserted",
			"inserted {\n" +
				"\terr = t.query(`SELECT fence FROM {{S}}.ledger_locks WHERE name = $1`, []any{l.Name},\n" +
				"\t\tfunc(scan scanner) error { return scan(&fence) })\n" +
				"\treturn fence, err\n}\nif err == nil && !inserted",
		}},
		caught: []detector{tests{"ledger/postgres", "TestFenceOfASlowHolder", "after"}},
	},
	{
		invariant: "S9",
		name:      "lock-forgotten",
		bug:       "a repeated transaction does not take again the locks that its previous try had taken",
		patches: []patch{{
			"ledger/txn", "Runner.try",
			"if err := t.take(ctx, *keys); err != nil {\n\t\treturn err\n\t}",
			"t.keys = *keys",
		}},
		caught: []detector{tests{"ledger/txn", "TestLockOnce", "."}},
	},
	{
		invariant: "limits",
		name:      "limit-without-lock",
		bug:       "several claims count the leased items of a limited kind at the same time",
		patches: []patch{{
			"ledger/postgres", "limitedClaim.begin",
			`pg_advisory_xact_lock($1)", []any{c.s.limitLock(g.Kind)},`,
			`pg_advisory_xact_lock_shared($1)", []any{c.s.limitLock(g.Kind)},`,
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/ConcurrentLimits", "are leased"}},
	},
	{
		invariant: "S10",
		name:      "drain-ignores-leased",
		bug:       "a drain does not wait for items that other processes hold",
		patches: []patch{{
			"ledger/worker", "allQuiet",
			"s.Held > 0 || soon",
			"soon",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Kill, []string{"S10"}},
			tests{"ledger/worker", "TestDrainWaitsForOthers", "item is leased"},
		},
	},
	{
		invariant: "S11",
		name:      "statements-after-a-failure",
		bug:       "a statement fails; the later statements of its transaction are run all the same, and commit by themselves",
		origin:    "ledgerd, found by the comparison of stores",
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
	{
		invariant: "checksum",
		name:      "checksum-of-before",
		bug:       "a changed payload keeps the checksum of the one before",
		patches: []patch{{
			"ledger/sqlite", "updateItems",
			"coalesce(v.column8, checksum)",
			"checksum",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/AddTable", "verify: checksum"}},
	},
	{
		invariant: "S15",
		name:      "one-answer-for-a-batch",
		bug:       "only some results of a batch are recorded, but the call reports success for all",
		patches: []patch{{
			"ledger", "drop",
			"== len(pending) && len(landed) == len(fast)",
			"> 0",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/FinishBatchIsHonest", "error <nil>, want lease lost"}},
	},
	{
		invariant: "doubt",
		name:      "doubt-repeated",
		bug:       "an item with on_lost = doubt becomes ready again when its worker dies",
		patches: []patch{{
			"ledger", "Record.conclude",
			"(out == OutcomeFailed || !w.StartedAt.IsZero())",
			"out == OutcomeFailed",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Pause, []string{"doubt"}},
			tests{"ledger/memory", "TestStore/DoubtOnlyStarted", "doubt"},
		},
	},
	{
		invariant: "L4",
		name:      "expiry-stuck-in-doubt",
		bug:       "expiry looks at one lease at a time and skips those of items with on_lost = doubt, so it never reaches the leases behind them",
		origin:    "River 1318",
		patches: []patch{{
			"ledger", "Ledger.lose",
			"\tchanges := make([]Change, len(recs))\n\tfor i := range recs {\n",
			`	changes := make([]Change, len(recs))
	for i := range recs {
		if recs[i].Policy.inDoubt() {
				changes[i] = Change{ID: recs[i].ID, Work: recs[i].Work}
				continue
			}
`,
		}, {
			"ledger/worker", "expireMost",
			"expireMost    = 100",
			"expireMost    = 1",
		}, {
			"ledger/worker", "Worker.expire",
			`!w.failed("expire", err) && n > 0`,
			`w.failed("expire", err) && n > 0`,
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Kill, []string{"L4"}}},
	},
	{
		invariant: "S3",
		name:      "lease-of-another-caller",
		bug:       "over HTTP a token of a lease is enough: the access token need not have its kind and agent",
		patches: []patch{{
			"internal/lending", "Lender.each",
			"!k.by.May(found[i].Kind, found[i].Agent):",
			"!k.by.May(found[i].Kind, found[i].Agent) && ended && len(k.emit) > 0:",
		}},
		caught: []detector{tests{"internal/lending", "TestForeignLease", "of another kind: .*Recorded:true"}},
	},
	{
		invariant: "L4",
		name:      "client-gone-keeps-items",
		bug:       "the client of a claim goes before its answer is written, and the items stay leased",
		patches: []patch{{
			"internal/lending", "Lender.look",
			"d.TakeBack(ctx, got)",
			"_ = got",
		}},
		caught: []detector{tests{"internal/lending", "TestClientGone", "is leased, want ready"}},
	},
	{
		invariant: "L4",
		name:      "resume-of-nothing",
		bug:       "a worker whose answer was lost claims with resume, and gets only new items",
		patches: []patch{{
			"internal/lending", "Lender.Claim",
			"TTL: ttl, Resume: c.Resume,",
			"TTL: ttl, Resume: c.Resume && c.Wait > 0,",
		}},
		caught: []detector{tests{"internal/lending", "TestAnswerLost", "claimed 1, want 3"}},
	},
	{
		invariant: "L4",
		name:      "turn-not-passed-on",
		bug:       "a waiting claim that is woken leaves, and the claims behind it are not woken",
		patches: []patch{{
			"internal/lending", "Lender.leave",
			"if more || !p.queued {",
			"if more {",
		}},
		caught: []detector{tests{"internal/lending", "TestTurnIsPassedOn", "after 1s"}},
	},
}
