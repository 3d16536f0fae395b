package history

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Line is one line of a history.
type Line struct {
	Process string `json:"p"`  // PID@TIME, with the time at which the process opened its history
	Call    int64  `json:"n"`  // number of the call in this process
	Phase   string `json:"ph"` // Begin, End or Mark
	At      int64  `json:"t"`  // CLOCK_MONOTONIC, nanoseconds
	Op      string `json:"op"`

	// At the beginning of a call.
	Agent string        `json:"agent,omitempty"` // of a claim; with OpPoint the name of the failpoint
	Lock  string        `json:"lock,omitempty"`  // lock_id of a claim
	TTL   time.Duration `json:"ttl,omitempty"`

	Items []Item `json:"items,omitempty"` // of the arguments or of the answer

	// At the end of a call. Unknown means that the call may or may not have taken effect.
	Error   string `json:"err,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
}

// Phases of a call. A call that repeats its transaction has several lines with Begin: the last counts.
const (
	Begin = "begin"
	End   = "end"
	Mark  = "mark" // the line is about an event in the process, not about a call
)

// Operations. OpUpdate is a transaction of the rules (ledger.Store.Update). All that it read and changed is in the line
// with Begin.
const (
	OpClaim    = "claim"
	OpComplete = "complete"
	OpRenew    = "renew"
	OpStart    = "start"
	OpUpdate   = "update"
	OpPoint    = "failpoint"
	OpRefused  = "refused" // the ledger did not take a worker's result
)

// Item is what the arguments or the answer of a call have about one item.
type Item struct {
	ID      int64  `json:"id"`
	Lock    string `json:"lock,omitempty"` // lock_id
	Attempt int64  `json:"a,omitempty"`
	Outcome string `json:"o,omitempty"`
	Code    string `json:"c,omitempty"`
	// By the database's clock, Unix microseconds.
	Now   int64 `json:"now,omitempty"`
	Until int64 `json:"until,omitempty"` // expiry of the lease
	Due   int64 `json:"due,omitempty"`

	// Of OpUpdate.
	Identity string `json:"key,omitempty"` // kind/scope/key of an item that was inserted
	Before   *State `json:"before,omitempty"`
	After    *State `json:"after,omitempty"` // nil if the item was only read
}

// State is the row of an item in the backlog.
type State struct {
	State    string `json:"s"` // "" for a finished item: it has no row
	Attempt  int64  `json:"a,omitempty"`
	Lock     string `json:"lock,omitempty"`
	Until    int64  `json:"until,omitempty"`
	Due      int64  `json:"due,omitempty"`
	Epoch    int64  `json:"e,omitempty"`
	Priority int16  `json:"p,omitempty"`
}

// Env names the environment variable with the file to which a chaos build appends its history.
const Env = "LEDGERD_HISTORY"

// Log is a file of lines to which one process appends.
type Log struct {
	mu      sync.Mutex
	file    *os.File
	process string
	calls   atomic.Int64
}

// Ours returns the history in the file that Env names, nil if the variable is empty.
var Ours = sync.OnceValue(func() *Log {
	path := os.Getenv(Env)
	if path == "" {
		return nil
	}
	l, err := Open(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
	return l
})

// Open opens a file for the history of this process, and makes it if there is none.
func Open(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{file: f, process: fmt.Sprintf("%d@%d", os.Getpid(), Now())}, nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Call returns the number of a new call.
func (l *Log) Call() int64 { return l.calls.Add(1) }

// Write appends a line. It ends the process if that fails: what is not recorded must not happen.
func (l *Log) Write(line Line) {
	line.Process = l.process
	line.At = cmp.Or(line.At, Now())
	text, err := json.Marshal(line)
	if err != nil {
		panic(err) // it is made of numbers and strings
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(text, '\n')); err != nil {
		fmt.Fprintln(os.Stderr, "history:", err)
		os.Exit(1)
	}
}

// Refused records that the ledger refused the result of an attempt, since its lease was lost. On a nil Log it does
// nothing.
func (l *Log) Refused(id, attempt int64, lock string) {
	if l != nil {
		l.Write(Line{Phase: Mark, Op: OpRefused, Items: []Item{{ID: id, Attempt: attempt, Lock: lock}}})
	}
}

// Read reads the lines of a file. It leaves out a last line without its end, as a killed process leaves it.
func Read(path string) (lines []Line, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 1<<20)
	for {
		text, err := in.ReadBytes('\n')
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, len(lines)+1, err)
		}
		lines = append(lines, line)
	}
}
