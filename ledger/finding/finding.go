// Package finding has the findings of a check of a database, a machine or a plugin, for operators.
package finding

import "github.com/ledgerd/ledgerd/ledger/act"

// Level describes how bad a Finding is.
type Level string

// Levels, from fine to bad.
const (
	LevelOK      Level = "ok"
	LevelWarning Level = "warning" // works, and may not for long, or slower than it could
	LevelProblem Level = "problem" // does not work, or something may be lost
)

// Finding is the result of one check.
type Finding struct {
	Check string // the checked thing in one word: "journal"
	Level Level
	What  string  // the state of the checked thing
	Why   string  // the reason why the state matters; "" with LevelOK
	Fix   string  // what to do; "" with LevelOK
	Act   act.Act // the act that does it; its name is empty if there is none
}

// Fine returns a finding of LevelOK.
func Fine(check, what string) Finding {
	return Finding{Check: check, Level: LevelOK, What: what}
}

// Warning returns a finding of LevelWarning.
func Warning(check, what, why, fix string) Finding {
	return Finding{Check: check, Level: LevelWarning, What: what, Why: why, Fix: fix}
}

// Problem returns a finding of LevelProblem.
func Problem(check, what, why, fix string) Finding {
	return Finding{Check: check, Level: LevelProblem, What: what, Why: why, Fix: fix}
}

// By returns the finding with the act that does its fix.
func (f Finding) By(name act.Name) Finding {
	f.Act = act.Act{Name: name}
	return f
}
