package worker

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/ledger"
)

// phase is the phase of a task.
type phase int8

const (
	claimed phase = iota // and not begun
	running              // in Handle
	ended                // settled; its end is being recorded
)

// task is one lease of this worker, from the claim until its end is recorded.
type task struct {
	lane    *lane
	lease   *ledger.Lease
	claimed time.Time // when the claim returned

	// Guarded by lane.mu.
	phase        phase
	index        int       // in lane.tasks
	trustedUntil time.Time // of the lease
	end          time.Time // of the lease, by the database's clock, as last heard
	unsure       time.Time // when the first call began that may have moved the end since; zero if there is none
	renewAt      time.Time // when the lease has to be renewed
	asked        time.Time // when the ledger was last asked about the lease, or when the task began
	busy         bool      // a call about the lease is running
	lost         bool      // the lease must not be trusted any more
	late         bool      // a warning was logged: the handler has not returned

	stopped time.Time // when it was first seen that the context has ended
	givenUp bool      // the task was removed; its handler has not returned and keeps its place

	// Set when the task begins, before another goroutine uses them.
	ctx      context.Context
	cancel   context.CancelCauseFunc
	stop     context.CancelFunc // of the timeout; nil if there is none
	began    time.Time
	deadline time.Time  // zero if there is none
	span     trace.Span // of the attempt; nil if there is none

	// Set when the task has ended.
	over    time.Time
	result  ledger.Result
	plain   bool // the result has no output, log and error text, see the function plain
	refused bool // the result is a failure with CodeInvalid in place of the handler's
}

// trustTime returns how long a lease may be trusted after the start of the call that granted it. The margin of a tenth
// is for the time until the handler notices the end of its context.
func trustTime(ttl time.Duration) time.Duration { return ttl - ttl/10 }

// renewed records the answer of a call that was to extend the lease. It has extended it only if the end has moved:
// Postgres passes over a row that another transaction has locked. If an earlier call may have moved the end, the
// lease counts from the start of that call. The caller holds lane.mu.
func (t *task) renewed(end, called time.Time) {
	if end.Equal(t.end) {
		t.asked, t.renewAt = called, called.Add(min(askEvery, t.lane.worker.config.Lease/10))
		return
	}
	since := called
	if !t.unsure.IsZero() {
		since = t.unsure
	}
	t.trust(since)
	t.end, t.unsure, t.asked = end, time.Time{}, called
}

// trust lets the lease count from the start of the call that extended it. The caller holds lane.mu.
func (t *task) trust(called time.Time) {
	ttl := t.lane.worker.config.Lease
	t.trustedUntil, t.renewAt = called.Add(trustTime(ttl)), called.Add(ttl/3)
}

// begin makes the context of the handler. The caller holds lane.mu.
func (t *task) begin(base context.Context, now time.Time, timeout time.Duration) {
	t.phase, t.began, t.asked = running, now, now
	t.ctx, t.cancel = context.WithCancelCause(t.startSpan(base))
	if timeout > 0 {
		t.deadline = now.Add(timeout)
		t.ctx, t.stop = context.WithDeadlineCause(t.ctx, t.deadline, timedOut{timeout, t.lease.Kind})
	}
}

// timedOut is a context.DeadlineExceeded with a text for people.
type timedOut struct {
	after time.Duration
	kind  string
}

func (e timedOut) Error() string {
	return fmt.Sprintf("timed out after %s (timeout of kind %s)", e.after, e.kind)
}
func (e timedOut) Unwrap() error { return context.DeadlineExceeded }

// handle gives the item to the handler. A panic in Handle itself ends the item, too.
func (t *task) handle() {
	defer func() {
		if p := recover(); p != nil {
			t.settle(panicked(p))
		}
	}()
	t.lane.handler.Handle(t.ctx, t.lease, t.settle)
}

// settle ends a running item. Only the first call counts.
func (t *task) settle(res ledger.Result) {
	now := time.Now()
	l := t.lane
	l.mu.Lock()
	if t.phase != running {
		l.mu.Unlock()
		return
	}
	t.phase = ended
	l.running--
	if t.givenUp {
		l.givenUp--
	}
	stopping := l.stopping
	l.mu.Unlock()

	if res.Outcome == ledger.OutcomeFailed {
		res = judge(res, context.Cause(t.ctx))
	}
	if res.Outcome == OutcomeRecorded && t.lease.Ended() == nil {
		res = Unrecorded()
	}
	if len(res.Emit) > 0 {
		res.Emit = withTrace(t.ctx, res.Emit)
	}
	t.over, t.result = now, res
	if t.stop != nil {
		t.stop()
	}
	t.cancel(nil)
	exchanged := l.exchanges(t)
	signal(l.more)
	if stopping {
		signal(l.changed)
	}
	switch {
	case exchanged:
	case res.Outcome == OutcomeRecorded:
		l.worker.record(t, *t.lease.Ended(), nil)
	default:
		l.worker.finisher.add(t)
	}
}

// codeUnrecorded is the code of an attempt whose handler returned Recorded without a call of FinishTx.
const codeUnrecorded = "not_recorded"

// Unrecorded replaces Recorded when the handler has not called FinishTx and still holds the lease. NoReport is set
// because the work may have been done: the kind's OnLost decides.
func Unrecorded() ledger.Result {
	return ledger.Result{Outcome: ledger.OutcomeFailed, NoReport: true, Code: codeUnrecorded,
		Error: "the handler reported that it had recorded the end of its lease, and has called no FinishTx"}
}

// log returns the logger for messages about this attempt.
func (t *task) log() *slog.Logger {
	return t.lane.log.With("item", t.lease.ID, "attempt", t.lease.Attempt, "agent", t.lease.Agent)
}
