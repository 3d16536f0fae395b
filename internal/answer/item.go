// Package answer has the types with which programs read a ledger. `-o json` prints them and the HTTP API returns them,
// so a field has one name and one meaning everywhere.
//
// Names are in snake_case, times RFC 3339 in UTC, durations numbers of seconds unless their name has another unit.
// Fields may be added, none is renamed. A list that is empty is [], a value that is not known is null.
package answer

import (
	"strings"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/tracing"
	"github.com/ledgerd/ledgerd/sdk/redact"
)

// Item is an item as lists show it.
type Item struct {
	ID         int64             `json:"id"`
	Kind       string            `json:"kind"`
	Scope      string            `json:"scope"`
	Key        string            `json:"key"`
	State      ledger.State      `json:"state"`
	Round      string            `json:"round"`
	RoundState ledger.RoundState `json:"round_state"`
	Attempt    int64             `json:"attempt"`
	Failures   int               `json:"failures"`
	Priority   int16             `json:"priority"`
	Due        report.Time       `json:"due"`
	Agent      string            `json:"agent"`
	Leased     report.Time       `json:"leased_at"`
	Expires    report.Time       `json:"expires"`
	Outcome    ledger.Outcome    `json:"outcome"`
	Code       string            `json:"code"`
	Cause      string            `json:"cause"`
	Error      string            `json:"error"`
	Worker     string            `json:"worker"`
	Plugin     string            `json:"plugin"`
	Added      report.Time       `json:"added_at"`
	Source     string            `json:"source"`
	ShardKey   string            `json:"shard_key"` // "": the key
	TraceID    string            `json:"trace_id"`
	Failing    report.Time       `json:"failing_since"`
	Recovered  report.Time       `json:"recovered_at"`
	Started    report.Time       `json:"started_at"`
	Ended      report.Time       `json:"ended_at"`
	Took       report.Duration   `json:"took_s"`
	Payload    report.Bytes      `json:"payload"`
	Output     report.Bytes      `json:"output"`
}

// NewItem makes one.
func NewItem(it ledger.Item) Item {
	plugin, _, _ := strings.Cut(it.Worker, "+") // without the digest of its settings
	row := Item{ID: it.ID, Kind: it.Kind, Scope: it.Scope, Key: it.Key, State: it.State, Round: it.Round,
		RoundState: it.RoundState, Attempt: it.Attempt, Failures: it.Failures, Priority: it.Priority,
		Due: report.Time(it.Due), Agent: it.Agent, Leased: report.Time(it.LeasedAt), Expires: report.Time(it.ExpiresAt),
		Outcome: it.Outcome, Code: it.Code, Cause: it.Cause, Error: it.Error, Worker: it.EndedBy, Plugin: plugin,
		Added: report.Time(it.CreatedAt), Source: it.Source, ShardKey: it.ShardKey, TraceID: tracing.ID(it.Trace),
		Failing: report.Time(it.FailingSince), Recovered: report.Time(it.RecoveredAt),
		Started: report.Time(it.StartedAt), Ended: report.Time(it.EndedAt),
		Payload: it.Payload, Output: it.Output}
	if !it.StartedAt.IsZero() {
		row.Took = report.Duration(it.EndedAt.Sub(it.StartedAt))
	}
	return row
}

// ItemDetail is an item with all its fields.
type ItemDetail struct {
	Item
	Fingerprint string       `json:"fingerprint"`
	Every       string       `json:"every"`
	Zone        string       `json:"zone"`
	Crashes     int          `json:"crashes"`
	Losses      int          `json:"losses"`
	Slot        int          `json:"slot"`
	Pruned      bool         `json:"pruned"` // the payload was removed
	Payload     report.Bytes `json:"payload"`
}

// NewItemDetail makes one, without passwords in URLs of the payload.
func NewItemDetail(it ledger.Item) ItemDetail {
	return ItemDetail{Item: NewItem(it), Fingerprint: it.Fingerprint, Every: it.Every, Zone: it.Zone, Crashes: it.Crashes,
		Losses: it.Losses, Slot: it.Slot, Pruned: it.Pruned, Payload: []byte(redact.URLs(string(it.Payload)))}
}

// Attempt is how one attempt of an item ended.
type Attempt struct {
	Attempt int64  `json:"attempt"`
	Round   string `json:"round"`
	Agent   string `json:"agent"`
	Plugin  string `json:"plugin"`
	// Due is when the item was due; null if it is not known. Started is when it was claimed, Begun when its start was
	// marked after that; null if it was not marked. Renewals is how often its lease was renewed.
	Due      report.Time    `json:"due_at"`
	Started  report.Time    `json:"started_at"`
	Begun    report.Time    `json:"begun_at"`
	Ended    report.Time    `json:"ended_at"`
	Renewals int            `json:"renewals"`
	Outcome  ledger.Outcome `json:"outcome"`
	Code     string         `json:"code"`
	Cause    string         `json:"cause"`
	Error    string         `json:"error"`
	Output   report.Bytes   `json:"output"`
	Log      string         `json:"log"`
}

// NewAttempt makes one.
func NewAttempt(at ledger.Attempt) Attempt {
	return Attempt{at.Attempt, at.Round, at.Agent, at.Worker, report.Time(at.DueAt), report.Time(at.LeasedAt),
		report.Time(at.StartedAt), report.Time(at.FinishedAt), at.Renewals, at.Outcome,
		at.Code, at.Cause, at.Error, at.Output, at.Log}
}

// Why is the reason why an item is in its state.
type Why struct {
	ID    int64        `json:"id"`
	State ledger.State `json:"state"`
	Code  string       `json:"code"`
	Text  string       `json:"text"`
	Since report.Time  `json:"since"`
	Until report.Time  `json:"until"`
	Acts  []act.Act    `json:"acts"` // that would help, the best first
}

// NewWhy makes one.
func NewWhy(id int64, w ledger.Reason) Why {
	return Why{id, w.State, w.Code, w.Text, report.Time(w.Since), report.Time(w.Until), report.OrEmpty(w.Acts)}
}

// Journal is one act of an operator or a program.
type Journal struct {
	ID      int64       `json:"id"`
	At      report.Time `json:"at"`
	Actor   string      `json:"actor"`
	Action  string      `json:"action"`
	Subject string      `json:"subject"`
	Detail  string      `json:"detail"`
	Changed int64       `json:"changed"`
	IDs     string      `json:"ids"`
	Keys    []string    `json:"keys"`
}

// NewJournal makes one.
func NewJournal(e ledger.JournalEntry) Journal {
	return Journal{e.ID, report.Time(e.At), e.Actor, e.Action, e.Subject, e.Detail, e.Changed, e.IDs,
		report.OrEmpty(e.Keys)}
}
