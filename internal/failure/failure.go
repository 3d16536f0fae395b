// Package failure is an error as programs and people get it: a code, what went wrong and where, what to do next,
// and the exit code of the program.
//
// Explain makes one of any error. An error type that knows better has a method Advice, or Code where only the code
// is its own, so this package needs to know few others.
package failure

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/filter"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

// Exit codes. Scripts rely on them.
const (
	ExitOK         = 0
	ExitError      = 1
	ExitUsage      = 2  // usage or config
	ExitUnfinished = 3  // finished, but not everything is done
	ExitTemporary  = 5  // try again
	ExitEmpty      = 9  // nothing to do, with --error-on-empty
	ExitNoLedger   = 10 // no ledger here, or its schema does not fit
	ExitTaken      = 11 // another agent has it
	ExitDenied     = 12 // not allowed
)

// Status ends the program with an exit code; its message has been printed.
type Status int

func (s Status) Error() string { return fmt.Sprintf("exit %d", int(s)) }

// Error is an error for people: what and where, then what to do next.
type Error struct {
	Exit    int
	Code    string // for programs: "unknown_kind"
	Message string
	Hint    string // lines; may be empty
	Field   string // the field of the input that is wrong; may be empty
	// Act does what the first line of the hint advises; its name is empty where there is none, or where the hint has
	// the command.
	Act   act.Act
	Cause error // may be nil
}

func (f *Error) Error() string { return f.Message }

func (f *Error) Unwrap() error { return f.Cause }

// New makes an error with its exit code.
func New(exit int, code, message, hint string) *Error {
	return &Error{Exit: exit, Code: code, Message: message, Hint: hint}
}

// In names the field of the input that is wrong.
func (f *Error) In(field string) *Error {
	f.Field = field
	return f
}

// Usage makes an error of a mistake in the command line or the config: exit 2.
func Usage(code, hint, format string, args ...any) *Error {
	return New(ExitUsage, code, fmt.Sprintf(format, args...), hint)
}

// advised are errors that know their code, and what to do next.
type advised interface {
	error
	Advice() (code, message, hint string)
}

// coded are errors that know their code.
type coded interface {
	error
	Code() string
}

// Explain makes an Error of any error, with a code, a hint and an exit code. err must not be nil.
func Explain(err error) *Error {
	if f, ok := errors.AsType[*Error](err); ok {
		return f
	}
	f := New(ExitError, "error", err.Error(), ledger.Hint(err))
	f.Cause = err
	if own, ok := errors.AsType[advised](err); ok {
		f.Exit = ExitUsage
		f.Code, f.Message, f.Hint = own.Advice()
		if errors.Is(err, fs.ErrPermission) {
			f.Exit, f.Code = ExitDenied, "denied"
		}
		return f
	}
	if bad, ok := errors.AsType[*filter.Error](err); ok {
		return badFilter(bad)
	}
	for _, known := range []struct {
		target error
		exit   int
		code   string
	}{
		{pluginproc.ErrChecksum, ExitDenied, "checksum"},
		{pluginproc.ErrWritable, ExitDenied, "writable"},
		{ledger.ErrNotFound, ExitError, "not_found"},
		{ledger.ErrNoLedger, ExitNoLedger, "no_ledger"},
		{ledger.ErrSchema, ExitNoLedger, "schema"},
		{ledger.ErrDenied, ExitDenied, "denied"},
		{ledger.ErrDamaged, ExitError, "damaged"},
		{ledger.ErrUnavailable, ExitTemporary, "unavailable"},
		{ledger.ErrLeaseLost, ExitTaken, "lease_lost"},
		{ledger.ErrConflict, ExitUsage, "conflict"},
		{ledger.ErrInvalid, ExitUsage, "invalid"},
		{fs.ErrPermission, ExitDenied, "denied"},
		{syscall.EROFS, ExitDenied, "denied"},
		{syscall.ENOSPC, ExitTemporary, "disk_full"},
	} {
		if errors.Is(err, known.target) {
			f.Exit, f.Code, f.Hint = known.exit, known.code, ledger.Hint(err)
			if own, ok := errors.AsType[*ledger.Error](err); ok {
				if f.Act = own.Act; f.Act.Name == act.SetEnvironment {
					f.Code = "environment"
				}
			}
			return f
		}
	}
	if own, ok := errors.AsType[coded](err); ok {
		f.Code = own.Code()
	}
	return f
}

// usualStates are names of states in other programs, with the names that they have here.
var usualStates = map[string]string{"failed": "dead", "error": "dead", "running": "leased", "active": "leased",
	"pending": "ready", "queued": "ready", "scheduled": "waiting", "completed": "done"}

// badFilter shows where a filter is wrong, and what may have been meant.
func badFilter(bad *filter.Error) *Error {
	var hint string
	if report.Safe(bad.Filter) == bad.Filter { // else ^ would not stand below the word
		hint = "  " + bad.Filter + "\n  " + strings.Repeat(" ", bad.Column-1) + strings.Repeat("^", bad.Length) + "\n"
	}
	near := settings.Suggest(bad.Word, bad.Known)
	if usual := usualStates[bad.Word]; near == "" && slices.Contains(bad.Known, usual) {
		near = usual
	}
	if near != "" {
		hint += "did you mean " + near + "?\n"
	}
	return Usage("bad_filter", hint+"terms: "+filter.Terms, "--where, column %d: %s", bad.Column, bad.Reason)
}
