// Package hostcheck examines what a worker needs of the machine that it runs on: how many files it may open, how many
// folders it may watch, and the port of a daemon. It changes nothing.
package hostcheck

import "github.com/ledgerd/ledgerd/ledger/finding"

// Examine returns the findings about open files and watched folders.
func Examine() []finding.Finding { return append([]finding.Finding{files()}, watches()...) }
