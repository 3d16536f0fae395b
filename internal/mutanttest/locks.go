package main

// inLocks are bugs of named locks.
var inLocks = []mutant{
	{
		name: "released-by-name",
		bug:  "whoever releases a lock by its name frees it, also when another holds it by now",
		patches: []patch{{
			"ledger/locks/rules.go", "if err != nil || !there || rec.Token != l.token {", "if err != nil || !there {",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/Locks(Exclude|Expire)", "lock lost|got error"}},
	},
	{
		name: "expired-still-mine",
		bug:  "a holder whose time is over may write as long as nobody else has come",
		patches: []patch{{
			"ledger/locks/rules.go", "!(there && rec.Token == l.token && inForce(rec, now))", "!(there && rec.Token == l.token)",
		}},
		caught: []detector{
			tests{"ledger/memory", "TestStore/LocksExpire", "want lock lost"},
		},
	},
	{
		name: "commit-without-check",
		bug:  "a transaction under a lock commits without a look at the lock",
		patches: []patch{{
			"ledger/locks/intx.go", "return m.Check(ctx, r.Conn(tx), l)", "return nil",
		}},
		caught: []detector{tests{"ledger/locks", "TestInTxLost|TestFrozenHolderCannotCommit", "1 effects"}},
	},
	{
		name: "check-without-lock",
		bug:  "a check does not keep others from taking the lock before the commit",
		patches: []patch{{
			"ledger/postgres/lock.go", "WHERE name = $1 FOR UPDATE`", "WHERE name = $1`",
		}},
		caught: []detector{tests{"ledger/locks", "TestNobodyBetweenCheckAndCommit", "somebody else"}},
	},
	{
		name: "fence-drawn-early",
		bug:  "a fence is drawn before nobody else can take the lock, and is smaller than that of who did",
		patches: []patch{{
			"ledger/postgres/lock.go", "\t\tif err == nil && !inserted {\n", "\t\tif err == nil && inserted {\n\t\t\terr = t.query(`SELECT fence FROM {{S}}.ledger_locks WHERE name = $1`, []any{l.Name}, func(scan scanner) error { return scan(&fence) })\n\t\t\treturn fence, err\n\t\t}\n\t\tif err == nil && !inserted {\n",
		}},
		caught: []detector{tests{"ledger/postgres", "TestFenceOfASlowHolder", "after"}},
	},
	{
		name: "lock-trusted-for-ever",
		bug:  "the context of a holder goes on after the time of a lock that could not be renewed",
		patches: []patch{{
			"ledger/locks/keeper.go", "alarm.Reset(time.Until(trusted()))", "alarm.Reset(1000 * time.Hour)",
		}, {
			"ledger/locks/keeper.go", "\t\tif !now.Before(trusted()) {\n\t\t\tk.lose()\n\t\t\treturn\n\t\t}\n", "",
		}},
		caught: []detector{tests{"ledger/locks", "TestLostWhenNotRenewed", "before its end"}},
	},
	{
		name: "token-per-try",
		bug:  "a call whose outcome is not known leaves a lock behind that nobody knows of",
		patches: []patch{{
			"ledger/locks/locks.go", "_ = m.store.Update(forgetting, nil, func(tx ledger.Tx) error { return forget(tx, want) })", "_ = forgetting",
		}, {
			"ledger/locks/rules.go", "case there && l.Token == want.Token:", "case there && l.Token == want.Token && false:",
		}},
		caught: []detector{tests{"ledger/locks", "TestUnknownOutcomes", "times"}},
	},
}
