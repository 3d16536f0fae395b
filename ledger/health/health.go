// Package health describes the plugin processes of a program. Heartbeats carry these descriptions, so people see them
// on any machine.
package health

import (
	"strings"
	"time"
)

// Plugin describes the process of a plugin on one machine.
type Plugin struct {
	Version  string `json:"version,omitempty"`
	State    State  `json:"state"`
	Restarts int    `json:"restarts,omitempty"` // how often it was restarted because it had ended by itself
	// Code is the class of its newest crash, or of the reason why it does not start; ErrorAt is the time of that, in whole
	// seconds by the clock of its machine. They are "" and zero if there was no crash. Error is the reason in words, one
	// line as OneLine makes it, without secrets and without contents of items.
	Code    string    `json:"code,omitempty"`
	Error   string    `json:"error,omitempty"`
	ErrorAt time.Time `json:"error_at,omitzero"`
	RSS     int64     `json:"rss,omitempty"` // bytes of memory; 0 where it is not known
}

// State is the state of the process of a plugin. Agent.Stalled of package ledger has the time until which the process
// gets no items.
type State string

// The states of plugins.
const (
	Running    State = "running"
	Restarting State = "restarting" // it has ended, and is being started again
	Crashing   State = "crashing"   // it has crashed again and again; it gets no items for some time
	Absent     State = "absent"     // it does not start
)

// States are all states.
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
