package main

// inGate are bugs of items that need resources.
var inGate = []mutant{
	{
		name: "resource-twice",
		bug:  "two items of one claim get the same resource",
		patches: []patch{{
			"ledger/scheduler", "picking.look",
			"p.taken[name] || slices.Contains(c.Taken,",
			"slices.Contains(c.Taken,",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/ResourcesAllOrNone", "what goes together"}},
	},
	{
		name: "reserved-given-away",
		bug:  "resources are reserved for the item that has waited longest for several of them; other items get them all the same",
		patches: []patch{{
			"ledger/scheduler", "Claim.Pick",
			"inForce {",
			"inForce && c.Limit == 0 {",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/ReserverIsServed", "is ready, want leased"}},
	},
	{
		name: "resource-kept",
		bug:  "a failed attempt keeps the resources of its item",
		patches: []patch{{
			"ledger/postgres", "tx.applyAll",
			"{len(freed),",
			"{min(0, len(freed)),",
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/ResourcesAreFreed", "held by an item that is not leased"}},
	},
}
