package answer

import (
	"encoding/json"
	"reflect"
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
	Due Moment `json:"due,omitzero"`
}

// Moment is a time in a request. Package json adds the name of the field to the error of one that cannot be read.
type Moment struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (m *Moment) UnmarshalJSON(text []byte) error {
	if m.Time.UnmarshalJSON(text) != nil {
		return &json.UnmarshalTypeError{Value: "other than a time such as 2026-11-20T10:00:00Z",
			Type: reflect.TypeFor[time.Time]()}
	}
	return nil
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
