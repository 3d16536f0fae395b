// Package finding has the findings of a check of a database, a machine or a plugin, for operators.
package finding

import (
	"github.com/ledgerd/ledgerd/ledger/act"
)

// Level describes how bad a Finding is.
type Level string

// Levels, from fine to bad.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // works, and may not for long, or slower than it could
	LevelProblem Level = "problem" // does not work, or something may be lost
)

// Finding is what a look at one thing found: at a database, a machine, a plugin.
type Finding struct {
	Check string // what was looked at, in one word: "journal"
	Level Level
	What  string  // how it is
	Why   string  // why that matters; "" if it is fine
	Fix   string  // what to do; "" if it is fine
	Act   act.Act // that does it; its name is empty where there is none
}

// Fine is a finding that nothing is wrong.
func Fine(check, what string) Finding {
	return Finding{Check: check, Level: LevelOK, What: what}
}

// Warning is a finding of that level.
func Warning(check, what, why, fix string) Finding {
	return Finding{Check: check, Level: LevelWarning, What: what, Why: why, Fix: fix}
}

// Problem is a finding of that level.
func Problem(check, what, why, fix string) Finding {
	return Finding{Check: check, Level: LevelProblem, What: what, Why: why, Fix: fix}
}

// By is the finding with the act of its fix.
func (f Finding) By(name act.Name) Finding {
	f.Act = act.Act{Name: name}
	return f
}
