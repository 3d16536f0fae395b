package answer

import (
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
)

// Ended is an attempt that has ended.
type Ended struct {
	Type    string         `json:"type"`
	Ended   report.Time    `json:"ended_at"`
	ID      int64          `json:"id"`
	Kind    string         `json:"kind"`
	Scope   string         `json:"scope"`
	Key     string         `json:"key"`
	Outcome ledger.Outcome `json:"outcome"`
	Attempt int64          `json:"attempt"`
	Round   string         `json:"round"`
	Agent   string         `json:"agent"`
	Plugin  string         `json:"plugin"`
	Code    string         `json:"code"`
	Error   string         `json:"error"`
	MS      *int64         `json:"ms"`
}

// NewEnded makes one.
func NewEnded(e ledger.Ended) Ended {
	row := Ended{"item", report.Time(e.FinishedAt), e.ItemID, e.Kind, e.Scope, e.Key, e.Outcome, e.Attempt.Attempt,
		e.Round, e.Agent, e.Worker, e.Code, e.Error, nil}
	if !e.LeasedAt.IsZero() {
		ms := e.FinishedAt.Sub(e.LeasedAt).Milliseconds()
		row.MS = &ms
	}
	return row
}
