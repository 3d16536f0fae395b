package answer

import (
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// Addition is an item that is to be added.
type Addition struct {
	Kind        string       `json:"kind"`
	Scope       string       `json:"scope,omitempty"`
	Key         string       `json:"key"`
	Fingerprint string       `json:"fingerprint,omitempty"`
	Payload     report.Bytes `json:"payload,omitempty"` // JSON, or {"base64": …} for bytes that are not JSON
	ShardKey    string       `json:"shard_key,omitempty"`
	Priority    int16        `json:"priority,omitempty"`
	Due         Moment       `json:"due,omitzero"`
	Every       string       `json:"every,omitempty"`
	Zone        string       `json:"zone,omitempty"`
	Source      string       `json:"source,omitempty"`
	Traceparent string       `json:"traceparent,omitempty"` // W3C trace context; "": that of the request
	Tracestate  string       `json:"tracestate,omitempty"`
	Again       bool         `json:"again,omitempty"` // work it once more if it has ended
	// Given are the fields of the payload that a known item takes when it is worked once more; it keeps all others. Null
	// means that it takes all of the payload.
	Given []string `json:"given,omitempty"`
}

// Item returns the item for Ledger.Add. now is the time of the request.
func (n Addition) Item(now time.Time) ledger.NewItem {
	it := ledger.NewItem{Kind: n.Kind, Scope: exact(n.Scope), Key: exact(n.Key), Fingerprint: exact(n.Fingerprint),
		Payload: n.Payload, ShardKey: exact(n.ShardKey), Priority: n.Priority, Due: n.Due.Time, Every: n.Every, Zone: n.Zone,
		Source: n.Source, Given: n.Given, Trace: tracing.Join(n.Traceparent, n.Tracestate)}
	if n.Again {
		it.Again = ledger.Again{Dead: true, Cancelled: true, DoneBefore: now}
	}
	return it
}

// exact makes the ledger refuse an identifier that JSON could not hold. Decoders of JSON put U+FFFD in the place of
// bytes that are no UTF-8, and of half a surrogate pair. So different keys would become the same one.
func exact(name string) string { return strings.ReplaceAll(name, "\uFFFD", "\xff") }

// Verdict is the answer to one Addition.
type Verdict struct {
	ID      int64        `json:"id"` // 0: it was refused
	Verdict string       `json:"verdict" oneof:"added|changed|reopened|known|differs|refused"`
	State   ledger.State `json:"state,omitempty"`
	// Code, Field and Reason are why it was refused.
	Code   string `json:"code,omitempty"`
	Field  string `json:"field,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Verdicts are the verdicts on a list of additions, in its order.
type Verdicts struct {
	Items  []Verdict        `json:"items"`
	Counts map[string]int64 `json:"counts"` // by verdict
}
