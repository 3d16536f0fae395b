// Package hostcheck looks at what a worker needs of the machine that it runs on: how many files it may
// open, how many folders it may watch, and the port of a daemon. It only reads, and what it takes to try something it
// gives back at once.
package hostcheck

import "github.com/ledgerd/ledgerd/ledger/finding"

// Examine looks at the machine.
func Examine() []finding.Finding { return append([]finding.Finding{files()}, watches()...) }
