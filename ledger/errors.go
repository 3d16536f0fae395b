package ledger

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"

	"github.com/ledgerd/ledgerd/ledger/act"
)

// Errors, to be matched with errors.Is.
var (
	ErrInvalid     = errors.New("invalid")            // a limit or rule was broken; see InvalidError
	ErrNotFound    = errors.New("not found")          // no item or kind has this id or name
	ErrLeaseLost   = errors.New("lease lost")         // another agent holds the item or has finished it
	ErrUnavailable = errors.New("ledger unavailable") // database unreachable, busy or full: try again
	ErrSchema      = errors.New("schema mismatch")    // the ledger is newer or older than this program
	ErrNoLedger    = errors.New("no ledger")          // the database holds no ledger
	ErrDamaged     = errors.New("ledger damaged")     // the database found its own pages or indexes damaged
	ErrDenied      = errors.New("not allowed")        // wrong password, or a file or folder that may not be written
	ErrCancelled   = errors.New("item was cancelled")
	ErrConflict    = errors.New("conflict") // see DefinitionError
)

// Error is an error with advice. It matches Kind and Err with errors.Is.
type Error struct {
	Kind    error   // one of the errors above; nil: none of them
	Message string  // what went wrong, and where
	Hint    string  // what to do next; may be empty
	Act     act.Act // does what the hint advises; its name is empty where there is no such act
	Err     error   // the cause; may be nil
}

// By returns the error with the act that does what its hint advises.
func (e *Error) By(name act.Name) *Error {
	e.Act = act.Act{Name: name}
	return e
}

// Error returns the message without the hint.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what the error matches.
func (e *Error) Unwrap() []error {
	return slices.DeleteFunc([]error{e.Kind, e.Err}, func(err error) bool { return err == nil })
}

// LogValue makes logs show the hint as well.
func (e *Error) LogValue() slog.Value {
	if e.Hint == "" {
		return slog.StringValue(e.Message)
	}
	return slog.StringValue(e.Message + "; " + e.Hint)
}

// Hint returns the advice of a ledger's error; "" if there is none.
func Hint(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		if hint := cmp.Or(e.Hint, Hint(e.Err)); hint != "" {
			return hint
		}
	}
	if e, ok := errors.AsType[*InvalidError](err); ok {
		return e.Hint
	}
	return ""
}

// InvalidError reports which field broke which rule. It matches [ErrInvalid].
type InvalidError struct {
	Index  int    // in the batch
	Field  string // "key"
	Reason string // "2,311 bytes, at most 2,048"
	Hint   string // what to do next; may be empty
}

// errNilTx keeps a call that is to commit with the caller's transaction from committing by itself.
var errNilTx = &InvalidError{Field: "tx", Reason: "is nil", Hint: "begin one, or use the call without Tx"}

func (e *InvalidError) Error() string        { return e.Field + ": " + e.Reason }
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }
