// Package stats has the figures of a ledger: what is open, what ended, and how fast.
//
// Package ledger counts; see the methods Stats, Counts, Standing, Groups, AttemptGroups and AddTallies of its Ledger.
package stats

import (
	"encoding/json"
	"time"
)

// StandingCap bounds what Standing counts of ready and waiting items: beyond it the figure is the cap.
const StandingCap = 100_000

// Standing is what is open of one kind, at one moment of the database.
type Standing struct {
	Now     time.Time
	Ready   int64     // ready, or waiting though its time has come; counted up to StandingCap
	Held    int64     // leased by programs, in force or expired; leased by others and expired
	Persons int64     // leased by agents without a heartbeat row, in force
	Waiting int64     // due later
	NextDue time.Time // the earliest of what waits; zero: nothing waits
	Dead    int64
	Doubt   int64
}

// Counts is the backlog of a kind, and what ended lately.
type Counts struct {
	Kind                                string
	Waiting, Ready, Leased, Dead, Doubt int64
	// Of what waits, recurring items of which the current round is done, and of which it failed for good;
	// of the first StandingCap that wait for something after an attempt.
	RoundsDone, RoundsFailed int64
	// RoundsPutOff are, of these, those whose open round is put off, until PutOffUntil at the latest.
	RoundsPutOff int64
	PutOffUntil  time.Time
	OldestReady  time.Time // due time of the longest ready item
	Done, Failed int64     // attempts since the asked time
}

// Open is how many items have a round that is open: what is left to do.
func (c *Counts) Open() int64 {
	return c.Waiting - c.RoundsDone - c.RoundsFailed - c.RoundsPutOff + c.Ready + c.Leased
}

// Summary is what is open, and how fast it is being worked.
type Summary struct {
	At     time.Time // the database's clock
	Agents int       // programs that work now
	Kinds  []Kind
	Paces  []Pace // of the last hour, by time and kind; a minute in which nothing ended has none
}

// Pace is what ended of a kind within one minute. It comes from tallies.
type Pace struct {
	At           time.Time // start of the minute
	Kind         string
	Done, Failed int64
	Waits        Latencies // of all that ended and were begun, also of what was neither done nor failed
}

// Kind has the figures of one kind. The backlog is exact, what ended comes from tallies.
type Kind struct {
	Counts
	PerSecond float64 // attempts that were done or failed, over the last minute; what was put off is no progress
	// ETA is until all rounds that are open are done, and what is put off is due: at that rate, or as the rate limit of
	// the kind allows, whichever is slower. It is not before the next waiting item is due, if no item waits for another
	// round. 0 means that it is not known: the kind is paused, not worked, or has a rate per shard key.
	ETA    time.Duration
	Worked time.Duration // mean time in the handler, over the last hour
	// Of attempts of the last hour, how long they waited from when they were due, and were worked.
	Waits, Works Latencies
	Paused       bool
	Workers      int // programs that work it now; one whose plugin crashes again and again does not
}

// Names of what items and attempts are counted by.
const (
	ByKind  = "kind"
	ByScope = "scope"
	// ByShardKey is by what limits count items under: the shard key, or else the key.
	ByShardKey = "shard_key"
	ByPayload  = "payload" // items, by a field of it
	ByHour     = "hour"    // attempts, by when they ended
	ByCode     = "code"    // attempts
	ByWorker   = "worker"  // attempts, by the agent that had them
)

// Group is how many items have one value, by how their current round stands.
type Group struct {
	Value     json.RawMessage // nil: no such field, or a payload that is no JSON object
	Done      int64
	Failed    int64
	Doubt     int64
	Left      int64 // open
	Cancelled int64
	PutOff    int64 // open, and put off
	// NewlyFailed is how many of Failed did not fail in the round before, Recovered how many of Done did. Items without
	// a round before are in neither.
	NewlyFailed, Recovered int64
}

// AttemptGroup is attempts that ended in one hour, of one kind, in one scope, with one code and of one worker: of those
// that they are counted by.
type AttemptGroup struct {
	Hour              time.Time // its start; those of UTC
	Kind, Scope, Code string
	Worker            string // an agent
}
