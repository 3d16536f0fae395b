package main

// inGate are bugs of items that need resources.
var inGate = []mutant{
	{
		name: "resource-twice",
		bug:  "two items of one claim get the same resource",
		patches: []patch{{
			"ledger/gate.go", "if p.taken[name] || slices.Contains(c.Taken, name) {", "if slices.Contains(c.Taken, name) {",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/ResourcesAllOrNone", "what goes together"}},
	},
	{
		name: "reserver-overtaken",
		bug:  "what is kept free for the item that needs several resources and waited longest is given to others",
		patches: []patch{{
			"ledger/gate.go", "\tif inForce {\n\t\tfor _, name", "\tif inForce && limit == 0 {\n\t\tfor _, name",
		}},
		caught: []detector{tests{"ledger/memory", "TestStore/ReserverIsServed", "is ready, want leased"}},
	},
	{
		name: "resource-kept",
		bug:  "an attempt that fails goes on holding its item's resources",
		patches: []patch{{
			"ledger/postgres/apply.go", "{len(freed), `DELETE", "{min(0, len(freed)), `DELETE",
		}},
		caught: []detector{tests{"ledger/postgres", "TestStore/ResourcesAreFreed", "held though nobody has it leased"}},
	},
}
