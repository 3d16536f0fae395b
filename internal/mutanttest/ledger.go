package main

import (
	"slices"

	"github.com/ledgerd/ledgerd/internal/chaostest"
)

// mutants are all planted bugs. Some bugs of other queues cannot be planted, because ledgerd has no place for them.
// Limits per key are counted by the statement that locks; count-while-locking comes closest. Maps of shards are
// cached. A feed of changes is paged by id, which late commits get behind; position-for-ever comes closest.
var mutants = slices.Concat(inRules, inLimits, inSQLite, inPostgres, inWorker, inTxn, inLocks)

// inRules are bugs of package ledger: of what becomes of an item.
var inRules = []mutant{
	{
		name:   "late-failure",
		bug:    "a worker that lost its lease reports a failure, and this ends the attempt of the next holder",
		origin: "Oban 532",
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
		name: "expiry-between-halves",
		bug:  "one call ends an attempt and claims more; the lease had expired before it; the claim succeeds, and the end is reported as recorded",
		patches: []patch{{
			"ledger", "Ledger.FinishAndClaim",
			"		return landed, failed\n",
			`		for _, c := range fast {
			landed = append(landed, c.ItemID)
		}
		return landed, failed
`,
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/FinishAndClaimOfLostLease", "want lease lost"}},
	},
	{
		name: "refused-end-swallows-claim",
		bug:  "one call ends an attempt and claims more; the end is refused, and the caller does not learn what it has claimed",
		patches: []patch{{
			"ledger", "Ledger.FinishAndClaim",
			"	if err != nil {\n		return errs, nil, held, err",
			`	if err != nil || errors.Join(errs...) != nil {
		return errs, nil, held, err`,
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/FinishAndClaimOfLostLease", "claimed \\[\\]"}},
	},
	{
		name:   "expiry-stuck-in-doubt",
		bug:    "expiry looks at one lease at a time and skips those of items with on_lost = doubt, so it never reaches the leases behind them",
		origin: "River 1318",
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
			"ledger/worker", "Worker.expireLoop",
			`!w.failed("expire", err) && n == expireMost`,
			`w.failed("expire", err) && n > 0`,
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Kill, []string{"L4"}}},
	},
	{
		name: "lost-attempt-not-recorded",
		bug:  "an attempt whose lease expired is not recorded",
		patches: []patch{{
			"ledger", "Ledger.lose",
			"recs[i].settle(lost, tx.Now(), l.jitter())\n",
			`recs[i].settle(lost, tx.Now(), l.jitter())
			if changes[i].Work != nil {
				changes[i].Attempt = nil
			}
`,
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Kill, []string{"S11"}}},
	},
	{
		name: "doubt-repeated",
		bug:  "an item with on_lost = doubt becomes ready again when its worker dies",
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
		name: "recorded-end-refused",
		bug:  "a worker gets no answer to COMMIT and reports the end again; the second report is refused although the first was recorded",
		patches: []patch{{
			"ledger", "landedBefore",
			"return &attempts[i],",
			"_ = i\n\t\t\treturn nil,",
		}},
		caught: []detector{
			chaos{chaostest.Postgres, chaostest.Cut, []string{"S3"}},
			tests{"ledger/memory", "TestStore/FinishTwice", "lease lost"},
		},
	},
	{
		name:   "crash-not-counted",
		bug:    "crashes are not counted, so one item kills process after process",
		origin: "asynq 1015",
		patches: []patch{{
			"ledger", "Record.again",
			"\t\tnext.Crashes++\n",
			"",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/CrashesDie", "crash 3: alone is false"}},
	},
	{
		name:   "loss-not-counted",
		bug:    "lost leases are not counted, so an item that kills its daemon is tried for ever",
		origin: "asynq 1015",
		patches: []patch{{
			"ledger", "Record.again",
			"\t\tnext.Losses++\n",
			"",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LossesDie", "dead"}},
	},
	{
		name:   "loss-is-a-failure",
		bug:    "an expired lease counts as a failure of the item",
		origin: "asynq 1015",
		patches: []patch{{
			"ledger", "Record.again",
			"\t\tnext.Losses++\n",
			"\t\tnext.Losses++\n\t\tnext.Failures++\n",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/ExpireGivesBack", "Failures:1"}},
	},
	{
		name: "period-in-utc",
		bug:  "a period has the day of UTC, not the day in the item's time zone",
		patches: []patch{{
			"ledger/recurrence", "Rule.Name",
			"p.In(e.zone)",
			"p.UTC()",
		}},
		caught: []detector{tests{"ledger/recurrence", "TestEvery", "is named"}},
	},
	{
		name: "period-twice",
		bug:  "a period is completed a second time",
		patches: []patch{{
			"ledger", "Record.settleRecurring",
			"out.Completed() && r.completed(period, r.Work.Epoch)",
			"false",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/RecurringOncePerPeriod", "outcomes"}},
	},
	{
		name: "one-answer-for-a-batch",
		bug:  "only some results of a batch are recorded, but the call reports success for all",
		patches: []patch{{
			"ledger", "Ledger.drop",
			"== len(pending) && len(landed) == len(fast)",
			"> 0",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/FinishBatchIsHonest", "error <nil>, want lease lost"}},
	},
	{
		name: "locked-row-is-lost",
		bug:  "a renewal skips a locked row, and the worker treats this lease as lost",
		patches: []patch{{
			"ledger", "Ledger.Extend",
			"ends[i], errs[i] = late[k], lost[k]",
			"ends[i], errs[i] = late[k], cmp.Or(lost[k], ErrLeaseLost)",
		}},
		caught: []detector{tests{"ledger/postgres", "TestRenewPassesOverLockedRows", "lease lost"}},
	},
	{
		name: "too-old-goes-on",
		bug:  "the ledger is migrated, and a program that is too old for it goes on",
		patches: []patch{{
			"ledger", "Ledger.fit",
			"case !due:",
			"case !due || conn == nil:",
		}},
		caught: []detector{tests{"ledger", "TestLedgerOfANewerRelease", "Claim: <nil>"}},
	},
}
