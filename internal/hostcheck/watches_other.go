//go:build !linux

package hostcheck

import "github.com/ledgerd/ledgerd/ledger"

// watches: elsewhere the limit is that of open files.
func watches() []ledger.Finding { return nil }
