package main

// inLocks are bugs of named locks.
var inLocks = []mutant{
	{
		name: "released-by-name",
		bug:  "a lock can be released by its name alone, even if another holder has it by now",
		patches: []patch{{
			"ledger/locks", "release",
			"|| rec.Token != l.token {",
			"{",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/Locks(Exclude|Expire)", "lock lost|got error"}},
	},
	{
		name: "expired-lock-writes",
		bug:  "a holder of an expired lock may write until another holder takes the lock",
		patches: []patch{{
			"ledger/locks", "mine",
			"l.token && inForce(rec, now))",
			"l.token)",
		}},
		caught: []detector{
			tests{"ledger/memory", "TestStore/LocksExpire", "want lock lost"},
		},
	},
	{
		name: "commit-without-check",
		bug:  "a transaction under a lock commits without checking that the lock is still held",
		patches: []patch{{
			"ledger/locks", "InTx",
			"m.Check(ctx, r.Conn(tx), l)",
			"nil",
		}},
		caught: []detector{tests{"ledger/locks", "TestInTxLost|TestFrozenHolderCannotCommit", "1 effects"}},
	},
	{
		name: "check-without-lock",
		bug:  "another process can take the lock between the check and the commit",
		patches: []patch{{
			"ledger/internal/sqlstore", "Tx.LoadLock",
			"$1 FOR UPDATE`",
			"$1`",
		}},
		caught: []detector{tests{"ledger/locks", "TestLockHoldsUntilCommit", "somebody else"}},
	},
	{
		name: "fence-drawn-early",
		bug:  "a fencing number is drawn before other processes are kept from taking the lock, so it can be smaller than the number of an earlier holder",
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
		name: "lock-trusted-for-ever",
		bug:  "a lock could not be renewed and expires, but the context of its holder does not end",
		patches: []patch{{
			"ledger/locks", "keeper.run",
			"alarm.Reset(time.Until(trusted()))",
			"alarm.Reset(1000 * time.Hour)",
		}, {
			"ledger/locks", "keeper.run",
			`		if !now.Before(trusted()) {
			k.lose()
			return
		}
`,
			"",
		}},
		caught: []detector{tests{"ledger/locks", "TestLostWhenNotRenewed", "before its end"}},
	},
	{
		name: "token-per-try",
		bug:  "a call gets no answer, tries again with another token, and leaves a lock that no process releases",
		patches: []patch{{
			"ledger/locks", "Manager.take",
			"m.store.Update(forgetting, nil, func(tx ledger.Tx) error { return forget(tx, want) })",
			"forgetting",
		}, {
			"ledger/locks", "take",
			"want.Token:",
			"want.Token && false:",
		}},
		caught: []detector{tests{"ledger/locks", "TestUnknownOutcomes", "times"}},
	},
}
