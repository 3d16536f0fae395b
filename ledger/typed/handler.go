package typed

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/worker"
)

// Middleware wraps a handler: it gets the next function and returns the one that is called in its place. See Lease for
// the lease in ctx.
type Middleware func(next worker.Func) worker.Func

// Handler makes a handler of a function that works a value; it panics if the function is nil. The first middleware is
// the outermost one. A payload that does not decode is a failure with code "payload", an item of another kind one with
// code "kind".
func (k Kind[T]) Handler(fn func(context.Context, T) error, middleware ...Middleware) worker.Func {
	if fn == nil {
		panic("typed: the handler of kind " + k.Name + " is nil")
	}
	return handler(k.Name, func(ctx context.Context, v T) ([]byte, error) { return nil, fn(ctx, v) }, middleware)
}

// Returning is Handler for a function that also returns a result. The attempt keeps the result as its output, as JSON,
// also with an error.
func Returning[T, R any](k Kind[T], fn func(context.Context, T) (R, error), middleware ...Middleware) worker.Func {
	if fn == nil {
		panic("typed: the handler of kind " + k.Name + " is nil")
	}
	return handler(k.Name, func(ctx context.Context, v T) ([]byte, error) {
		r, err := fn(ctx, v)
		output, bad := json.Marshal(r)
		if bad != nil && err == nil { // the work was done, but its result cannot be stored
			err = Permanent(Code("output", bad))
		}
		return output, err
	}, middleware)
}

func handler[T any](kind string, fn func(context.Context, T) ([]byte, error), middleware []Middleware) worker.Func {
	decoded := worker.JSON(func(ctx context.Context, _ *ledger.Lease, v T) ledger.Result {
		output, err := fn(ctx, v)
		res := ledger.Done(nil)
		if err != nil {
			res = resultOf(err)
		}
		if res.Outcome == worker.OutcomeRecorded {
			return res
		}
		res.Output = output
		if a := attemptOf(ctx); a != nil && res.Outcome.Completed() { // nil: a middleware has passed on another context
			res.Emit = a.emitted()
		}
		return res
	})
	work := worker.Func(func(ctx context.Context, lease *ledger.Lease) ledger.Result {
		if lease.Kind != kind {
			res := ledger.Fail(fmt.Errorf("the handler of kind %s was given an item of kind %s: name it %[1]s in worker.Config",
				kind, lease.Kind))
			res.Code = "kind"
			return res
		}
		return decoded(ctx, lease)
	})
	for _, m := range slices.Backward(middleware) {
		work = m(work)
	}
	return func(ctx context.Context, lease *ledger.Lease) ledger.Result {
		return work(context.WithValue(ctx, attemptKey{}, &attempt{lease: lease}), lease)
	}
}

// attempt is the value in the ctx of a handler.
type attempt struct {
	lease *ledger.Lease
	mu    sync.Mutex
	emit  []ledger.NewItem
}

type attemptKey struct{}

func attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(attemptKey{}).(*attempt)
	return a
}

func (a *attempt) emitted() []ledger.NewItem {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.emit
}

// Lease returns the lease of the item that a handler works; nil outside of a handler.
func Lease(ctx context.Context) *ledger.Lease {
	if a := attemptOf(ctx); a != nil {
		return a.lease
	}
	return nil
}

func (a *attempt) add(n ledger.NewItem) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.emit) == bounds.MaxEmit {
		return &ledger.InvalidError{Field: "emit", Reason: fmt.Sprintf("at most %d items", bounds.MaxEmit)}
	}
	a.emit = append(a.emit, n)
	return nil
}

// Emit adds the items of values when the handler's own item is done or skipped, in the same transaction. Known items
// with another payload stay as they are, also with Refuse: there is no caller who could get the error.
//
// Without Scope of the kind, the scope is KIND/ID of the handler's item: two items that emit the same key make two
// items, also with PerPeriod. If the key is to be worked once for all of them, give the kind a Scope.
//
// Emit fails outside of a handler, and for values that make no valid item. After an error, the values before the
// refused one are still added.
func Emit[T any](ctx context.Context, k Kind[T], vs ...T) error {
	a := attemptOf(ctx)
	if a == nil {
		return &ledger.Error{Kind: ledger.ErrInvalid, Message: "typed.Emit: this context is of no handler",
			Hint: "pass on the ctx that the handler got, or use Add"}
	}
	k.Scope = cmp.Or(k.Scope, fmt.Sprintf("%s/%d", a.lease.Kind, a.lease.ID)) // PerPeriod appends the period
	for _, v := range vs {
		n, err := k.Item(a.lease.StartedAt, v)
		if err == nil {
			err = ledger.CheckItem(n)
		}
		if err == nil {
			err = a.add(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

type logKey struct{}

// Logger returns the logger of [Logging], or else slog.Default, with the fields kind, item, key and attempt.
func Logger(ctx context.Context) *slog.Logger {
	log, _ := ctx.Value(logKey{}).(*slog.Logger)
	log = cmp.Or(log, slog.Default())
	if l := Lease(ctx); l != nil {
		log = log.With("kind", l.Kind, "item", l.ID, "key", l.Key, "attempt", l.Attempt)
	}
	return log
}

// Logging gives handlers a logger and logs the end of each attempt: at Info, at Warn if it failed or is in doubt, at
// Error if the handler panicked.
func Logging(log *slog.Logger) Middleware {
	return func(next worker.Func) worker.Func {
		return func(ctx context.Context, lease *ledger.Lease) ledger.Result {
			ctx = context.WithValue(ctx, logKey{}, log)
			began := time.Now()
			returned := false
			defer func() {
				if !returned {
					Logger(ctx).Error("the handler did not return", "took", time.Since(began))
				}
			}()
			res := next(ctx, lease)
			returned = true
			fields := []any{"outcome", res.Outcome, "took", time.Since(began)}
			level := slog.LevelInfo
			if res.Outcome.FailedOrUncertain() {
				level = slog.LevelWarn
				fields = append(fields, "code", res.Code, "error", res.Error)
			}
			Logger(ctx).Log(ctx, level, "attempt ended", fields...)
			return res
		}
	}
}
