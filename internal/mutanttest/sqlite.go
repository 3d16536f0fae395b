package main

import "github.com/ledgerd/ledgerd/internal/chaostest"

// inSQLite are bugs of the store on SQLite and of what all stores share.
var inSQLite = []mutant{
	{
		name:   "complete-by-id",
		bug:    "whoever completes an item by its id does, whatever lease it has",
		origin: "Oban, River, goqite, graphile-worker, pg-boss, asynq, backlite",
		patches: []patch{{
			"ledger/sqlite/finish.go", "AND b.lock_id = ?2 AND b.reopen = 0", "AND b.state = 2 AND ?2 IS NOT NULL AND b.reopen = 0",
		}, {
			"ledger/sqlite/finish.go", "WHERE b.lock_id = v.column2 AND", "WHERE b.state = 2 AND",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Pause, []string{"S3", "S5", "linear"}},
			tests{"ledger/sqlite", "TestStore/FinishIsFenced", "lease"},
		},
	},
	{
		name:   "rescue-from-a-snapshot",
		bug:    "expired leases are looked up before the write lock is there, and not looked at again",
		origin: "River 1302",
		patches: []patch{{
			"ledger/sqlite/tx.go",
			`	if err := x.begin(); err != nil {
		return nil, err
	}
	return x.leased(` + "`expires_at <= ?1`" + `, limit, x.now)
`,
			`	var ids []int64
	err := x.s.look(x.turn.ctx, true, func(s session) error {
		return s.query(` + "`SELECT item_id FROM ledger_backlog WHERE state = 2 AND expires_at <= ?1 ORDER BY expires_at, item_id LIMIT ?2`" + `, func(r row) error {
			ids = append(ids, r.int(0))
			return nil
		}, x.s.clock(), limit)
	})
	if err != nil {
		return nil, err
	}
	recs, err := x.Load(ids)
	recs = slices.DeleteFunc(recs, func(r ledger.Record) bool { return r.Work == nil || r.Work.State != ledger.StateLeased })
	return recs, err
`,
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Hog, []string{"S1", "linear"}}},
	},
	{
		name: "renew-revives",
		bug:  "a renewal takes an item back from the lease that has it by now",
		patches: []patch{{
			"ledger/sqlite/finish.go",
			"UPDATE ledger_backlog SET expires_at = ?3 WHERE item_id IN (SELECT value FROM json_each(?1)) AND lock_id = ?2 RETURNING",
			"UPDATE ledger_backlog SET expires_at = ?3, lock_id = ?2 WHERE item_id IN (SELECT value FROM json_each(?1)) AND state = 2 RETURNING",
		}},
		caught: []detector{
			chaos{chaostest.SQLite, chaostest.Pause, []string{"S3", "S11", "linear"}},
			tests{"ledger/sqlite", "TestStore/RenewKeeps", "lease lost"},
		},
	},
	{
		name: "claim-from-a-snapshot",
		bug:  "a claim picks items before it has the write lock and stamps them without looking again",
		patches: []patch{{
			"ledger/sqlite/claim.go",
			"\t\tsome, err = exists(r, `SELECT 1`+ready, g.Kind, index, count)\n",
			"\t\tsome, err = exists(r, `SELECT 1`+ready, g.Kind, index, count)\n\t\tpicked, err = pick(r, g, g.Limit)\n",
		}, {
			"ledger/sqlite/claim.go", "\tsome := false\n", "\tsome := false\n\tvar picked []ledger.Record\n",
		}, {
			"ledger/sqlite/claim.go", "got.Records, err = claim(t, g)", "got.Records, err = claim(t, g, picked)",
		}, {
			"ledger/sqlite/limit.go", "got.Records, err = claim(t, g)", "got.Records, err = claim(t, g, nil)",
		}, {
			"ledger/sqlite/claim.go", "func claim(t *turn, g ledger.Grant) ", "func claim(t *turn, g ledger.Grant, fresh []ledger.Record) ",
		}, {
			"ledger/sqlite/claim.go",
			"\tindex, count := shard(g)\n\tvar fresh []ledger.Record\n\terr := t.query(claimReady, ",
			"\tfresh = fresh[:max(0, min(len(fresh), g.Limit-len(held)))]\n\treturn stamp(t, g, held, fresh, expires)\n}\n\nfunc pick(t session, g ledger.Grant, limit int) ([]ledger.Record, error) {\n\tindex, count := shard(g)\n\tvar fresh []ledger.Record\n\terr := t.query(claimReady, ",
		}, {
			"ledger/sqlite/claim.go",
			"g.Kind, index, count, g.Limit-len(held))\n\tif err != nil && err != errEnough {\n\t\treturn nil, err\n\t}\n",
			"g.Kind, index, count, limit)\n\tif err == errEnough {\n\t\terr = nil\n\t}\n\treturn fresh, err\n}\n\nfunc stamp(t *turn, g ledger.Grant, held, fresh []ledger.Record, expires time.Time) ([]ledger.Record, error) {\n",
		}, {
			"ledger/sqlite/claim.go", "\t_, err = t.exec(`UPDATE ledger_backlog SET state = 2, attempt", "\t_, err := t.exec(`UPDATE ledger_backlog SET state = 2, attempt",
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.Kill, []string{"S1", "S2", "S11", "linear"}}},
	},
	{
		name:   "answer-before-commit",
		bug:    "calls are answered before their transaction is committed",
		origin: "NATS: acknowledged before fsync",
		patches: []patch{{
			"ledger/sqlite/writer.go",
			"\t\tfailpoint.Here(\"sqlite.commit\")\n",
			"\t\tfor _, t := range done {\n\t\t\tt.wake <- nil\n\t\t}\n\t\tdone = nil\n\t\tfailpoint.Here(\"sqlite.commit\")\n",
		}},
		caught: []detector{chaos{chaostest.SQLite, chaostest.DiskFull, []string{"S5", "S11", "linear"}}},
	},
	{
		name:   "no-fsync",
		bug:    "commits are acknowledged before they are on disk",
		origin: "NATS: acknowledged before fsync",
		patches: []patch{{
			"ledger/sqlite/open.go", `synchronous := "FULL"`, `synchronous := "OFF"`,
		}, {
			"ledger/sqlite/open.go", `{"FULL": "2", `, `{"OFF": "0", `,
		}},
		caught: []detector{tests{"ledger/sqlite", "TestDurableBeforeAnswer", "answered before the disk had it"}},
	},
	{
		name:   "commit-not-rolled-back",
		bug:    "a transaction whose COMMIT failed is left open",
		origin: "modernc.org/sqlite before 1.46.1",
		patches: []patch{{
			"ledger/sqlite/writer.go", "\t\tw.exec(\"ROLLBACK\") // refused if SQLite has done it already\n", "",
		}, {
			"ledger/sqlite/writer.go", "\t\t\tw.exec(\"ROLLBACK\") // should an earlier one have failed\n", "",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestLostTransaction|TestDiskFull", "transaction within a transaction"}},
	},
	{
		name:   "rows-leak",
		bug:    "the rows of a query that is given up are not closed",
		origin: "modernc.org/sqlite before 1.40.1",
		patches: []patch{{
			"ledger/sqlite/conn.go",
			"\tdefer func() {\n\t\tif e := rows.Close(); err == nil {\n\t\t\terr = e\n\t\t}\n\t}()\n",
			"",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/ClaimAlone", "API misuse"}},
	},
	{
		name:   "pragma-ignored",
		bug:    "a setting is misspelt, and SQLite ignores it",
		origin: "clauder 24",
		patches: []patch{{
			"ledger/sqlite/open.go", `"synchronous("+synchronous+")"`, `"synchronuos("+synchronous+")"`,
		}, {
			"ledger/sqlite/open.go", `"foreign_keys(1)"`, `"foreignkeys(1)"`,
		}},
		caught: []detector{tests{"ledger/sqlite", "TestSettings", "PRAGMA .* must be"}},
	},
	{
		name: "expiry-is-exclusive",
		bug:  "a lease that runs out this very microsecond is not taken back",
		patches: []patch{{
			"ledger/sqlite/tx.go", "WHERE state = 2 AND expires_at <= ?1`, x.s.clock())", "WHERE state = 2 AND expires_at < ?1`, x.s.clock())",
		}, {
			"ledger/sqlite/tx.go", "x.leased(`expires_at <= ?1`", "x.leased(`expires_at < ?1`",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/ExpireGivesBack", "is leased"}},
	},
	{
		name:   "lease-without-expiry",
		bug:    "the schema lets a lease have no expiry, so that it never runs out",
		origin: "asynq 1144",
		patches: []patch{{
			"schema/sqlite/00001_ledger.sql", " AND leased_at IS NOT NULL AND expires_at IS NOT NULL\n", " AND leased_at IS NOT NULL\n",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestChecks", "expires_at = NULL"}},
	},
	{
		name: "reopen-ignored",
		bug:  "a version that arrived while the item was worked is forgotten when that ends",
		patches: []patch{{
			"ledger/sqlite/finish.go", "AND b.lock_id = ?2 AND b.reopen = 0 AND", "AND b.lock_id = ?2 AND",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/ChangeWhileLeased", "is done, want ready"}},
	},
	{
		name: "attempts-start-again",
		bug:  "attempts are counted from 1 again once those before were pruned",
		patches: []patch{{
			"ledger/sqlite/prune.go", "SET base_attempt = ?2, payload", "SET base_attempt = ?2 * 0, payload",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/(AttemptNumbersGoOn|PruneKeepsIdentity)", "S2"}},
	},
	{
		name: "busy-handler",
		bug:  "the write lock is waited for by SQLite's busy handler, which sleeps ever longer and hears nobody",
		patches: []patch{{
			"ledger/sqlite/open.go", `"PRAGMA busy_timeout = 0"`, `"PRAGMA busy_timeout = 30000"`,
		}, {
			"ledger/sqlite/open.go", `{"busy_timeout", "0"}`, `{"busy_timeout", "30000"}`,
		}},
		caught: []detector{tests{"ledger/sqlite", "TestProcessesShare", "less than"}},
	},
	{
		name: "half-a-turn",
		bug:  "what an operation had written before it failed is committed with those of others",
		patches: []patch{{
			"ledger/sqlite/writer.go", `if w.exec("ROLLBACK TO turn") != nil || w.exec("RELEASE turn") != nil {`, `if w.exec("RELEASE turn") != nil {`,
		}},
		caught: []detector{tests{"ledger/sqlite", "TestPanic", "gone"}},
	},
	{
		name: "suspect-beside-others",
		bug:  "an item that killed its worker before is claimed together with others",
		patches: []patch{{
			"ledger/sqlite/claim.go", "len(fresh) == 0 || !rec.Work.Alone && !fresh[0].Work.Alone", "len(fresh) >= 0 || rec.Work.Alone",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestStore/ClaimAlone", "up to the suspect"}},
	},
	{
		name: "no-mercy",
		bug:  "who had to wait for the write lock takes the leases of those who had to wait as well",
		patches: []patch{{
			"ledger/sqlite/writer.go", "return int64(time.Since(birth)) < w.spare.Load()", "return false",
		}},
		caught: []detector{tests{"ledger/sqlite", "TestMercy", "expired right after"}},
	},
}
