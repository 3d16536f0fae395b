package hostcheck

import (
	"golang.org/x/sys/windows"

	"github.com/ledgerd/ledgerd/ledger/finding"
)

// ErrInUse is the error of an address that another program listens on.
const ErrInUse = windows.WSAEADDRINUSE

func files() finding.Finding {
	return finding.Fine("files", "Windows limits no open files of a process")
}
