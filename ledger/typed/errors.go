package typed

import (
	"cmp"
	"errors"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// ErrRecorded is returned by a handler that ended its lease itself, with Ledger.FinishTx of [Lease], once that
// transaction has committed. Without a call of FinishTx it is a failure with code "not_recorded", or
// a doubt where the kind has ledger.OnLostDoubt.
var ErrRecorded = errors.New("the handler has recorded the end itself")

// ending is an error that decides how the attempt ends.
type ending struct {
	result ledger.Result
	err    error
}

func (e *ending) Error() string { return e.err.Error() }
func (e *ending) Unwrap() error { return e.err }

// Permanent means that trying again cannot help. Of nil it is nil.
func Permanent(err error) error { return wrap(err, ledger.Permanent) }

// RetryAfter is a failure that is tried again after d, at most bounds.MaxDelay, in place of the kind's backoff; 0 means
// the backoff. Of nil it is nil.
func RetryAfter(d time.Duration, err error) error {
	return wrap(err, func(err error) ledger.Result { return ledger.RetryAfter(bounded(d), err) })
}

// Doubt means that the effect may or may not have happened: a person decides. Of nil it is nil.
func Doubt(err error) error { return wrap(err, ledger.Doubt) }

// Snooze asks for the item again after d, one second at least; it is no failure.
func Snooze(d time.Duration, why string) error {
	return &ending{ledger.Snooze(bounded(max(d, time.Second)), why), errors.New(why)}
}

// Skip completes the item: there was nothing to do.
func Skip(reason string) error { return &ending{ledger.Skip(reason), errors.New(reason)} }

// wrap returns err with the result that it means; nil for nil.
func wrap(err error, result func(error) ledger.Result) error {
	if err == nil {
		return nil
	}
	return &ending{result(err), err}
}

// bounded returns a delay within the bounds of the ledger. Handlers compute delays from times that may have passed.
func bounded(d time.Duration) time.Duration { return min(max(d, 0), bounds.MaxDelay) }

// coded is an error with a class.
type coded struct {
	code string
	err  error
}

func (e *coded) Error() string { return e.err.Error() }
func (e *coded) Unwrap() error { return e.err }

// Code gives an error a class that people count and filter by, [a-z0-9_]{1,64}. It may wrap, or be wrapped by, the
// errors of the other functions. Letters become lower case, other characters become "_". Of nil it is nil.
func Code(code string, err error) error {
	if err == nil {
		return nil
	}
	code = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToLower(code))
	return &coded{cmp.Or(code[:min(len(code), bounds.MaxCode)], "_"), err}
}

// resultOf returns the result that an error means. Of several errors in one chain the outermost decides.
func resultOf(err error) ledger.Result {
	if errors.Is(err, ErrRecorded) {
		return worker.Recorded()
	}
	res := ledger.Fail(err)
	if e := (*ending)(nil); errors.As(err, &e) {
		res = e.result
		res.Error = err.Error()
	}
	if c := (*coded)(nil); errors.As(err, &c) {
		res.Code = c.code
	}
	return res
}
