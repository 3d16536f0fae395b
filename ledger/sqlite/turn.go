package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Phases of a turn.
const (
	queued = iota
	running
	dropped
)

// turn is one writing operation: it waits in the queue, has the connection for itself, and waits for the commit. All of
// this runs on the goroutine of the caller.
type turn struct {
	w      *writer
	ctx    context.Context
	late   bool // runs after the other turns of its tick, since they may make items claimable
	phase  atomic.Int32
	wake   chan error // receives twice: when the turn has come, and when it is committed
	ended  chan error // receives the result of the operation
	taken  bool
	failed error // error if the turn never came

	session           // from take on
	now     time.Time // the database's clock, from take on
}

func (w *writer) turn(ctx context.Context, late bool) *turn {
	return &turn{w: w, ctx: ctx, late: late, wake: make(chan error, 1), ended: make(chan error, 1)}
}

// errAbandoned ends a turn whose operation panicked.
var errAbandoned = errors.New("sqlite: the operation was abandoned")

// do runs fn in a turn and returns after the commit.
func (w *writer) do(ctx context.Context, late bool, fn func(*turn) error) error {
	t := w.turn(ctx, late)
	finished := false
	defer func() {
		if !finished {
			t.end(errAbandoned)
		}
	}()
	err := t.take()
	if err == nil {
		err = fn(t)
	}
	finished = true
	return t.end(err)
}

// take waits for the turn; later calls return the result of the first. If ctx ends earlier, take gives the turn up.
// Once the turn has come, ctx is ignored.
func (t *turn) take() error {
	if t.taken {
		return t.failed
	}
	t.taken = true
	if t.failed = t.ctx.Err(); t.failed != nil {
		return t.failed
	}
	t.w.enqueue(t)
	timer := time.NewTimer(t.w.wait)
	defer timer.Stop()
	select {
	case t.failed = <-t.wake:
		return t.failed
	case <-t.ctx.Done():
		t.failed = t.ctx.Err()
	case <-timer.C:
		cause := fmt.Errorf("waited %v", t.w.wait)
		if t.failed = locked(t.w.file.name, cause); !t.w.waiting.Load() {
			t.failed = crowded(t.w.file.name, cause)
		}
	}
	if !t.phase.CompareAndSwap(queued, dropped) { // the turn has come at the same time
		t.failed = <-t.wake
	}
	return t.failed
}

// end gives the connection back, and waits until the operation is committed, or undone if err is not nil.
func (t *turn) end(err error) error {
	switch {
	case !t.taken:
		return err
	case t.failed != nil:
		return t.failed
	}
	t.session = nil
	t.ended <- err
	if err != nil {
		return err
	}
	return <-t.wake
}
