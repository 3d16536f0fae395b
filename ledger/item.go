package ledger

import (
	"cmp"
	"encoding/json"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// NewItem is an item to add. Only Kind and Key are required.
type NewItem struct {
	// Kind describes what has to be done.
	Kind string
	// Scope is the space within which a key is worked once: a campaign, a push. "" is the default scope.
	Scope string
	// Key is what the item is about: a path, a URL, a user id. Valid UTF-8 without NUL.
	Key string
	// Fingerprint is the version of what Key points at. An item that is added again with another, non-empty fingerprint
	// takes the new payload and is worked again: in a new round, unless nothing has been tried in the present one. An
	// item in doubt stays as it is, and so does one that is added with the same or an empty fingerprint, payload
	// included.
	Fingerprint string
	// Payload describes what is to be done with the key, JSON by convention; kept byte for byte.
	Payload []byte
	// Given, if not nil, names the fields of Payload (with dots for nesting) that a known item takes when it is opened
	// again or has changed; its other fields stay. Nil means all of Payload. A new item always takes all of it.
	Given []string
	// ShardKey decides the hash slot; "" means Key. The command line uses the host for URLs.
	ShardKey string
	// Priority orders claims: −2 … 2, smaller first, 0 by default.
	Priority int16
	// Due is the earliest start; the zero time means now. A leased item that changes is ready when its attempt ends,
	// whatever Due and Priority are.
	Due time.Time
	// Every makes the item recurring: "hour", "day", "week", a duration of at least one
	// minute ("36h", "7d") or five cron fields. It is then completed at most once per period;
	// a changed fingerprint takes effect with the next attempt. The period that runs when it is added counts, so
	// it is ready at once: give Due if it is to wait for the next. Once cancelled, it comes back by an add with
	// Again{Cancelled: true} alone.
	Every string
	// Zone is the IANA time zone of Every; "" means UTC.
	Zone string
	// Source is where the item came from, for people: a file, a query, a parent item.
	Source string
	// Trace is the W3C trace context of the program that adds the item, see package tracing. "" means the trace context
	// in the context.Context of the call of Add, if there is one. A malformed context is ignored. A known item takes the
	// trace context together with the new payload.
	Trace string
	// Again is when a known item with the same fingerprint is opened again, with the payload of the new one (see Given).
	Again Again
}

// ItemTexts are the texts of a new item except its kind: the column of each (errors name it too), its bound in bytes,
// and its field.
var ItemTexts = []struct {
	Column string
	Max    int
	Of     func(*NewItem) *string
}{
	{"scope", bounds.MaxScope, func(n *NewItem) *string { return &n.Scope }},
	{"key", bounds.MaxKey, func(n *NewItem) *string { return &n.Key }},
	{"fingerprint", 256, func(n *NewItem) *string { return &n.Fingerprint }},
	{"shard_key", 2048, func(n *NewItem) *string { return &n.ShardKey }},
	{"source", 2048, func(n *NewItem) *string { return &n.Source }},
	{"every", 128, func(n *NewItem) *string { return &n.Every }},
	{"zone", 64, func(n *NewItem) *string { return &n.Zone }},
}

// stored returns the part of a new item that a ledger keeps.
func (n *NewItem) stored() Stored {
	s := Stored{Fingerprint: n.Fingerprint, ShardKey: n.ShardKey, Slot: scheduler.Slot(cmp.Or(n.ShardKey, n.Key)),
		Every: n.Every, Zone: n.Zone, Source: n.Source, Trace: n.Trace}
	if len(n.Payload) > 0 {
		s.Payload = n.Payload
	}
	return s
}

// Again is when a known, unchanged item is opened again. The zero value is never. An item in
// doubt is never opened by Add.
type Again struct {
	Dead       bool      // if it is dead; it stays in its round, and its counters become 0
	Cancelled  bool      // if it was cancelled; a new round
	DoneBefore time.Time // if it was last completed before this time; a new round; zero: never
}

// JSON marshals v for a payload or an output. It panics if v cannot be marshalled: that is a mistake in the program,
// not in the data.
func JSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("ledger.JSON: " + err.Error())
	}
	return b
}

