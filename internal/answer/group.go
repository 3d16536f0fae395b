package answer

import (
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// Group counts the items with one value of a field; a recurring item counts by its current round.
type Group struct {
	Value     report.Bytes `json:"value"` // null: items without the field
	Done      int64        `json:"done"`
	Failed    int64        `json:"failed"`
	Doubt     int64        `json:"doubt"`
	Left      int64        `json:"left"` // open
	Cancelled int64        `json:"cancelled"`
	PutOff    int64        `json:"put_off"` // open, and put off
	// NewlyFailed is how many of Failed did not fail in the round before, Recovered how many of Done did. Items without
	// a round before are in neither.
	NewlyFailed int64 `json:"newly_failed"`
	Recovered   int64 `json:"recovered"`
}

// NewGroup makes one.
func NewGroup(g stats.Group) Group {
	return Group{report.Bytes(g.Value), g.Done, g.Failed, g.Doubt, g.Left, g.Cancelled, g.PutOff,
		g.NewlyFailed, g.Recovered}
}

// Groups are items counted by the values of a field.
type Groups struct {
	Items  []Group `json:"items"`
	Groups int64   `json:"groups"` // how many there are, also those that are not among Items
	Whole  bool    `json:"whole"`  // false: only the newest items are counted, since counting ended at its bound
}
