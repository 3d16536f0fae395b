package answer

import (
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// Lease is an attempt that runs or has ended.
type Lease struct {
	Item    int64          `json:"item"`
	Kind    string         `json:"kind"`
	Scope   string         `json:"scope"`
	Key     string         `json:"key"`
	Attempt int64          `json:"attempt"`
	Round   string         `json:"round"`
	Agent   string         `json:"agent"`
	Leased  report.Time    `json:"leased_at"` // null: a person decided, without a lease
	Ended   report.Time    `json:"ended_at"`  // null: it runs
	Expires report.Time    `json:"expires"`   // null: it has ended
	Outcome ledger.Outcome `json:"outcome"`   // "": it runs
	Code    string         `json:"code"`
}

// NewLease makes one of an item that is leased.
func NewLease(it ledger.Item) Lease {
	return Lease{Item: it.ID, Kind: it.Kind, Scope: it.Scope, Key: it.Key, Attempt: it.Attempt, Round: it.Round,
		Agent: it.Agent, Leased: report.Time(it.LeasedAt), Expires: report.Time(it.ExpiresAt)}
}

// EndedLease makes one of an attempt that has ended.
func EndedLease(e ledger.Ended) Lease {
	return Lease{Item: e.ItemID, Kind: e.Kind, Scope: e.Scope, Key: e.Key, Attempt: e.Attempt.Attempt, Round: e.Round,
		Agent: e.Agent, Leased: report.Time(e.LeasedAt), Ended: report.Time(e.FinishedAt), Outcome: e.Outcome, Code: e.Code}
}
