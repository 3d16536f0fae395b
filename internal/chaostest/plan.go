//go:build unix

package chaostest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Database is the kind of database of a run.
type Database string

const (
	SQLite   Database = "sqlite"
	Postgres Database = "postgres"
)

// Fault is the disturbance of the processes of a run, or of their database.
type Fault string

const (
	Kill      Fault = "kill"      // SIGKILL of a daemon, at any moment
	Failpoint Fault = "failpoint" // SIGKILL or SIGSTOP at a named moment; see internal/failpoint
	Pause     Fault = "pause"     // SIGSTOP of a daemon, its plugin or both, beyond the lease, then SIGCONT
	Crash     Fault = "crash"     // the server stops without a checkpoint, and recovers
	Terminate Fault = "terminate" // pg_terminate_backend
	Cut       Fault = "cut"       // the connection ends when a commit was sent
	ReadOnly  Fault = "readonly"  // the server takes no writes for a while
	Failover  Fault = "failover"  // the primary dies or freezes, its synchronous standby is promoted
	DiskFull  Fault = "diskfull"  // the ledger's file system is full for a while
	Hog       Fault = "hog"       // another process holds the file's write lock
	Plugin    Fault = "plugin"    // plugins crash, hang, flood
	Clock     Fault = "clock"     // daemons whose clocks are off by an hour, and kills
	Agents    Fault = "agents"    // eight processes of ledgerd mcp, two of them killed, frozen or ended at a time
	// In these, daemons reach the ledger only over HTTP:
	RemoteKill  Fault = "remote-kill"  // SIGKILL of a daemon or of the server
	RemotePause Fault = "remote-pause" // SIGSTOP of a daemon, its plugin, or the server, beyond the lease
	RemoteCut   Fault = "remote-cut"   // their connections to the server break at any byte, or freeze
)

// Faults returns the faults that can happen on a database.
func Faults(db Database) []Fault {
	if db == SQLite {
		return []Fault{Kill, Failpoint, Pause, DiskFull, Hog, Plugin, Clock, Agents, RemoteKill, RemotePause, RemoteCut}
	}
	return []Fault{Kill, Failpoint, Pause, Crash, Terminate, Cut, ReadOnly, Failover, Plugin, Clock, Agents,
		RemoteKill, RemotePause, RemoteCut}
}

// The kinds of the plugins in chaos builds. Effects of repeatableKind can be repeated, those of onceKind must not.
const (
	repeatableKind = "chaos"
	onceKind       = "chaosmail"
)

// Plan describes a run.
type Plan struct {
	Database Database
	Fault    Fault
	Seed     uint64
	Daemons  int           // 1 … 4 daemons, or 8 agents
	Kinds    []string      // half of the runs also have onceKind
	Lease    time.Duration // of the daemons
	Busy     time.Duration // duration of the faults
	Pace     time.Duration // average time between two faults
	// Patience stretches promises of bounded time by this factor, for machines with unknown other load; 1 checks them
	// as they are.
	Patience int
}

// NewPlan returns a plan that depends only on its arguments.
func NewPlan(db Database, f Fault, seed uint64) (Plan, error) {
	if !slices.Contains(Faults(db), f) {
		return Plan{}, fmt.Errorf("fault %q does not happen on %s; those that do: %v", f, db, Faults(db))
	}
	p := Plan{Database: db, Fault: f, Seed: seed, Lease: 5 * time.Second, Busy: 3500 * time.Millisecond,
		Pace: 500 * time.Millisecond, Patience: 1}
	random := p.random(forPlan)
	p.Daemons = 1 + random.IntN(4)
	if p.Kinds = []string{repeatableKind}; random.IntN(2) == 0 {
		p.Kinds = append(p.Kinds, onceKind)
	}
	switch f {
	case Pause, RemotePause:
		p.Busy, p.Pace = 9*time.Second, 600*time.Millisecond
	case Crash, ReadOnly, DiskFull, Hog:
		p.Busy, p.Pace = 5*time.Second, 900*time.Millisecond
	case Failover:
		p.Busy, p.Pace = 25*time.Second, time.Second
	case RemoteCut:
		p.Busy, p.Pace = 7*time.Second, 150*time.Millisecond
	case Kill, RemoteKill:
		p.Busy, p.Pace = 5*time.Second, 350*time.Millisecond
	case Failpoint:
		p.Busy, p.Pace = 7*time.Second, 150*time.Millisecond
	case Terminate, Cut:
		p.Pace = 120 * time.Millisecond
	case Plugin:
		p.Daemons = 4
	case Agents:
		p.Daemons, p.Lease, p.Busy, p.Pace = 8, 2*time.Second, 9*time.Second, 700*time.Millisecond
	}
	return p, nil
}

// The parts of a run, each with a random source of its own.
const (
	forPlan uint64 = iota
	forFaults
	forModes
	forFeed
	forPerson
	forOperator
	forDaemons
	forFirstItems
	forDecisions
	forAgents // the last: it and the numbers after it are for one agent each
)

// random returns the random source of a part of the run.
func (p Plan) random(part uint64) *rand.Rand { return rand.New(rand.NewPCG(p.Seed, part)) }

func (p Plan) String() string {
	return fmt.Sprintf("%s-%s-%d", p.Database, p.Fault, p.Seed)
}
