package main

// inTxn are bugs of what runs transactions of the caller's.
var inTxn = []mutant{
	{
		name: "locks-in-any-order",
		bug:  "the locks of entities are taken in the order in which the caller names them",
		patches: []patch{
			{"ledger/txn/lock.go", "\tslices.Sort(keys)\n\tkeys = slices.Compact(keys)\n", ""},
			{"ledger/postgres/txn.go", "\tslices.Sort(numbers)\n", ""},
		},
		caught: []detector{tests{"ledger/txn", "TestTransfers/pgx_entity_locks", "tries in vain: 40P01"}},
	},
	{
		name: "repeat-the-inner-call",
		bug:  "after a deadlock the call in which it came up is repeated instead of the whole transaction",
		patches: []patch{{
			"ledger/txn/run.go",
			"\terr = fn(within(ctx, t), t.tx.(T))\n",
			"\tif err = fn(within(ctx, t), t.tx.(T)); err != nil && r.db.Transient(err) {\n\t\terr = fn(within(ctx, t), t.tx.(T))\n\t}\n",
		}},
		caught: []detector{tests{"ledger/txn", "TestTries/pgx", "failures|committed|TriesError|aborted"}},
	},
	{
		name: "swallowed-means-well",
		bug:  "a transaction is committed although a part of it has failed, if nobody passes the error on",
		patches: []patch{{
			"ledger/txn/run.go", "case cause != nil && (err == nil || r.transient(cause) && !r.transient(err)):", "case cause != nil && r.transient(cause) && !r.transient(err):",
		}},
		caught: []detector{tests{"ledger/txn", "TestOutcome/sqlite", "committed: "}},
	},
	{
		name: "a-commit-is-safe-to-retry",
		bug:  "a commit without an answer is said to have failed, because the driver says that it was not sent",
		patches: []patch{{
			"ledger/postgres/txn.go", "case err == nil, errors.As(err, &answer) && !lost(err),", "case err == nil, pgconn.SafeToRetry(err), errors.As(err, &answer) && !lost(err),",
		}},
		caught: []detector{tests{"ledger/txn", "TestCommitWithoutAnswer", "conn closed"}},
	},
	{
		name: "lock-forgotten",
		bug:  "a repeated transaction believes that it has the locks of the try before",
		patches: []patch{{
			"ledger/txn/run.go", "\tif err := t.take(ctx, *keys); err != nil {\n\t\treturn err\n\t}\n", "\tt.keys = *keys\n",
		}},
		caught: []detector{tests{"ledger/txn", "TestLockOnce", "."}},
	},
	{
		name: "waits-for-itself",
		bug:  "a call of the ledger inside of a transaction on its file waits for the end of that transaction",
		patches: []patch{{
			"ledger/sqlite/txn.go", "if !within(ctx, s.file.info) {", "if !within(ctx, nil) {",
		}},
		caught: []detector{tests{"ledger/txn", "TestLedgerInside/sqlite", "Add: "}},
	},
	{
		name: "any-network-error",
		bug:  "an error of any network is taken for the loss of the connection to the database, and repeated",
		patches: []patch{{
			"ledger/postgres/txn.go", "return rolledBack(err) || errors.As(err, new(repeatable))", "return rolledBack(err) || lost(err)",
		}},
		caught: []detector{tests{"ledger/txn", "TestNotRepeated/pgx", "a connection of the function's own"}},
	},
}
