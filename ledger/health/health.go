// Package health has what a heartbeat tells of the processes that a program works its kinds with, so that they are seen
// from any machine.
package health

import (
	"strings"
	"time"
)

// Plugin is how the process of a plugin is, on one machine.
type Plugin struct {
	Version  string `json:"version,omitempty"`
	State    State  `json:"state"`
	Restarts int    `json:"restarts,omitempty"` // after it had ended unasked
	// Code is the class of its newest crash, or of why it does not start, and ErrorAt when that was, in whole
	// seconds by the clock of its machine; "" and zero if there was none. Error is the reason in words, without
	// secrets and without what is in items: one line as OneLine makes it.
	Code    string    `json:"code,omitempty"`
	Error   string    `json:"error,omitempty"`
	ErrorAt time.Time `json:"error_at,omitzero"`
	RSS     int64     `json:"rss,omitempty"` // bytes of memory; 0 where it is not known
}

// State is what the process of a plugin does. Until when it gets nothing stands in Agent.Stalled of package ledger.
type State string

// The states of plugins.
const (
	Running    State = "running"
	Restarting State = "restarting" // it has ended, and is being started again
	Crashing   State = "crashing"   // it has crashed again and again; nothing is given to it for a while
	Absent     State = "absent"     // it does not start
)

// States are all of them.
var States = []State{Running, Restarting, Crashing, Absent}

// NoPlugin is the code of a kind that has no plugin on a machine: it is for people, or for other machines.
const NoPlugin = "no_plugin"

// MaxError is the length of an Error, in bytes.
const MaxError = 300

// OneLine returns the first line of a text, without NUL bytes and at most MaxError bytes long.
func OneLine(text string) string {
	text, _, _ = strings.Cut(text, "\n")
	text = strings.ToValidUTF8(strings.ReplaceAll(text, "\x00", ""), "\uFFFD")
	if len(text) > MaxError {
		text = strings.ToValidUTF8(text[:MaxError-len("…")], "") + "…"
	}
	return text
}
