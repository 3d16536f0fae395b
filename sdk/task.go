package sdk

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/propagation"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// task is one attempt in work.
type task struct {
	item    *wire.Item
	session *session
	ctx     context.Context
	cancel  context.CancelCauseFunc
	stop    context.CancelFunc // of the timeout; nil if there is none

	mu      sync.Mutex
	result  wire.Result // complete once settled
	settled bool
	size    int // bytes of the emitted items
	log     *logTail

	// The session uses these.
	report   *wire.Progress // the newest one that was not passed on yet
	reported time.Time      // when a report was passed on last
}

func newTask(it *wire.Item, s *session) *task {
	t := &task{item: it, session: s}
	t.ctx, t.cancel = context.WithCancelCause(traced(it))
	return t
}

// traced is the context of an item: with its trace context, so that spans of the function are children of the attempt.
func traced(it *wire.Item) context.Context {
	if it.Traceparent == "" {
		return context.Background()
	}
	return propagation.TraceContext{}.Extract(context.Background(),
		propagation.MapCarrier{"traceparent": it.Traceparent, "tracestate": it.Tracestate})
}

// startTimeout begins the time that the attempt may take.
func (t *task) startTimeout() {
	if ms := t.item.TimeoutMs; ms > 0 {
		t.ctx, t.stop = context.WithTimeout(t.ctx, time.Duration(ms)*time.Millisecond)
	}
}

// settle ends the attempt; only the first call counts.
func (t *task) settle(output []byte, err error) {
	t.mu.Lock()
	if t.settled {
		t.mu.Unlock()
		return
	}
	t.settled = true
	t.mu.Unlock() // the methods of err are the author's: they may panic, or log
	r := &t.result
	r.Id, r.Attempt, r.LockId, r.Output = t.item.Id, t.item.Attempt, t.item.LockId, output
	var p *panicError
	if failed := caught(func() error { judge(r, t.ctx, err); errors.As(err, &p); return nil }); failed != nil {
		judge(r, t.ctx, failed)
		errors.As(failed, &p)
	}
	if errors.Is(context.Cause(t.ctx), context.DeadlineExceeded) { // not what people want to read
		r.Error = cleanText(strings.ReplaceAll(r.Error, context.DeadlineExceeded.Error(), t.overTime()), wire.MaxError)
	}
	t.mu.Lock()
	if p != nil {
		t.tail().Write(p.stack) // never fails
	}
	if t.log != nil {
		r.Log = t.log.String()
	}
	if r.Outcome != wire.Result_OUTCOME_DONE && r.Outcome != wire.Result_OUTCOME_SKIPPED {
		r.Emit = nil
	}
	t.mu.Unlock()
	if t.stop != nil {
		t.stop()
	}
	t.cancel(nil)
	t.session.settled(t)
}

// overTime describes an exceeded deadline for people.
func (t *task) overTime() string {
	if ms := t.item.TimeoutMs; ms > 0 {
		return fmt.Sprintf("timed out after %s (timeout of kind %s)", time.Duration(ms)*time.Millisecond, t.item.Kind)
	}
	return "timed out"
}

// emit adds a child to the result. Its error is permanent: a further attempt would emit the same child.
func (t *task) emit(c Child) error { return Permanent(Code("emit_refused", t.add(c))) }

