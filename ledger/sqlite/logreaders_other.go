//go:build !linux

package sqlite

import (
	"os"

	"github.com/ledgerd/ledgerd/ledger"
)

// examineLog looks at the size of the write-ahead log. Here it cannot tell how much of it is in the
// file already, nor who reads it.
func examineLog(f *file) ledger.Finding {
	info, err := os.Stat(f.path + "-wal")
	if err != nil {
		return ledger.Fine("wal", "nobody has the ledger open")
	}
	return examineWaiting(uint64(max(0, info.Size()-logged)), nil) // of which so much is kept for use
}
