package ledger

import (
	"errors"
	"fmt"
	"time"
)

// Errors, to be matched with errors.Is.
var (
	ErrInvalid     = errors.New("invalid")            // a limit or rule was broken; see InvalidError
	ErrNotFound    = errors.New("not found")          //
	ErrLeaseLost   = errors.New("lease lost")         // somebody else holds or has finished the item
	ErrUnavailable = errors.New("ledger unavailable") // database unreachable, busy or full: try again
	ErrSchema      = errors.New("schema mismatch")    // the ledger is newer or older than this program
	ErrNoLedger    = errors.New("no ledger")          // the database holds no ledger
	ErrDenied      = errors.New("not allowed")        // wrong password, or a file or folder that may not be written
	ErrCancelled   = errors.New("item was cancelled")
	ErrConflict    = errors.New("conflict") // see DefinitionError
)

// InvalidError says which field broke which rule. It matches [ErrInvalid].
type InvalidError struct {
	Index  int    // in the batch
	Field  string // "key"
	Reason string // "2,311 bytes, at most 2,048"
}

func (e *InvalidError) Error() string        { return e.Field + ": " + e.Reason }
func (e *InvalidError) Is(target error) bool { return target == ErrInvalid }

// DefinitionError says that a kind is being worked by another plugin or with other settings.
// It matches [ErrConflict].
type DefinitionError struct {
	Kind, Have, Want string    // definitions: "exec@0.1.0+3fa9c1"
	Agent            string    // a live worker with the definition Have; "" if there is none
	Since            time.Time // when that worker started
	Unfinished       int64     // items of the kind that are waiting, ready or leased
}

func (e *DefinitionError) Error() string {
	s := fmt.Sprintf("kind %q is worked with other settings (%s, not %s)", e.Kind, e.Have, e.Want)
	if e.Agent != "" {
		s += fmt.Sprintf(" by %s since %s", e.Agent, e.Since.Local().Format("2006-01-02 15:04"))
	}
	return s + fmt.Sprintf("; %d items left", e.Unfinished)
}
func (e *DefinitionError) Is(target error) bool { return target == ErrConflict }
