package answer

import (
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger/locks"
)

// Lock is a held lock.
type Lock struct {
	Name   string      `json:"name"`
	Holder string      `json:"holder"`
	Fence  int64       `json:"fence"`
	Since  report.Time `json:"since"`
	Until  report.Time `json:"until"`
}

// NewLock makes one.
func NewLock(h locks.HeldError) Lock {
	return Lock{h.Name, h.Holder, h.Fence, report.Time(h.Since), report.Time(h.Until)}
}
