package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"time"
)

// Limits, the same on every store. Values beyond them are refused with [ErrInvalid]; the
// schema of both databases repeats them as CHECKs.
const (
	MaxKind        = 64       // bytes; [a-z0-9][a-z0-9-]*
	MaxScope       = 256      // bytes
	MaxKey         = 2048     // bytes; Postgres indexes at most 2,704 bytes of kind, scope and key together
	MaxFingerprint = 256      // bytes
	MaxShardKey    = 2048     // bytes
	MaxSource      = 2048     // bytes
	MaxEvery       = 128      // bytes
	MaxZone        = 64       // bytes
	MaxResources   = 16       // resources of one item
	MaxResource    = 256      // bytes of the name of one
	MaxAgent       = 256      // bytes
	MaxWorker      = 256      // bytes; plugin, version and digest of its config
	MaxConfig      = 8 << 10  // bytes; the settings in force, for people
	MaxPayload     = 1 << 20  // bytes
	MaxOutput      = 1 << 20  // bytes
	MaxCode        = 64       // bytes; [a-z0-9_]+
	MaxError       = 8 << 10  // bytes; longer text is cut
	MaxLog         = 16 << 10 // bytes; the last ones are kept
	MaxBatch       = 10_000   // items of one Add, Claim or Finish
	MaxEmit        = 10_000   // items that one attempt may emit
	MinPriority    = -2       // first
	MaxPriority    = 2        // last
	MinTTL         = time.Second
	MaxTTL         = 24 * time.Hour
	MaxDelay       = 10 * 365 * 24 * time.Hour // of RetryAfter and Snooze
	Slots          = 1024                      // hash slots; see Slot
)

// Slot is the hash slot of a shard key: the first two bytes of its SHA-256, big endian, modulo Slots.
func Slot(shardKey string) int {
	h := sha256.Sum256([]byte(shardKey))
	return int(binary.BigEndian.Uint16(h[:2])) % Slots
}

// NewItem is what Add is given. The zero value of every field but Kind and Key is useful.
type NewItem struct {
	// Kind says what has to be done. Required.
	Kind string
	// Scope is the space within which a key is worked once: a campaign, a push. "" is the default scope.
	Scope string
	// Key is what it is about: a path, a URL, a user id. Required, valid UTF-8 without NUL.
	Key string
	// Fingerprint is the version of what Key points at. An item added again with another,
	// non-empty fingerprint takes the new payload and is worked again: in a new round, unless
	// nothing has been tried in the present one; but not if it is in doubt or was cancelled. With
	// the same or an empty one it stays as it is, payload included.
	Fingerprint string
	// Payload says what is to be done with the key, JSON by convention; kept byte for byte.
	Payload []byte
	// Given, if not nil, are the fields of Payload (with dots for nesting) that a known item takes when it is
	// opened again or has changed; it keeps all others that it has. Nil means all of Payload. A new item
	// always has all of it.
	Given []string
	// ShardKey decides the hash slot; "" means Key. The command line uses the host for URLs.
	ShardKey string
	// Priority orders claims: −2 … 2, smaller first, 0 by default.
	Priority int16
	// Due is the earliest start; the zero time means now.
	Due time.Time
	// Every makes the item recurring: "hour", "day", "week", a duration of at least one
	// minute ("36h", "7d") or five cron fields. It is then completed at most once per period;
	// a changed fingerprint takes effect with the next attempt.
	Every string
	// Zone is the IANA time zone of Every; "" means UTC.
	Zone string
	// Resources are names that the item needs for itself while it is leased: it is claimed only with
	// all of them, and no other item that names one of them, of whatever kind, is leased meanwhile.
	// At most MaxResources of at most MaxResource bytes; order and repetitions do not matter. They
	// belong to the version, like Payload: where an item that is known takes the new payload it takes
	// the new resources, too, and where none are given it keeps those that it has.
	Resources []string
	// Source says where the item came from, for people: a file, a query, a parent item.
	Source string
	// Again says when a known item with the same fingerprint is opened again, with this payload (see Given).
	Again Again
}

// Again is when a known, unchanged item is opened again. The zero value is never. An item in
// doubt is never opened by Add.
type Again struct {
	Dead       bool      // if it is dead; it stays in its round, with its counters at 0
	Cancelled  bool      // if it was cancelled; a new round
	DoneBefore time.Time // if it was last completed before this time; a new round; zero means not
}

// JSON marshals v for a payload or an output. It panics if v cannot be marshalled,
// which is a mistake in the program, not in the data.
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

// Verdict says what Add did with one item.
type Verdict string

const (
	VerdictAdded    Verdict = "added"    // was not known in its scope
	VerdictChanged  Verdict = "changed"  // known with another fingerprint, or to recur in another way
	VerdictReopened Verdict = "reopened" // known and opened again because of Again
	VerdictKnown    Verdict = "known"    // known; stays as it is (a first fingerprint is kept)
	VerdictDiffers  Verdict = "differs"  // known with another payload; stays as it is
)

// State is where an item stands.
type State string

const (
	StateWaiting   State = "waiting"   // due later
	StateReady     State = "ready"     // may be claimed now
	StateLeased    State = "leased"    // an agent works on it
	StateDead      State = "dead"      // gave up; a person decides
	StateDoubt     State = "doubt"     // may or may not have been done, must not be repeated; a person decides
	StateDone      State = "done"      // done or skipped
	StateCancelled State = "cancelled" // taken back by a person or a program
)

// States are all states, in the order of an item's life.
var States = []State{StateWaiting, StateReady, StateLeased, StateDead, StateDoubt, StateDone, StateCancelled}

// Item is an item as people and programs see it.
type Item struct {
	ID          int64
	Kind        string
	Scope       string
	Key         string
	Fingerprint string
	Payload     []byte // nil: it has none
	Pruned      bool   // it had one, which was removed
	ShardKey    string // "" means Key
	Slot        int    // 0 … Slots-1
	Priority    int16
	Due         time.Time // zero when finished
	Every, Zone string
	Resources   []string // sorted; nil: it needs none
	Source      string
	State       State
	Attempt     int64  // number of claims and verdicts so far; no gaps
	Round       string // "1", "2" …; of a recurring item its period: "2026-11-20"
	RoundState  RoundState
	Failures    int // failed attempts in this round
	Crashes     int // attempts of this round in which the process died
	Losses      int // expired leases in a row
	CreatedAt   time.Time

	// Agent, LeasedAt and ExpiresAt are set while the item is leased.
	Agent     string
	LeasedAt  time.Time
	ExpiresAt time.Time

	// Of the newest ended attempt; zero when none has ended.
	Outcome   Outcome
	Code      string
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
	LockID     string    // token of the claim; "" for a verdict without a claim
	Worker     string    // what worked on it: "urlcheck@0.1.0+3fa9c1" (plugin, version, digest of its config)
	Epoch      int64     // number of the opening of the item that it belongs to
	Period     time.Time // of a recurring item: start of its period; else zero
	Round      string    // Epoch or Period as people read it
	LeasedAt   time.Time // zero for a verdict without a claim
	FinishedAt time.Time
	Outcome    Outcome
	Final      bool   // it took the item out of the backlog, or closed its period
	Code       string // class of the error, e.g. "http_404"
	Error      string // at most 8 KiB
	Log        string // tail of what the handler logged, at most 16 KiB
	Output     []byte
}
