package main

// inTxn are bugs of what runs transactions of the caller's.
var inTxn = []mutant{
	{
		name: "locks-in-any-order",
		bug:  "entity locks are taken in the order in which the caller names them",
		patches: []patch{{
			"ledger/txn", "transaction.take",
			"\tslices.Sort(keys)\n\tkeys = slices.Compact(keys)\n",
			"",
		}, {
			"ledger/postgres", "lockKeys",
			"\tslices.Sort(numbers)\n",
			"",
		}},
		caught: []detector{tests{"ledger/txn", "TestTransfers/pgx_entity_locks", "tries in vain: 40P01"}},
	},
	{
		name: "repeat-the-inner-call",
		bug:  "after a deadlock, only the call that met it is repeated, not the whole transaction",
		patches: []patch{{
			"ledger/txn", "Runner.join",
			"err = fn(within(ctx, t), t.tx.(T))",
			"if err = fn(within(ctx, t), t.tx.(T)); err != nil && r.db.Transient(err) {\n" +
				"\t\terr = fn(within(ctx, t), t.tx.(T))\n\t}",
		}},
		caught: []detector{tests{"ledger/txn", "TestTries/pgx", "failures|committed|TriesError|aborted"}},
	},
	{
		name: "swallowed-error-commits",
		bug:  "a part of a transaction fails and the caller drops the error; the transaction is committed",
		patches: []patch{{
			"ledger/txn", "Runner.try",
			"(err == nil || r.transient(cause) && !r.transient(err)):",
			"r.transient(cause) && !r.transient(err):",
		}},
		caught: []detector{tests{"ledger/txn", "TestOutcome/sqlite", "committed: "}},
	},
	{
		name: "a-commit-is-safe-to-retry",
		bug:  "a commit has no answer; it is reported as failed because the driver claims that nothing was sent",
		patches: []patch{{
			"ledger/postgres", "fate",
			"errors.As(err,",
			"pgconn.SafeToRetry(err), errors.As(err,",
		}},
		caught: []detector{tests{"ledger/txn", "TestCommitWithoutAnswer", "conn closed"}},
	},
	{
		name: "lock-forgotten",
		bug:  "a repeated transaction does not take again the locks that its previous try had taken",
		patches: []patch{{
			"ledger/txn", "Runner.try",
			"if err := t.take(ctx, *keys); err != nil {\n\t\treturn err\n\t}",
			"t.keys = *keys",
		}},
		caught: []detector{tests{"ledger/txn", "TestLockOnce", "."}},
	},
	{
		name: "waits-for-itself",
		bug:  "a call of the ledger inside a transaction on its own file waits for that transaction, so it waits for ever",
		patches: []patch{{
			"ledger/sqlite", "Store.outside",
			"s.file.open[0])",
			"nil)",
		}},
		caught: []detector{tests{"ledger/txn", "TestLedgerInside/sqlite", "Add: "}},
	},
	{
		name: "any-network-error",
		bug:  "any network error is treated as a lost connection to the database, and the transaction is repeated",
		patches: []patch{{
			"ledger/postgres", "transient.Transient",
			"errors.As(err, new(repeatable))",
			"lost(err)",
		}},
		caught: []detector{tests{"ledger/txn", "TestNotRepeated/pgx", "a connection of the function's own"}},
	},
}
