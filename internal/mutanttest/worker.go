package main

import "github.com/ledgerd/ledgerd/internal/chaostest"

// inWorker are bugs of the loop of workers and of what runs plugins.
var inWorker = []mutant{
	{
		name: "drain-ignores-leased",
		bug:  "a drain does not wait for what others have in work",
		patches: []patch{{
			"ledger/worker/drain.go", "if s.Held > 0 || soon &&", "if soon &&",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Kill, []string{"S10"}},
			tests{"ledger/worker", "TestDrainWaitsForOthers", "item is leased"},
		},
	},
	{
		name: "drain-looks-once",
		bug:  "a drain of several kinds looks at each of them once",
		patches: []patch{{
			"ledger/worker/drain.go", "len(w.lanes) == 1 && first[0].Ready == 0 {", "first[0].Ready == 0 {",
		}},
		caught: []detector{tests{"ledger/worker", "TestQuietLooksTwice", "quiet though an attempt ended"}},
	},
	{
		name: "mail-not-marked",
		bug:  "items that must not be repeated are begun without the mark that says so",
		patches: []patch{{
			"ledger/worker/claim.go", "mark := l.doubtful() && !l.stopping", "mark := l.doubtful() && l.stopping",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Pause, []string{"doubt"}},
			tests{"ledger/worker", "TestDoubtfulKind", "not marked as started"},
		},
	},
	{
		name:   "notifier-and-no-poll",
		bug:    "an idle worker waits for a notification and never looks by itself",
		origin: "Oban 1499",
		patches: []patch{{
			"ledger/worker/claim.go", "most = jitter(l.worker.config.Poll)", "most = 0",
		}},
		caught: []detector{tests{"ledger/worker", "TestHints", "at most a poll"}},
	},
	{
		name:   "renewals-stop-first",
		bug:    "a worker that stops renews no leases while its handlers finish",
		origin: "db-scheduler 365",
		patches: []patch{{
			"ledger/worker/run.go", "func(life context.Context) { w.watchLoop(life, calls) },", "func(context.Context) { w.watchLoop(claiming, calls) },",
		}},
		caught: []detector{tests{"ledger/worker", "TestStop", "want done with none"}},
	},
	{
		name: "lease-trusted-for-ever",
		bug:  "a handler whose lease could not be renewed goes on beside its successor",
		patches: []patch{{
			"ledger/worker/keep.go", "if !t.lost && !now.Before(t.trust) {", "if !t.lost && now.IsZero() {",
		}},
		caught: []detector{tests{"ledger/worker", "TestLeaseIsNotTrustedBlindly", "the context ended after the lease"}},
	},
	{
		name: "everybody-is-late",
		bug:  "after an outage leases are taken before their holders could renew them",
		patches: []patch{{
			"ledger/worker/upkeep.go", "for full := true; full && !w.outage.recent(w.config.Lease); {", "for full := true; full; {",
		}},
		caught: []detector{tests{"ledger/worker", "TestExpiryWaitsAfterOutage", "renewal after the outage: lease lost"}},
	},
	{
		name: "reply-of-the-newest",
		bug:  "a report of a plugin is taken for the newest attempt of its item",
		patches: []patch{{
			"internal/pluginhost/session.go",
			"\t\ttasks[i] = s.take(taskKey{r.Id, r.Attempt})\n",
			"\t\tfor key := range s.tasks {\n\t\t\tif key.id == r.Id {\n\t\t\t\ttasks[i] = s.take(key)\n\t\t\t}\n\t\t}\n",
		}},
		caught: []detector{tests{"internal/pluginhost", "TestStrayResults", "settled"}},
	},
}
