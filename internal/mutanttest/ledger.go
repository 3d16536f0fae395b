package main

import (
	"slices"

	"github.com/ledgerd/ledgerd/internal/chaostest"
)

// mutants are all planted bugs. Some that others have had cannot be planted, as ledgerd has nothing in which they could
// be: limits per key (counted by the statement that locks; count-while-locking is what comes closest), maps of shards
// (cached), and a feed of changes (paged by id, which late commits get behind; position-for-ever comes closest).
var mutants = slices.Concat(inRules, inGate, inLimits, inSQLite, inPostgres, inWorker, inTxn, inLocks)

// inRules are bugs of package ledger: of what becomes of an item.
var inRules = []mutant{
	{
		name:   "late-failure",
		bug:    "the failure that a lost lease reports ends the attempt of its successor",
		origin: "Oban 532",
		patches: []patch{{
			"ledger/finish.go",
			"r.Work.State == StateLeased && r.Work.LockID == ls.LockID:",
			"r.Work.State == StateLeased && (r.Work.LockID == ls.LockID || res.Outcome == OutcomeFailed):",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Pause, []string{"S3"}},
			tests{"ledger/memory", "TestStore/FinishIsFenced", "lease lost"},
		},
	},
	{
		name:   "rescuer-stuck",
		bug:    "expired leases of mails are passed over, in pages of one: those behind are never reached",
		origin: "River 1318",
		patches: []patch{{
			"ledger/gone.go",
			"\tchanges := make([]Change, len(recs))\n\tfor i := range recs {\n",
			"\tchanges := make([]Change, len(recs))\n\tfor i := range recs {\n\t\tif recs[i].Policy.inDoubt() {\n\t\t\t\tchanges[i] = Change{ID: recs[i].ID, Work: recs[i].Work}\n\t\t\t\tcontinue\n\t\t\t}\n",
		}, {
			"ledger/worker/upkeep.go", "expireMost    = 100", "expireMost    = 1",
		}, {
			"ledger/worker/upkeep.go", "full = !w.failed(\"expire\", err) && n == expireMost", "full = w.failed(\"expire\", err) && n > 0",
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Kill, []string{"L4"}}},
	},
	{
		name: "loss-leaves-no-row",
		bug:  "an attempt whose lease ran out is not written down",
		patches: []patch{{
			"ledger/gone.go",
			"recs[i].settle(lost, tx.Now(), l.jitter())\n",
			"recs[i].settle(lost, tx.Now(), l.jitter())\n\t\t\tif changes[i].Work != nil {\n\t\t\t\tchanges[i].Attempt = nil\n\t\t\t}\n",
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Kill, []string{"S11"}}},
	},
	{
		name:   "unknown-kind",
		bug:    "an item whose lease ran out is discarded if its kind has no plugin",
		origin: "River 1105",
		patches: []patch{{
			"ledger/gone.go",
			"recs[i].settle(lost, tx.Now(), l.jitter())\n",
			"recs[i].settle(lost, tx.Now(), l.jitter())\n\t\t\tif recs[i].Policy.Plugin == \"\" {\n\t\t\t\tchanges[i].Work, changes[i].Finish = nil, true\n\t\t\t}\n",
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Kill, []string{"verify S11"}}},
	},
	{
		name: "tokens-of-a-counter",
		bug:  "tokens of claims are counted from 1 in every process",
		patches: []patch{{
			"ledger/ledger.go",
			"lockID, err := uuid.NewV7() // rising ids keep indexes of them compact\n\tif err != nil {\n\t\treturn nil, HeldBack{}, err\n\t}\n",
			"lockID, err := uuid.UUID{15: byte(claims.Add(1)), 14: byte(claims.Load() >> 8)}, error(nil)\n",
		}, {
			"ledger/ledger.go", "// Close waits for running calls and closes the store.\n", "var claims atomic.Int64\n\n",
		}, {
			"ledger/ledger.go", "\t\"sync\"\n", "\t\"sync\"\n\t\"sync/atomic\"\n",
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Kill, []string{"S2"}}},
	},
	{
		name: "lost-mail-again",
		bug:  "an item that must not be repeated is made ready when its worker died",
		patches: []patch{{
			"ledger/rules.go", "(out == OutcomeFailed || !w.StartedAt.IsZero())", "out == OutcomeFailed",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Pause, []string{"doubt"}},
			tests{"ledger/memory", "TestStore/DoubtOnlyStarted", "doubt"},
		},
	},
	{
		name: "landed-is-refused",
		bug:  "an end whose commit had no answer is not recognised when it is repeated",
		patches: []patch{{
			"ledger/finish.go", "return &attempts[i], nil", "_ = i\n\t\t\treturn nil, nil",
		}},
		caught: []detector{
			chaos{chaostest.Postgres, chaostest.Cut, []string{"S3"}},
			tests{"ledger/memory", "TestStore/FinishTwice", "lease lost"},
		},
	},
	{
		name:   "crash-not-counted",
		bug:    "a poisonous item kills one process after the other: crashes are not counted",
		origin: "asynq 1015",
		patches: []patch{{
			"ledger/rules.go", "\t\tnext.Crashes++\n", "",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/CrashesDie", "crash 3: alone is false"}},
	},
	{
		name:   "loss-not-counted",
		bug:    "an item that kills its daemon is tried for ever: losses are not counted",
		origin: "asynq 1015",
		patches: []patch{{
			"ledger/rules.go", "\t\tnext.Losses++\n", "",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/LossesDie", "dead"}},
	},
	{
		name:   "loss-is-a-failure",
		bug:    "a lease that ran out counts as a failure of the item",
		origin: "asynq 1015",
		patches: []patch{{
			"ledger/rules.go", "\t\tnext.Losses++\n", "\t\tnext.Losses++\n\t\tnext.Failures++\n",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/ExpireGivesBack", "Failures:1"}},
	},
	{
		name: "period-of-the-machine",
		bug:  "the name of a day is that of UTC, not of the item's zone",
		patches: []patch{{
			"ledger/every.go", "\tl := p.In(e.zone)\n\tswitch e.spec {\n\tcase \"hour\":\n\t\tif p.UTC()", "\tl := p.UTC()\n\tswitch e.spec {\n\tcase \"hour\":\n\t\tif p.UTC()",
		}},
		caught: []detector{tests{"ledger", "TestEvery", "is named"}},
	},
	{
		name: "period-twice",
		bug:  "a period that was completed is completed once more",
		patches: []patch{{
			"ledger/rules.go", "if out.Completed() && r.completed(period, r.Work.Epoch) {", "if false {",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/RecurringOncePerPeriod", "outcomes"}},
	},
	{
		name: "one-answer-for-a-batch",
		bug:  "a batch of ends of which some landed is answered as if all had",
		patches: []patch{{
			"ledger/finish.go", "if len(landed) == len(pending) && len(landed) == len(fast) {", "if len(landed) > 0 {",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/FinishBatchIsHonest", "error <nil>, want lease lost"}},
	},
	{
		name: "one-lost-fails-a-batch",
		bug:  "one lost lease fails the whole batch of ends",
		patches: []patch{{
			"ledger/finish.go", "return nil, ErrLeaseLost, nil", "return nil, nil, ErrLeaseLost",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/FinishBatchIsHonest", "error lease lost, want <nil>"}},
	},
	{
		name: "renewal-gap",
		bug:  "a lease that a renewal passed over, because its row was locked, is taken for lost",
		patches: []patch{{
			"ledger/ledger.go", "missing = append(missing, i)", "errs[i] = ErrLeaseLost",
		}},
		caught: []detector{tests{"ledger/postgres", "TestRenewPassesOverLockedRows", "lease lost"}},
	},
	{
		name: "too-old-goes-on",
		bug:  "a program that is too old for a ledger that was brought up to date goes on",
		patches: []patch{{
			"ledger/schema.go", "case !due:", "case !due || conn == nil:",
		}},
		caught: []detector{tests{"ledger", "TestLedgerOfANewerRelease", "Claim: <nil>"}},
	},
}
