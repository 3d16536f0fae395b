package pluginproc

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledgerd/internal/lazyregexp"
)

// Step is the step of a start that failed.
type Step string

// The steps of a start.
const (
	StepCheck     Step = "check"     // of the file, before anything runs
	StepStart     Step = "start"     // of the process
	StepHandshake Step = "handshake" // one line on stdout
	StepConnect   Step = "connect"   // to the socket, up to the first answer
)

// Reasons for which a program is not started; a StartError wraps them.
var (
	ErrChecksum = errors.New("checksum differs")
	ErrWritable = errors.New("writable by others")
)

// StartError explains why a plugin did not start.
type StartError struct {
	Path    string
	Step    Step
	Problem string // "it wrote to stdout before the handshake"
	Hint    string // the next step; may be empty
	Stderr  string // the last lines that the plugin wrote there; may be empty
	Err     error  // the cause, where there is one
}

// Error is one line with the cause; further lines have stderr and the hint, if there are any.
func (e *StartError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "plugin %s did not start: %s", e.Path, e.Problem)
	lines := slices.DeleteFunc(strings.Split(e.Stderr, "\n"), func(line string) bool {
		return line == "" || strings.HasSuffix(e.Problem, ": "+line) // the cause is told already
	})
	if len(lines) > 0 {
		fmt.Fprintf(&b, "\n  stderr: %s", strings.Join(lines, "\n          "))
	}
	if e.Hint != "" {
		fmt.Fprintf(&b, "\n  %s", e.Hint)
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *StartError) Unwrap() error { return e.Err }

// Code is the error for programs.
func (e *StartError) Code() string { return "plugin_start" }

// causes matches the line that names the cause, among those that the runtimes of languages print before they end.
var causes = lazyregexp.New(`(?m)^(?:panic: |fatal error: |[\w.]*(?:Error|Exception)(?: \[\w+\])?: ).*`)

// Cause returns the first line of stderr that names a cause, up to 500 bytes of it; "" if there is none.
func Cause(stderr string) string {
	return strings.ToValidUTF8(cut(strings.TrimRight(causes().FindString(stderr), "\r"), 500), "")
}

// CrashError describes the end of a process that was not stopped by its host in order.
type CrashError struct {
	PID    int
	How    string // "exited with 2", "was killed by signal 9 (killed)"
	Signal int    // the signal that killed it, 0 if none did
	Code   int    // its exit code, -1 if it was killed
	Stderr string // the last CrashReport bytes of it
	Err    error  // why the host killed it: ErrLimit, ErrTooLarge, a broken stream; nil if the host did not
}

// Error is one line, without Stderr.
func (e *CrashError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("plugin process %d was stopped: %v", e.PID, e.Err)
	}
	return fmt.Sprintf("plugin process %d %s", e.PID, e.How)
}

// OfItem is the error of an item that the process had: Error and the line of stderr that tells most.
func (e *CrashError) OfItem() string {
	text := e.Error() + " while it had this item"
	if words := strings.TrimRight(e.Stderr, "\r\n"); words != "" {
		line := cmp.Or(Cause(words), words[strings.LastIndexByte(words, '\n')+1:])
		text += "; stderr: " + line[max(0, len(line)-maxLine):]
	}
	return text
}

const maxLine = 2 << 10 // most bytes of stderr in the error of an item

// Unwrap returns Err.
func (e *CrashError) Unwrap() error { return e.Err }

// Errors of the stream.
var (
	// ErrEnded is returned by calls on a stream that has ended or is closed.
	ErrEnded = errors.New("plugin process has ended")
	// ErrCredits is returned by Send for more items than there are credits.
	ErrCredits = errors.New("more items than credits")
	// ErrTooLarge ends the stream: the plugin sent a message beyond wire.MaxMessage.
	ErrTooLarge = errors.New("result too large: a plugin's message may have 16 MiB")
)
