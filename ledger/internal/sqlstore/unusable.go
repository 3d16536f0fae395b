package sqlstore

import (
	"errors"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/finding"
)

// Unusable returns the finding for an error.
func Unusable(check string, err error) finding.Finding {
	f := finding.Problem(check, err.Error(), "no program can use the ledger", ledger.Hint(err))
	if known, ok := errors.AsType[*ledger.Error](err); ok {
		f.Act = known.Act
	}
	return f
}
