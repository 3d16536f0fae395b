package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
)

// Handler works the items of one kind.
type Handler interface {
	// Handle works one item. settle is to be called exactly once, with the result, from any goroutine.
	// Handle may return before that. It must not block, because one goroutine hands out all items of the
	// kind. ctx ends when the item is cancelled, its lease is lost, its timeout is over or the worker's
	// grace has passed; context.Cause is the reason: ErrCancelled, ledger.ErrLeaseLost,
	// context.DeadlineExceeded or ErrStopping.
	Handle(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result))
}

// Governor is a Handler that decides itself how many items it takes, and ends attempts itself at their
// timeout. A handler that passes items on to a process is one.
type Governor interface {
	Handler
	// Govern gives the kind's policy to the Governor, before the first item and after each change. The
	// Governor must end attempts that take longer than the Timeout of the policy.
	Govern(policy ledger.Kind)
	// Limit returns the most items that the Governor works at a time from now on; it replaces Concurrency. If n is 0,
	// nothing is claimed, and Limit is called again at until or earlier, by time.Now.
	Limit() (n int, until time.Time)
	// HandBack is called when the worker is to stop. It settles items that have not begun as released. Items
	// that have begun may go on for as long as grace; HandBack does not wait for them.
	HandBack(grace time.Duration)
	// Stalled returns a time if the process that works the items crashes again and again: the Governor takes no items
	// until then, by time.Now. Otherwise the time is zero. The worker's heartbeat carries it to other processes.
	Stalled() time.Time
}

// Defined is a Handler with a definition that may change while the worker runs, for example because of a
// new version of a plugin.
type Defined interface {
	Handler
	// Definition returns what works the kind, as in ledger.Kind. It replaces KindConfig.Definition.
	Definition() string
	// Config returns the settings in force, as in ledger.Kind.
	Config() string
}

// Supervised is a Handler that passes items on to the process of a plugin.
type Supervised interface {
	Handler
	// Plugin returns the state of the process. The worker's heartbeat carries it to other processes.
	Plugin() health.Plugin
}

// Causes with which a handler's context ends, besides context.DeadlineExceeded for its timeout
// and ledger.ErrLeaseLost. If a handler reports a failure after ErrStopping or ErrLeaseLost, the
// interruption is probably the reason. So the item is released, and the attempt does not count as failed.
var (
	ErrCancelled = ledger.ErrCancelled
	ErrStopping  = errors.New("worker is stopping")
)

// Func is a Handler that works each item in a goroutine of its own. A panic makes the attempt fail with code "panic"
// and the stack in its log.
type Func func(ctx context.Context, lease *ledger.Lease) ledger.Result

// Handle implements Handler.
func (f Func) Handle(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result)) {
	go func() {
		returned := false
		defer func() {
			if p := recover(); p != nil {
				settle(panicked(p))
			} else if !returned { // runtime.Goexit, such as by t.FailNow
				settle(panicked("the goroutine of the handler ended"))
			}
		}()
		res := f(ctx, lease)
		returned = true
		settle(res)
	}()
}

// panicked is called while the panic is recovered, so that the stack is still there.
func panicked(p any) ledger.Result {
	return ledger.Result{Outcome: ledger.OutcomeFailed, Code: "panic", Error: fmt.Sprint("panic: ", p),
		Log: string(debug.Stack()), NoReport: true}
}

// JSON returns a Func that decodes the payload. A payload that cannot be decoded is a failure with code "payload", and
// is tried again: a newer version of the program may know it.
func JSON[T any](fn func(ctx context.Context, lease *ledger.Lease, payload T) ledger.Result) Func {
	return func(ctx context.Context, lease *ledger.Lease) ledger.Result {
		var p T
		if err := json.Unmarshal(lease.Payload, &p); err != nil {
			res := ledger.Fail(err)
			res.Code = "payload"
			return res
		}
		return fn(ctx, lease, p)
	}
}

// Recorded is the result of a handler that ended its lease itself with Ledger.FinishTx, after the transaction has
// committed. If it was rolled back, the handler returns the reason as a failure.
func Recorded() ledger.Result { return ledger.Result{Outcome: OutcomeRecorded} }

// OutcomeRecorded is the outcome of Recorded. An Event and a Report have the real outcome in its place if the handler
// called FinishTx, and OutcomeRecorded if it ended the lease in another way. The ledger never stores it.
const OutcomeRecorded ledger.Outcome = "recorded"

// judge corrects a failure that was caused by the end of the handler's context. cause is the context's cause, nil if it
// has not ended. Final failures and other outcomes stay as they are.
func judge(res ledger.Result, cause error) ledger.Result {
	if res.Outcome != ledger.OutcomeFailed || res.Final || res.NoReport {
		return res
	}
	switch {
	case errors.Is(cause, context.DeadlineExceeded):
		res.Code, res.NoReport = "timeout", true
		res.Error = strings.ReplaceAll(res.Error, context.DeadlineExceeded.Error(), cause.Error())
	case errors.Is(cause, ErrStopping):
		res.Outcome, res.Code, res.Delay = ledger.OutcomeReleased, "stopping", 0
	case errors.Is(cause, ledger.ErrLeaseLost):
		res.Outcome, res.Code, res.Delay = ledger.OutcomeReleased, "lease_lost", 0
	}
	return res
}
