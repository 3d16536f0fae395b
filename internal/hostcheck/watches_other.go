//go:build !linux

package hostcheck

import "github.com/ledgerd/ledgerd/ledger/finding"

// watches: elsewhere the limit is that of open files.
func watches() []finding.Finding { return nil }
