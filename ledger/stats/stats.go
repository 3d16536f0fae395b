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

// Standing counts the unfinished items of one kind, at one moment of the database.
type Standing struct {
	Now     time.Time
	Ready   int64     // ready, or waiting though its time has come; counted up to StandingCap
	Held    int64     // leased by programs, in force or expired; leased by others and expired
	Persons int64     // leased by agents without a heartbeat row, in force
	Waiting int64     // due later
	NextDue time.Time // when the next waiting item is due; zero: no item waits
	Dead    int64
	Doubt   int64
}

// Counts counts the backlog of a kind, and the attempts that ended lately.
type Counts struct {
	Kind                                string
	Waiting, Ready, Leased, Dead, Doubt int64
	// RoundsDone and RoundsFailed are the waiting items whose current round is done, or has failed for good. They and
	// RoundsPutOff count only among the first StandingCap items that wait after an attempt.
	RoundsDone, RoundsFailed int64
	// RoundsPutOff are the waiting items whose open round is put off, until PutOffUntil at the latest.
	RoundsPutOff int64
	PutOffUntil  time.Time
	OldestReady  time.Time // due time of the longest ready item
	Done, Failed int64     // attempts that ended since a time that the caller chose
}

// Open returns the number of items whose round is open: what is left to do. With more than StandingCap waiting items of
// which rounds are over, it is too high.
func (c *Counts) Open() int64 {
	return c.Waiting - c.RoundsDone - c.RoundsFailed - c.RoundsPutOff + c.Ready + c.Leased
}

// Summary describes how many items are open, and how fast they are worked.
type Summary struct {
	At     time.Time // the database's clock
	Agents int       // programs that work now
	Kinds  []Kind
	Paces  []Pace // of the last hour, by time and kind; a minute in which nothing ended has none
}

// Pace counts the attempts of a kind that ended within one minute. It comes from tallies.
type Pace struct {
	At           time.Time // start of the minute
	Kind         string
	Done, Failed int64
	Waits        Latencies // of all attempts that began, also those that were neither done nor failed
}

// Kind has the figures of one kind. The backlog is exact, the counts of ended attempts come from tallies.
type Kind struct {
	Counts
	PerSecond float64 // attempts that were done or failed, over the last minute; a snooze is no progress
	// ETA is the time until all open rounds are done and all that are put off are due: at the rate PerSecond, or at the
	// rate limit of the kind if that is slower. If no item waits for another round, it is not before the next waiting
	// item is due. 0 means that it is not known: the kind is paused, not worked, or has a rate per shard key.
	// It is too high if Open is.
	ETA    time.Duration
	Worked time.Duration // mean time in the handler, over the last hour
	// Waits and Works are of the attempts of the last hour: from due to begin, and from begin to end.
	Waits, Works Latencies
	Paused       bool
	Workers      int // programs that work it now; one whose plugin crashes again and again does not
}

// Names of what items and attempts are counted by.
const (
	ByKind  = "kind"
	ByScope = "scope"
	// ByShardKey is by the key under which limits count items: the shard key, or else the key.
	ByShardKey = "shard_key"
	ByPayload  = "payload" // items, by a field of it
	ByHour     = "hour"    // attempts, by when they ended
	ByCode     = "code"    // attempts
	ByWorker   = "worker"  // attempts, by the agent that had them
)

// Group counts the items with one value, by the state of their current round.
type Group struct {
	Value     json.RawMessage // nil: no such field, or a payload that is no JSON object
	Done      int64
	Failed    int64
	Doubt     int64
	Left      int64 // open
	Cancelled int64
	PutOff    int64 // open, and put off
	// NewlyFailed counts the items in Failed whose earlier round did not fail, Recovered the items in Done whose earlier
	// round failed. An item without an earlier round is in neither.
	NewlyFailed, Recovered int64
}

// Add adds the counts of o.
func (g *Group) Add(o Group) {
	g.Done, g.Failed, g.Doubt, g.Left = g.Done+o.Done, g.Failed+o.Failed, g.Doubt+o.Doubt, g.Left+o.Left
	g.Cancelled, g.PutOff = g.Cancelled+o.Cancelled, g.PutOff+o.PutOff
	g.NewlyFailed, g.Recovered = g.NewlyFailed+o.NewlyFailed, g.Recovered+o.Recovered
}

// AttemptGroup identifies a group of ended attempts. A field is empty unless the attempts are counted by it.
type AttemptGroup struct {
	Hour              time.Time // the start of the hour in UTC
	Kind, Scope, Code string
	Worker            string // an agent
}
