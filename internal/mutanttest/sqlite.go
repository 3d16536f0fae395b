package main

import "github.com/ledgerd/ledgerd/internal/chaostest"

// inSQLite are bugs of the store on SQLite and of what all stores share.
var inSQLite = []mutant{
	{
		name:   "complete-by-id",
		bug:    "an item can be completed by its id alone, without its lease",
		origin: "Oban, River, goqite, graphile-worker, pg-boss, asynq, backlite",
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
		name:   "expiry-from-a-snapshot",
		bug:    "expired leases are looked up before the write lock is taken, and not checked again under it",
		origin: "River 1302",
		patches: []patch{{
			"ledger/sqlite", "tx.LoadExpired",
			"if err := x.begin(); err != nil {\n\t\treturn nil, err\n\t}\n\treturn x.leased(`expires_at <= ?1`, limit, x.now)",
			`var ids []int64
	err := x.s.look(x.turn.ctx, true, func(s session) error {
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
		name: "late-renewal",
		bug:  "a late renewal takes the item away from its new holder",
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
		name:   "answer-before-commit",
		bug:    "a call is answered before its transaction is committed",
		origin: "NATS: acknowledged before fsync",
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
		name:   "no-fsync",
		bug:    "commits are acknowledged before they are on disk",
		origin: "NATS: acknowledged before fsync",
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
		name:   "commit-not-rolled-back",
		bug:    "COMMIT fails, and the transaction stays open",
		origin: "modernc.org/sqlite before 1.46.1",
		patches: []patch{{
			"ledger/sqlite", "writer.tick",
			"\t\tw.exec(\"ROLLBACK\") // refused if SQLite has done it already\n",
			"",
		}, {
			"ledger/sqlite", "writer.begin",
			"\t\t\tw.exec(\"ROLLBACK\") // should an earlier one have failed\n",
			"",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestLostTransaction|TestDiskFull", "transaction within a transaction"}},
	},
	{
		name:   "pragma-ignored",
		bug:    "a setting is misspelt, and SQLite ignores it",
		origin: "clauder 24",
		patches: []patch{{
			"ledger/sqlite", "Store.connect",
			`"synchronous("+synchronous+")"`,
			`"synchronuos("+synchronous+")"`,
		}, {
			"ledger/sqlite", "Store.connect",
			`"foreign_keys(1)"`,
			`"foreignkeys(1)"`,
		}},
		caught: []detector{tests{"ledger/sqlite", "TestSettings", "PRAGMA .* must be"}},
	},
	{
		name: "expiry-is-exclusive",
		bug:  "a lease that expires in this very microsecond is not taken back",
		patches: []patch{{
			"ledger/sqlite", "tx.LoadExpired",
			"AND expires_at <=",
			"AND expires_at <",
		}, {
			"ledger/sqlite", "tx.LoadExpired",
			"x.leased(`expires_at <=",
			"x.leased(`expires_at <",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/ExpireGivesBack", "is leased"}},
	},
	{
		name:   "lease-without-expiry",
		bug:    "the schema allows a lease without an expiry, which never ends",
		origin: "asynq 1144",
		patches: []patch{{
			"schema/sqlite/00001_ledger.sql", "",
			"NULL AND expires_at IS NOT NULL",
			"NULL",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestChecks", "expires_at = NULL"}},
	},
	{
		name: "reopen-ignored",
		bug:  "a new version arrives while the item is worked, and is forgotten when the attempt ends",
		patches: []patch{{
			"ledger/sqlite", "fast",
			"`b.reopen = 0 AND b.cancel",
			"`b.cancel",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/ChangeWhileLeased", "is done, want ready"}},
	},
	{
		name: "attempts-start-again",
		bug:  "attempt numbers begin with 1 again after the earlier attempts were pruned",
		patches: []patch{{
			"ledger/sqlite", "prune",
			"?2, payload",
			"?2 * 0, payload",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/(AttemptNumbersGoOn|PruneKeepsIdentity)", "S2"}},
	},
	{
		name: "busy-handler",
		bug:  "SQLite's busy handler waits for the write lock; it sleeps longer each time, so one process starves",
		patches: []patch{{
			"ledger/sqlite", "Store.settle",
			`busy_timeout = 0"`,
			`busy_timeout = 30000"`,
		}, {
			"ledger/sqlite", "Store.settle",
			`{"busy_timeout", "0"}`,
			`{"busy_timeout", "30000"}`,
		}},
		caught: []detector{tests{"ledger/sqlite", "TestProcessesShare", "less than"}},
	},
	{
		name: "half-an-operation",
		bug:  "an operation fails; the part that it had written is committed together with other operations",
		patches: []patch{{
			"ledger/sqlite", "writer.serve",
			`w.exec("ROLLBACK TO turn") != nil || w.exec("RELEASE`,
			`w.exec("RELEASE`,
		}},
		caught: []detector{tests{"ledger/sqlite", "TestPanic", "gone"}},
	},
	{
		name: "suspect-not-alone",
		bug:  "an item that killed its worker twice is claimed together with other items",
		patches: []patch{{
			"ledger/sqlite", "claim",
			"== 0 || !rec.Work.Alone && !fresh[0].Work.Alone",
			">= 0 || rec.Work.Alone",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/ClaimAlone", "up to the suspect"}},
	},
}
