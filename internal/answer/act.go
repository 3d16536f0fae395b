package answer

import (
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
)

// ActRequest is an act on all items that match a filter.
type ActRequest struct {
	// Act prune removes what has ended, identity included.
	Act    string   `json:"act" oneof:"retry|reopen|cancel|release|decide|prune"`
	Where  string   `json:"where"`
	DryRun bool     `json:"dry_run,omitempty"` // count only
	Limit  int64    `json:"limit,omitempty"`   // change at most so many, those with the lowest ids; 0: all
	Hold   *float64 `json:"hold_s,omitempty"`  // for how long it can be undone before it begins; 10 unless it is given
	Reason string   `json:"reason,omitempty"`  // for the journal; of cancel and decide also for the items
	// Outcome and Code are of decide.
	Outcome string `json:"outcome,omitempty" oneof:"done|skipped|cancelled|failed"`
	Code    string `json:"code,omitempty"`
	Place   *int16 `json:"priority,omitempty"` // of retry and reopen: the priority that the items get
	// Due, of retry, puts the items off until then, ready ones as well; a time that has come takes them back.
	Due time.Time `json:"due,omitzero"`
}

// BulkAct is the state of an act on all items that match.
type BulkAct struct {
	ID    string `json:"id"`
	Act   string `json:"act" oneof:"retry|reopen|cancel|release|decide|prune"`
	Where string `json:"where"`
	By    string `json:"by"`
	// State is dry (it was only counted), held (it can be undone), waiting (others come first), running, stopping, done,
	// undone (nothing was changed), stopped (the rest was left), or failed.
	State   string      `json:"state" oneof:"dry|held|waiting|running|stopping|done|undone|stopped|failed"`
	Matched int64       `json:"matched"` // items that match and that it may change, when it was asked for
	Whole   bool        `json:"whole"`   // false: there are more, since counting ended in time
	Limit   int64       `json:"limit"`   // it changes at most so many; 0: all
	Changed int64       `json:"changed"` // exactly
	Asked   report.Time `json:"asked_at"`
	Begins  report.Time `json:"begins_at"`
	Ended   report.Time `json:"ended_at"`
	Error   string      `json:"error"`
}
