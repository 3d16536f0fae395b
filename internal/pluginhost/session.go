package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// session is one process and what it has in hand. host.mu guards tasks.
type session struct {
	host   *Host
	proc   *pluginproc.Proc
	stream *pluginproc.Stream
	tasks  map[taskKey]*task
}

type taskKey struct{ id, attempt int64 }

// task is an item that the process has.
type task struct {
	key      taskKey
	ctx      context.Context
	lease    *ledger.Lease
	settle   func(ledger.Result)
	deadline time.Time   // of its timeout; zero if it has none
	ended    time.Time   // when its context ended; zero if it has not
	unwatch  func() bool // set before the item is sent
}

// add takes an item into the process's hand. The caller holds host.mu.
func (s *session) add(ctx context.Context, lease *ledger.Lease, settle func(ledger.Result), timeout time.Duration) *task {
	t := &task{key: taskKey{lease.ID, lease.Attempt}, ctx: ctx, lease: lease, settle: settle}
	if timeout > 0 {
		t.deadline = time.Now().Add(timeout)
	}
	s.tasks[t.key] = t
	return t
}

// watch tells the process when the item's context ends.
func (t *task) watch(s *session) {
	stop := context.AfterFunc(t.ctx, func() {
		s.host.mu.Lock()
		_, there := s.tasks[t.key]
		t.ended = time.Now()
		s.host.mu.Unlock()
		if there {
			s.stream.Cancel(t.key.id, t.key.attempt, cancelReason(context.Cause(t.ctx)))
		}
	})
	s.host.mu.Lock()
	t.unwatch = stop
	_, there := s.tasks[t.key]
	s.host.mu.Unlock()
	if !there {
		stop()
	}
}

// take removes a task, nil if the process does not have it.
func (s *session) take(key taskKey) *task {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	t := s.tasks[key]
	delete(s.tasks, key)
	return t
}

// settle ends a task, if the process still has it.
func (s *session) settle(key taskKey, res ledger.Result) {
	if t := s.take(key); t != nil {
		t.end(s, res)
	}
}

func (t *task) end(s *session, res ledger.Result) {
	if t.unwatch != nil {
		t.unwatch()
	}
	res.Worker = s.host.setup.definition
	t.settle(res)
}

// results are events of the stream.
func (s *session) results(all []*wire.Result) {
	for _, r := range all {
		t := s.take(taskKey{r.Id, r.Attempt})
		if t == nil {
			s.host.log.Warn("the plugin reports on an item that it does not have", "item", r.Id, "attempt", r.Attempt)
			continue
		}
		t.end(s, s.host.result(r, t))
	}
	s.host.mu.Lock()
	s.host.probing = false
	s.host.mu.Unlock()
}

func (s *session) progress(all []*wire.Progress) {
	report := s.host.config.Progress
	if report == nil {
		return
	}
	for _, p := range all {
		s.host.mu.Lock()
		t := s.tasks[taskKey{p.Id, p.Attempt}]
		s.host.mu.Unlock()
		if t != nil {
			report(Progress{ItemID: p.Id, Key: t.lease.Key, Done: p.Done, Total: p.Total, Unit: p.Unit})
		}
	}
}

// tend looks after the process until it has ended, and settles what it leaves behind.
func (s *session) tend() {
	tick := time.NewTicker(tendEvery)
	defer tick.Stop()
	health := make(chan error, 1)
	asked, misses := time.Now(), 0
	for {
		select {
		case <-s.proc.Done():
			s.left(s.proc.Err())
			return
		case err := <-health:
			if misses++; err == nil {
				misses = 0
			}
			if misses >= healthMisses {
				s.host.log.Error("the plugin does not answer; its process is killed", "error", err)
				s.kill(func(*task) ledger.Result { return ledger.Crashed("the plugin did not answer and was killed") })
			}
			asked = time.Now()
		case now := <-tick.C:
			if late := s.overdue(now); late > 0 {
				s.host.log.Error("the plugin did not end items in time; its process is killed", "items", late)
				s.kill(func(t *task) ledger.Result { return t.overdue(now) })
			}
			if !asked.IsZero() && now.Sub(asked) >= healthEvery {
				asked = time.Time{}
				go func() {
					ctx, cancel := context.WithTimeout(context.Background(), healthWait)
					defer cancel()
					health <- s.proc.Ping(ctx)
				}()
			}
		}
	}
}

// late says whether an item should have ended long ago.
func (t *task) late(now time.Time) bool {
	return !t.ended.IsZero() && now.Sub(t.ended) > overrun || !t.deadline.IsZero() && now.Sub(t.deadline) > overrun
}

// overdue counts the items that should have ended long ago.
func (s *session) overdue(now time.Time) (n int) {
	s.host.mu.Lock()
	defer s.host.mu.Unlock()
	for _, t := range s.tasks {
		if t.late(now) {
			n++
		}
	}
	return n
}

// overdue is how an item ends whose process is killed because some items did not end.
func (t *task) overdue(now time.Time) ledger.Result {
	switch {
	case !t.late(now):
		return ledger.Release()
	case !t.deadline.IsZero() && !now.Before(t.deadline):
		res := ledger.Fail(fmt.Errorf("did not end within %s of its timeout; its process was killed", overrun))
		res.Code, res.NoReport = "timeout", true
		return res
	}
	res := ledger.Fail(fmt.Errorf("did not end within %s of being told to stop; its process was killed", overrun))
	res.Code, res.NoReport = "killed", true
	return res
}

// kill ends the process and everything that it has.
func (s *session) kill(how func(*task) ledger.Result) {
	s.host.mu.Lock()
	tasks := s.tasks
	s.tasks = map[taskKey]*task{}
	s.host.mu.Unlock()
	s.proc.Kill()
	for _, t := range tasks {
		t.end(s, how(t))
	}
}

// left settles what a process had in hand when it ended.
func (s *session) left(err error) {
	h := s.host
	h.mu.Lock()
	tasks := s.tasks
	s.tasks = map[taskKey]*task{}
	h.session = nil
	crash, crashed := errors.AsType[*pluginproc.CrashError](err)
	if crashed {
		h.crashed(time.Now())
	}
	h.mu.Unlock()
	res := ledger.Release()
	if crashed {
		h.log.Error("the plugin's process died", "error", crash, "items", len(tasks))
		res = ledger.Crashed(crash.Error() + "\n" + crash.Stderr)
		res.Log = crash.Stderr
	}
	for _, t := range tasks {
		t.end(s, res)
	}
}

// cancelReason says to the plugin why a context ended.
func cancelReason(cause error) wire.Cancel_Reason {
	switch {
	case errors.Is(cause, worker.ErrCancelled):
		return wire.Cancel_REASON_CANCELLED
	case errors.Is(cause, ledger.ErrLeaseLost):
		return wire.Cancel_REASON_LEASE_LOST
	case errors.Is(cause, context.DeadlineExceeded):
		return wire.Cancel_REASON_TIMEOUT
	}
	return wire.Cancel_REASON_STOPPING
}
