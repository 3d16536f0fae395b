package main

import "github.com/ledgerd/ledgerd/internal/chaostest"

// inWorker are bugs of the loop of workers and of what runs plugins.
var inWorker = []mutant{
	{
		name: "drain-ignores-leased",
		bug:  "a drain does not wait for items that other processes hold",
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
		name: "drain-looks-once",
		bug:  "a drain of several kinds looks at each kind only once",
		patches: []patch{{
			"ledger/worker", "Worker.quiet",
			"len(lanes) == 1 && first[0].Ready",
			"first[0].Ready",
		}},
		caught: []detector{tests{"ledger/worker", "TestQuietLooksTwice", "quiet though an attempt ended"}},
	},
	{
		name: "doubt-not-marked",
		bug:  "an item with on_lost = doubt is started without the start mark",
		patches: []patch{{
			"ledger/worker", "lane.start",
			"!l.stopping",
			"l.stopping",
		}},
		caught: []detector{tests{"ledger/worker", "TestDoubtfulKind", "not marked as started"}},
	},
	{
		name:   "notifications-only",
		bug:    "an idle worker waits for notifications and never polls",
		origin: "Oban 1499",
		patches: []patch{{
			"ledger/worker", "lane.waitForHint",
			"jitter(l.worker.config.Poll)",
			"0",
		}},
		caught: []detector{tests{"ledger/worker", "TestHints", "at most a poll"}},
	},
	{
		name:   "renewals-stop-first",
		bug:    "a worker that is stopping renews no leases while its handlers finish",
		origin: "db-scheduler 365",
		patches: []patch{{
			"ledger/worker", "Worker.start",
			"func(life context.Context) { w.watchLoop(life,",
			"func(context.Context) { w.watchLoop(claiming,",
		}},
		caught: []detector{tests{"ledger/worker", "TestStop", "want done with none"}},
	},
	{
		name: "lease-trusted-for-ever",
		bug:  "a lease could not be renewed, but its handler goes on beside the next holder",
		patches: []patch{{
			"ledger/worker", "lane.watchRunning",
			"!now.Before(t.trust)",
			"now.IsZero()",
		}},
		caught: []detector{tests{"ledger/worker", "TestLeaseIsNotTrustedBlindly", "the context ended after the lease"}},
	},
	{
		name: "expired-after-an-outage",
		bug:  "after an outage, leases are expired before their holders could renew them",
		patches: []patch{{
			"ledger/worker", "Worker.expireLoop",
			"full && !w.outage.recent(w.config.Lease);",
			"full;",
		}},
		caught: []detector{tests{"ledger/worker", "TestExpiryWaitsAfterOutage", "renewal after the outage: lease lost"}},
	},
	{
		name: "report-for-another-attempt",
		bug:  "a plugin's report about an earlier attempt ends the newest attempt of the item",
		patches: []patch{{
			"internal/pluginproc", "Session.results",
			"s.take(taskKey{r.Id, r.Attempt})",
			`s.take(func() (newest taskKey) {
	for key := range s.tasks {
		if key.id == r.Id {
			newest = key
		}
	}
	return newest
}())`,
		}},
		caught: []detector{tests{"internal/pluginproc", "TestSessionStrays", "settled"}},
	},
}
