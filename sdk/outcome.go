package sdk

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Causes with which an item's context ends, see context.Cause; a timeout is
// context.DeadlineExceeded.
var (
	ErrCancelled = errors.New("item was cancelled")
	ErrLeaseLost = errors.New("lease lost: another process may work on the item by now")
	ErrStopping  = errors.New("ledgerd is stopping")
)

// outcomeError is an error that decides the item's outcome.
type outcomeError struct {
	outcome wire.Result_Outcome
	final   bool          // no further attempt
	delay   time.Duration // until the next attempt; 0 means the kind's backoff
	atMost  int           // see SnoozeAtMost; 0 means no bound
	err     error
}

func (e *outcomeError) Error() string { return e.err.Error() }
func (e *outcomeError) Unwrap() error { return e.err }

// Permanent means that trying again cannot help. Permanent(nil) is nil.
func Permanent(err error) error {
	return wrap(outcomeError{outcome: wire.Result_OUTCOME_FAILED, final: true, err: err})
}

// RetryAfter is a failure that is tried again after d, in place of the kind's backoff; 0 means the backoff. For a nil
// err it is nil.
func RetryAfter(d time.Duration, err error) error {
	return wrap(outcomeError{outcome: wire.Result_OUTCOME_FAILED, delay: max(d, 0), err: err})
}

// Snooze asks for the item again after d, one second at least; it is not a failure.
func Snooze(d time.Duration, why string) error {
	return wrap(outcomeError{outcome: wire.Result_OUTCOME_SNOOZED, delay: max(d, time.Second), err: errors.New(why)})
}

// SnoozeAtMost is Snooze for the first n attempts in a row, at most 100. For further ones it is RetryAfter, until the
// item ends done or skipped. Failed attempts count as well. The ledger counts, so it does not matter which process
// works the item. err needs a Code: a snooze without one is not counted. For a nil err it is nil.
func SnoozeAtMost(n int, d time.Duration, err error) error {
	if n < 1 {
		return RetryAfter(d, err)
	}
	return wrap(outcomeError{outcome: wire.Result_OUTCOME_SNOOZED, delay: max(d, 0), atMost: min(n, 100), err: err})
}

// Skip completes the item: there was nothing to do.
func Skip(why string) error {
	return wrap(outcomeError{outcome: wire.Result_OUTCOME_SKIPPED, err: errors.New(why)})
}

// Doubt means that the effect may or may not have happened (a connection broke after the mail was sent). A person
// decides, with any OnLost. Doubt(nil) is nil.
func Doubt(err error) error {
	return wrap(outcomeError{outcome: wire.Result_OUTCOME_UNKNOWN, err: err})
}

func wrap(e outcomeError) error {
	if e.err == nil {
		return nil
	}
	return &e
}

// codeError is an error with a class.
type codeError struct {
	code string
	err  error
}

func (e *codeError) Error() string { return e.err.Error() }
func (e *codeError) Unwrap() error { return e.err }

// Code gives an error a class that people can count and filter by, [a-z0-9_]{1,64}. It may be
// inside or outside of Permanent, RetryAfter and the others. Letters become small, and other bytes
// that do not fit become "_". For a nil err it is nil.
func Code(code string, err error) error {
	if err == nil {
		return nil
	}
	return &codeError{code: cleanCode(code), err: err}
}

func cleanCode(code string) string {
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, strings.ToLower(code))
	if clean == "" {
		return "_"
	}
	return clean[:min(len(clean), wire.MaxCode)]
}

// panicError is the error of a function that panicked.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// judge sets in r the outcome that err stands for. An error without an outcome of its own has that of the cause of ctx
// if ctx has ended, else it is a failure.
func judge(r *wire.Result, ctx context.Context, err error) {
	if err == nil {
		r.Outcome = wire.Result_OUTCOME_DONE
		return
	}
	r.Error = cleanText(err.Error(), wire.MaxError)
	if c := (*codeError)(nil); errors.As(err, &c) {
		r.Code = c.code
	}
	var decided *outcomeError
	var panicked *panicError
	switch {
	case errors.As(err, &panicked):
		r.Outcome, r.Code, r.Ending = wire.Result_OUTCOME_FAILED, "panic", wire.Result_ENDING_PANICKED
	case errors.As(err, &decided):
		r.Outcome, r.Final = decided.outcome, decided.final
		r.DelayMs, r.AtMost = milliseconds(decided.delay), int32(decided.atMost)
	case ctx.Err() != nil:
		judgeCause(r, context.Cause(ctx))
	default:
		r.Outcome = wire.Result_OUTCOME_FAILED
	}
}

// judgeCause sets in r the outcome of an attempt whose context ended with cause.
func judgeCause(r *wire.Result, cause error) {
	switch {
	case errors.Is(cause, ErrCancelled):
		r.Outcome = wire.Result_OUTCOME_CANCELLED
	case errors.Is(cause, ErrLeaseLost), errors.Is(cause, ErrStopping):
		r.Outcome = wire.Result_OUTCOME_RELEASED
	default:
		r.Outcome, r.Ending = wire.Result_OUTCOME_FAILED, wire.Result_ENDING_TIMED_OUT
		r.Code = cmp.Or(r.Code, "timeout")
	}
}

// causeOf is the error with which a cancel ends the context of the function.
func causeOf(reason wire.Cancel_Reason) error {
	switch reason {
	case wire.Cancel_REASON_LEASE_LOST:
		return ErrLeaseLost
	case wire.Cancel_REASON_STOPPING:
		return ErrStopping
	case wire.Cancel_REASON_TIMEOUT:
		return context.DeadlineExceeded
	default:
		return ErrCancelled
	}
}

// milliseconds rounds up, so that a short delay is not none.
func milliseconds(d time.Duration) int64 {
	ms := d.Milliseconds()
	if d%time.Millisecond > 0 {
		ms++ // adding before the division might overflow
	}
	return ms
}

// cleanText makes text that ledgers keep: valid, without NUL, cut to its first n bytes.
func cleanText(s string, n int) string {
	s = strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n], "") // not half a letter
	}
	return s
}