// Added is the answer for one NewItem.
type Added struct {
	ID      int64   // of the item, new or not; stable for ever
	Verdict Verdict // what Add did
	State   State   // of the item after Add
}

// Verdict describes what Add did with one item.
type Verdict string

const (
	VerdictAdded    Verdict = "added"    // was not known in its scope
	VerdictChanged  Verdict = "changed"  // known with another fingerprint, or to recur in another way
	VerdictReopened Verdict = "reopened" // known and opened again because of Again
	VerdictKnown    Verdict = "known"    // known; stays as it is (a first fingerprint is kept)
	VerdictDiffers  Verdict = "differs"  // known with another payload; stays as it is
)

// Stored is what a ledger keeps of an item besides its identity and its state: the same in an [Item] and its [Record].
type Stored struct {
	Fingerprint string
	Payload     []byte // nil: none; in a Record empty, and not nil: it was pruned
	ShardKey    string // "" means Key
	Slot        int    // 0 … Slots-1
	Every, Zone string
	Source      string
	Trace       string // trace context of the program that added it, see package tracing; "": none
	CreatedAt   time.Time
}

// Item is an item as people and programs see it.
type Item struct {
	ID    int64
	Kind  string
	Scope string
	Key   string
	Stored
	Pruned     bool // it had a payload, and that was removed
	Priority   int16
	Due        time.Time // zero when finished
	State      State
	Attempt    int64  // number of claims and verdicts so far; no gaps
	Round      string // "1", "2" …; of a recurring item its period: "2026-11-20"
	RoundState RoundState
	Failures   int  // failed attempts in this round; kept after a failed round until the next one begins
	Crashes    int  // attempts of this round in which the process died
	Losses     int  // expired leases in a row
	PutOff     bool // a person has put it off, or the next round of a recurring item, until later
	Outage

	// Agent, LeasedAt and ExpiresAt are set while the item is leased.
	Agent     string
	LeasedAt  time.Time
	ExpiresAt time.Time

	// The fields down to Worker are those of the newest ended attempt; zero when none has ended.
	Outcome   Outcome
	Code      string
	Cause     string // see Attempt
	Error     string
	StartedAt time.Time // when it was claimed; zero for a verdict without a claim
	EndedAt   time.Time
	EndedBy   string // the agent
	Worker    string // what worked on it: "urlcheck@0.1.0+3fa9c1"

	// Output is that of the newest attempt that has one; set only where it was asked for.
	Output []byte
}

// Attempt is how one claim of an item ended, or what a person decided. It is written once, when it ends.
type Attempt struct {
	ItemID     int64
	Attempt    int64
	Kind       string
	Agent      string
	LockID     string    // of the claim; "" for a verdict without a claim
	Worker     string    // what worked on it: "urlcheck@0.1.0+3fa9c1" (plugin, version, digest of its config)
	Epoch      int64     // number of the opening of the item that it belongs to
	Period     time.Time // of a recurring item: start of its period; else zero
	Round      string    // Epoch or Period as people read it
	DueAt      time.Time // when the item was due; zero if it is not known, and for a verdict without a claim
	LeasedAt   time.Time // zero for a verdict without a claim
	StartedAt  time.Time // when its start was marked, see Ledger.Start; zero if it was not
	Renewals   int       // how often its lease was renewed; what programs of an older schema ended has 0
	FinishedAt time.Time
	Outcome    Outcome
	Final      bool   // it took the item out of the backlog, or closed its period
	Code       string // class of the error, e.g. "http_404"
	Error      string // at most 8 KiB
	Cause      string // the group of a failed attempt among the failures of other items, see package cause
	Log        string // tail of what the handler logged, at most 16 KiB
	Output     []byte
}
