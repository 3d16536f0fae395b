package hostcheck

import "github.com/ledgerd/ledgerd/ledger/finding"

func files() finding.Finding {
	return finding.Fine("files", "Windows limits no open files of a process")
}
