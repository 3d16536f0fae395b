package pluginhost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/tracing"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// item converts a leased item for the plugin, without its timeout. ctx has the trace context of the attempt.
func item(ctx context.Context, l *ledger.Lease) *wire.Item {
	payload := l.Payload
	if payload == nil {
		payload = []byte("{}")
	}
	it := &wire.Item{Id: l.ID, Attempt: l.Attempt, Kind: l.Kind, Scope: l.Scope, Key: l.Key,
		IdempotencyKey: l.IdempotencyKey(), Payload: payload, LockId: l.LockID[:]}
	it.Traceparent, it.Tracestate = tracing.Split(tracing.Of(ctx))
	return it
}

// result converts the plugin's result for the ledger. A result that breaks the protocol becomes a final failure.
func (s *setup) result(r *wire.Result, t *task) ledger.Result {
	res := ledger.Result{Output: r.Output, Code: r.Code, Error: s.hide.Hide(r.Error), Final: r.Final,
		Delay: delay(r.DelayMs),
		Log:   s.hide.Hide(r.Log), NoReport: r.Ending != wire.Result_ENDING_RETURNED}
	switch r.Outcome {
	case wire.Result_OUTCOME_DONE:
		res.Outcome = ledger.OutcomeDone
	case wire.Result_OUTCOME_SKIPPED:
		res.Outcome = ledger.OutcomeSkipped
	case wire.Result_OUTCOME_FAILED:
		res.Outcome = ledger.OutcomeFailed
	case wire.Result_OUTCOME_SNOOZED:
		res.Outcome, res.AtMost = ledger.OutcomeSnoozed, min(max(int(r.AtMost), 0), bounds.MaxSnoozes)
	case wire.Result_OUTCOME_UNKNOWN:
		res.Outcome = ledger.OutcomeUnknown
	case wire.Result_OUTCOME_RELEASED:
		res.Outcome = ledger.OutcomeReleased
	case wire.Result_OUTCOME_CANCELLED:
		res.Outcome = ledger.OutcomeReleased // the item was not cancelled: the plugin gave it up
		if errors.Is(context.Cause(t.Context), worker.ErrCancelled) {
			res.Outcome = ledger.OutcomeCancelled
		}
	default:
		return refused("bad_result", fmt.Sprintf("the plugin reported outcome %d, which this ledgerd does not know",
			r.Outcome), res)
	}
	if len(r.Output) > 0 && !(utf8.Valid(r.Output) && json.Valid(r.Output)) {
		res.Output = nil
		return refused("bad_output", fmt.Sprintf("the plugin's output of item %d is no JSON: %s", r.Id,
			s.hide.Hide(excerpt(r.Output))), res)
	}
	res.Output = s.hide.JSON(r.Output)
	for _, c := range r.Emit {
		if strings.ContainsRune(c.Key+c.Scope+c.Fingerprint, 0) {
			return refused("emit_refused", fmt.Sprintf("the plugin emitted an item of kind %q whose key, scope or "+
				"fingerprint %q is no UTF-8 or has a NUL", c.Kind, c.Key), res)
		}
		if !slices.Contains(s.emits, c.Kind) {
			return refused("emit_refused", fmt.Sprintf("the plugin emitted an item of kind %q, which it does not declare",
				c.Kind), res)
		}
		res.Emit = append(res.Emit, child(c))
	}
	return res
}

// excerpt is the beginning of a text, quoted.
func excerpt(raw []byte) string {
	const most = 100
	if len(raw) > most {
		return fmt.Sprintf("%q…", raw[:most])
	}
	return fmt.Sprintf("%q", raw)
}

// refused is the failure that replaces a result that breaks the protocol.
func refused(code, reason string, res ledger.Result) ledger.Result {
	return ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: code, Error: reason, Output: res.Output,
		Log: res.Log}
}

// delay converts milliseconds, cut to 0 … bounds.MaxDelay.
func delay(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), bounds.MaxDelay.Milliseconds())) * time.Millisecond
}

func child(c *wire.Child) ledger.NewItem {
	n := ledger.NewItem{Kind: c.Kind, Scope: c.Scope, Key: c.Key, Fingerprint: c.Fingerprint, Payload: c.Payload,
		Priority: int16(min(max(c.Priority, math.MinInt16), math.MaxInt16))} // the ledger refuses both bounds
	if c.DueUs != 0 {
		n.Due = time.UnixMicro(c.DueUs)
	}
	return n
}
