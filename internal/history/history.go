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
	Process string `json:"p"` // the number of the process and its start
	Call    int64  `json:"n"` // number of the call in this process
	Phase   string `json:"ph"`
	At      int64  `json:"t"` // CLOCK_MONOTONIC, nanoseconds
	Op      string `json:"op"`

	// Of Begin.
	Agent string        `json:"agent,omitempty"` // of a claim; of a failpoint its name
	Lock  string        `json:"lock,omitempty"`  // of a claim
	TTL   time.Duration `json:"ttl,omitempty"`

	Items []Item `json:"items,omitempty"`
	// Of End. After Unknown the call may or may not have taken effect.
	Error   string `json:"err,omitempty"`
	Unknown bool   `json:"unknown,omitempty"`
}

// Phases of a call. A call that repeats its transaction begins more than once: the last counts.
const (
	Begin = "begin"
	End   = "end"
	Mark  = "mark" // no call: something happened in the process
)

// Operations. OpUpdate is a transaction in which the rules decide; each of its items has its state before and after.
const (
	OpClaim    = "claim"
	OpComplete = "complete"
	OpRenew    = "renew"
	OpStart    = "start"
	OpUpdate   = "update"
	OpPoint    = "failpoint"
	OpRefused  = "refused" // the ledger did not take a worker's result
)

// Item is the answer of a call about one item.
type Item struct {
	ID      int64  `json:"id"`
	Lock    string `json:"lock,omitempty"`
	Attempt int64  `json:"a,omitempty"`
	Outcome string `json:"o,omitempty"`
	Code    string `json:"c,omitempty"`
	// By the database's clock, Unix microseconds.
	Now   int64 `json:"now,omitempty"`
	Until int64 `json:"until,omitempty"` // expiry of the lease
	Due   int64 `json:"due,omitempty"`

	// Of an update.
	Identity string `json:"key,omitempty"` // kind/scope/key of an item that was inserted
	Before   *State `json:"before,omitempty"`
	After    *State `json:"after,omitempty"` // nil if it was only looked at
}

// State is where an item stands.
type State struct {
	State    string `json:"s"` // of the backlog, "" for finished
	Attempt  int64  `json:"a,omitempty"`
	Lock     string `json:"lock,omitempty"`
	Until    int64  `json:"until,omitempty"`
	Due      int64  `json:"due,omitempty"`
	Epoch    int64  `json:"e,omitempty"`
	Priority int16  `json:"p,omitempty"`
}

// Env names the variable with the file to which a chaos build appends its history.
const Env = "LEDGERD_HISTORY"

// Log is a file of lines to which one process appends.
type Log struct {
	mu      sync.Mutex
	file    *os.File
	process string
	calls   atomic.Int64
}

// Ours is the history of this process, nil if it has none.
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

// Open opens the history of this process, or begins it.
func Open(path string) (*Log, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	return &Log{file: f, process: fmt.Sprintf("%d@%d", os.Getpid(), Now())}, nil
}

// Close closes the file.
func (l *Log) Close() error { return l.file.Close() }

// Call is the number of a new call.
func (l *Log) Call() int64 { return l.calls.Add(1) }

// Write appends a line. It ends the process if it cannot: what is not recorded must not happen.
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

// Point notes that a failpoint is about to happen.
func Point(name string) {
	if l := Ours(); l != nil {
		l.Write(Line{Phase: Mark, Op: OpPoint, Agent: name})
	}
}

// Refused notes that the ledger did not take the result of an attempt: its lease was lost.
func Refused(id, attempt int64, lock string) {
	if l := Ours(); l != nil {
		l.Write(Line{Phase: Mark, Op: OpRefused, Items: []Item{{ID: id, Attempt: attempt, Lock: lock}}})
	}
}

// Read reads lines. A last one that was cut off by the end of its process is left out.
func Read(r io.Reader) (lines []Line, err error) {
	in := bufio.NewReaderSize(r, 1<<20)
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
			return nil, fmt.Errorf("line %d: %w", len(lines)+1, err)
		}
		lines = append(lines, line)
	}
}
