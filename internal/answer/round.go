package answer

import (
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// Round is a round of a recurring item that an attempt closed.
type Round struct {
	Item    int64             `json:"item"`
	Kind    string            `json:"kind"`
	Scope   string            `json:"scope"`
	Key     string            `json:"key"`
	Every   string            `json:"every"`
	Zone    string            `json:"zone"`
	Round   string            `json:"round"`
	Period  report.Time       `json:"period"` // when the round began
	State   ledger.RoundState `json:"state"`  // done or failed
	Outcome ledger.Outcome    `json:"outcome"`
	Attempt int64             `json:"attempt"`
	Ended   report.Time       `json:"ended_at"`
	Code    string            `json:"code"`
}

// NewRound makes a Round from the attempt that closed it.
func NewRound(e ledger.Ended) Round {
	return Round{Item: e.ItemID, Kind: e.Kind, Scope: e.Scope, Key: e.Key, Every: e.Every, Zone: e.Zone, Round: e.Round,
		Period: report.Time(e.Period), State: e.ClosedAs(), Outcome: e.Outcome, Attempt: e.Attempt.Attempt,
		Ended: report.Time(e.FinishedAt), Code: e.Code}
}