func (t *task) add(c Child) error {
	w := &wire.Child{Kind: c.Kind, Scope: c.Scope, Key: c.Key, Fingerprint: c.Fingerprint, Priority: int32(c.Priority)}
	if w.Scope == "" {
		w.Scope = fmt.Sprintf("%s/%d", t.item.Kind, t.item.Id)
	}
	if !c.Due.IsZero() {
		w.DueUs = c.Due.UnixMicro()
	}
	if c.Payload != nil {
		var err error
		if w.Payload, err = json.Marshal(c.Payload); err != nil {
			return fmt.Errorf("emit %s %q: payload: %w", c.Kind, c.Key, err)
		}
	}
	if err := t.checkChild(w); err != nil {
		return fmt.Errorf("emit %s %q: %w", c.Kind, cleanText(c.Key, 80), err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	size := len(w.Payload) + len(w.Key) + len(w.Scope) + len(w.Fingerprint) + 64
	switch {
	case t.settled:
		return fmt.Errorf("emit %s %q: the attempt has ended", c.Kind, c.Key)
	case len(t.result.Emit) == wire.MaxEmit:
		return fmt.Errorf("emit: an attempt may emit %d items; have some of them emit the rest", wire.MaxEmit)
	case t.size+size > wire.MaxEmitBytes:
		return fmt.Errorf("emit: an attempt may emit %d bytes", wire.MaxEmitBytes)
	}
	t.size += size
	t.result.Emit = append(t.result.Emit, w)
	return nil
}

func (t *task) checkChild(c *wire.Child) error {
	switch {
	case !slices.Contains(t.session.emits, c.Kind):
		return errors.New("neither the plugin nor its config declares this kind")
	case c.Key == "":
		return errors.New("key is empty")
	case len(c.Key) > wire.MaxKey:
		return fmt.Errorf("key has %d bytes, at most %d", len(c.Key), wire.MaxKey)
	case len(c.Scope) > wire.MaxScope:
		return fmt.Errorf("scope has %d bytes, at most %d", len(c.Scope), wire.MaxScope)
	case len(c.Payload) > wire.MaxPayload:
		return fmt.Errorf("payload has %d bytes, at most %d", len(c.Payload), wire.MaxPayload)
	case c.Priority < -2 || c.Priority > 2:
		return fmt.Errorf("priority %d is not between -2 and 2", c.Priority)
	}
	for _, s := range []string{c.Key, c.Scope, c.Fingerprint} {
		if !utf8.ValidString(s) || slices.Contains([]byte(s), 0) {
			return errors.New("key, scope and fingerprint must be UTF-8 without NUL")
		}
	}
	return nil
}

// progress passes a report on. The session decides how often reports are sent.
func (t *task) progress(done, total int64, unit string) {
	t.session.progressed(t, &wire.Progress{
		Id: t.item.Id, Attempt: t.item.Attempt, Done: done, Total: total, Unit: cleanText(unit, wire.MaxKind),
	})
}

// batchEnd ends the context of a batch when all of its items that are not settled were told to end.
type batchEnd struct {
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	state []itemState
	count [3]int // of items, by state
	cause error  // why an item was told to end, of the last such item
}

type itemState int

// States of an item of a batch, in their order.
const (
	itemOpen itemState = iota
	itemTold           // to end
	itemSettled
)

// is notes the state of item i. cause tells why an item was told to end.
func (e *batchEnd) is(i int, s itemState, cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s <= e.state[i] {
		return
	}
	e.count[e.state[i]]--
	e.count[s]++
	e.state[i] = s
	e.cause = cmp.Or(cause, e.cause)
	if e.count[itemOpen] == 0 && e.count[itemTold] > 0 {
		e.cancel(e.cause)
	}
}

// batchContext returns the context of a batch. It ends when the timeout is over, or when all items that are not settled
// were told to end. Call settled for each item that is settled, and stop at the end.
func batchContext(timeoutMs int64, items []context.Context) (ctx context.Context, settled func(i int), stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	end := &batchEnd{cancel: cancel, state: make([]itemState, len(items)), count: [3]int{itemOpen: len(items)}}
	stops := make([]func() bool, len(items))
	for i, item := range items {
		stops[i] = context.AfterFunc(item, func() {
			if cause := context.Cause(item); cause != context.Canceled { // Canceled: the item was settled
				end.is(i, itemTold, cause)
			}
		})
	}
	stopTimeout := context.CancelFunc(func() {})
	if timeoutMs > 0 {
		ctx, stopTimeout = context.WithTimeout(ctx, time.Duration(timeoutMs)*time.Millisecond)
	}
	return ctx, func(i int) { end.is(i, itemSettled, nil) }, func() {
		for _, stop := range stops {
			stop()
		}
		stopTimeout()
		cancel(nil)
	}
}

func (t *task) logger() *slog.Logger { return slog.New(logHandler{t}) }
