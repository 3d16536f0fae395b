package ledger

import "errors"

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
