// Package failure has the errors of plugins that know the meaning of a failure where it happens: a code to count
// by, and whether trying again can help. Report converts them to the errors of the SDK.
package failure

import (
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/sdk"
)

// Error is why the work of an item was not done, or may not have been done.
type Error struct {
	Code  string
	Fate  Fate
	After time.Duration // not to be tried again before; 0 leaves it to the kind's policy
	Err   error
}

// Fate is what a failure means for the item.
type Fate int

const (
	Again Fate = iota // it was not done, and trying again can help
	Never             // it was not done, and trying again cannot help
	Doubt             // it is not known whether it was done
)

func (e *Error) Error() string { return fmt.Sprintf("%.400s", e.Err) } // servers write part of it
func (e *Error) Unwrap() error { return e.Err }

// Transient is a failure that may go away.
func Transient(code string, err error) *Error { return &Error{Code: code, Err: err} }

// Permanent is a failure that would come again.
func Permanent(code string, err error) *Error { return &Error{Code: code, Fate: Never, Err: err} }

// Unknown is an end after which the work may or may not have been done.
func Unknown(code string, err error) *Error { return &Error{Code: code, Fate: Doubt, Err: err} }

// Report converts an *Error to an error of the SDK, and returns other errors as they are.
func Report(err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return err
	}
	coded := sdk.Code(e.Code, e)
	switch {
	case e.Fate == Never:
		return sdk.Permanent(coded)
	case e.Fate == Doubt:
		return sdk.Doubt(coded)
	case e.After > 0:
		return sdk.RetryAfter(e.After, coded)
	}
	return coded
}
