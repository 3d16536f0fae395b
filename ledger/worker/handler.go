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
)

// Handler works the items of one kind.
type Handler interface {
	// Handle works one item and calls settle exactly once, from any goroutine and also after
	// it returned. It must not wait: it is called by the one goroutine that hands out the items
	// of the kind. ctx ends when the item is cancelled, its lease is lost, its timeout is over
	// or the worker's grace has passed; context.Cause says which:
	// ErrCancelled, ledger.ErrLeaseLost, context.DeadlineExceeded or ErrStopping.
	Handle(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result))
}

// Governor is a Handler that decides itself how much it takes and keeps time itself: one that
// passes items on to a process.
type Governor interface {
	Handler
	// Govern tells the kind's policy, before the first item and whenever it has changed. Ending
	// attempts that take longer than its Timeout is the Governor's matter.
	Govern(policy ledger.Kind)
	// Limit is the most items in Handle at a time from now on; it replaces Concurrency. With 0
	// nothing is claimed, and until is when to look again, by time.Now.
	Limit() (n int, until time.Time)
	// HandBack is called once the worker is to stop: what has not begun is settled as released, what has may
	// go on for as long as grace. It does not wait. Items may come again later, of another worker.
	HandBack(grace time.Duration)
	// Stalled is until when, by time.Now, nothing is taken because what works the items crashes
	// again and again; the zero time says that this is not so. The worker's heartbeat tells it to others.
	Stalled() time.Time
}

// Defined is a Handler that says itself what works the kind, see ledger.Kind: it may come to be
// another version while the worker runs. KindConfig.Definition is not asked then.
type Defined interface {
	Handler
	Definition() string
	// Config are the settings in force, as in ledger.Kind.
	Config() string
}

// Causes with which a handler's context ends, besides context.DeadlineExceeded for its timeout
// and ledger.ErrLeaseLost. A failure that is reported after ErrStopping or ErrLeaseLost is
// taken for the interruption that it probably is: the item is released.
var (
	ErrCancelled = ledger.ErrCancelled
	ErrStopping  = errors.New("worker is stopping")
)

// Func is a Handler that works each item in a goroutine of its own. A panic is a failed
// attempt with code "panic" and the stack in its log.
type Func func(ctx context.Context, lease *ledger.Lease) ledger.Result

// Handle implements Handler.
func (f Func) Handle(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result)) {
	go func() {
		returned := false
		defer func() {
			if p := recover(); p != nil {
				settle(panicked(p))
			} else if !returned { // runtime.Goexit, of which t.FailNow is one
				settle(panicked("the goroutine of the handler ended"))
			}
		}()
		res := f(ctx, lease)
		returned = true
		settle(res)
	}()
}

// panicked is called while the panic is being recovered from, so that its stack is there.
func panicked(p any) ledger.Result {
	return ledger.Result{Outcome: ledger.OutcomeFailed, Code: "panic", Error: fmt.Sprint("panic: ", p), Log: string(debug.Stack()), NoReport: true}
}

// JSON is a Func with a decoded payload; a payload that does not decode fails for good with
// code "payload".
func JSON[T any](fn func(ctx context.Context, lease *ledger.Lease, payload T) ledger.Result) Func {
	return func(ctx context.Context, lease *ledger.Lease) ledger.Result {
		var p T
		if err := json.Unmarshal(lease.Payload, &p); err != nil {
			res := ledger.Permanent(err)
			res.Code = "payload"
			return res
		}
		return fn(ctx, lease, p)
	}
}

// Recorded is returned by a handler that ended its lease itself with Ledger.FinishTx.
func Recorded() ledger.Result { return ledger.Result{Outcome: OutcomeRecorded} }

// OutcomeRecorded stands in events and reports for an attempt whose handler recorded its end
// itself. The ledger never stores it.
const OutcomeRecorded ledger.Outcome = "recorded"

// judge turns what a handler said into what is reported, given why its context had ended (nil
// if it had not). What a handler reports as final, or as anything but a failure, stands.
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
