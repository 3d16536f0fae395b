package pluginproc

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Session gives a plugin items and takes what it reports on them. T is what the host keeps with an item.
//
// A plugin does not report the begin of an item. It takes items in the order in which it got them, as many at a
// time as it has places. So the host knows when an item has begun at the latest: when fewer unfinished items than
// places are before it. Its timeout runs from then on. It may have begun earlier, because results take their time
// and are lost with the process: each item that the process had when it died may be to blame.
type Session[T any] struct {
	Stream *Stream // for cancels, and for messages that a session does not send
	config SessionConfig[T]
	more   chan struct{} // to feed: something is unsent; holds one

	mu      sync.Mutex
	tasks   map[taskKey]*Task[T]
	unsent  []*Task[T]    // in order, for lack of credits; those that are over are still among them
	waiting []*Task[T]    // sent and not begun, the same way
	begun   int           // tasks that have begun for certain, and are not over
	news    chan struct{} // closed when a task was sent, and after results; nil while no caller waits
}

// SessionConfig is what a session needs besides a process. The functions are called one at a time, from the
// stream, and without locks.
type SessionConfig[T any] struct {
	Places int           // items that the plugin works at a time
	Wait   time.Duration // for a batch to fill; it does not count for timeouts
	// Reason gives the reason an item is to end whose context has ended. Required with contexts that end.
	Reason func(cause error) wire.Cancel_Reason
	// Settle gets the one result of a task. The task is over then. Nil: Task.Result has it.
	Settle func(*Task[T], *wire.Result)
	// Report gets each report of progress; nil means that they are dropped.
	Report func(*Task[T], *wire.Progress)
	// Stray gets a result of an attempt that the plugin does not have. Required.
	Stray func(*wire.Result)
}

type taskKey struct{ id, attempt int64 }

// Task is one attempt at an item. The host sets the exported fields before Add, except Result.
type Task[T any] struct {
	Of      T
	Item    *wire.Item
	Context context.Context // the plugin is told to end the item when it ends; nil means that it does not end
	Timeout time.Duration   // from its begin until the plugin is told to end it; 0 means none
	Result  *wire.Result    // nil until it is over, and of a task without a result

	sent, begun, over bool
	deadline          time.Time // of its timeout; zero if it has none, or has not begun
	told              time.Time // when the plugin was told to end it
}

func (t *Task[T]) key() taskKey { return taskKey{t.Item.Id, t.Item.Attempt} }

// OpenSession opens the stream of a process, or of what else has one.
func OpenSession[T any](p interface{ Open(Events) (*Stream, error) }, c SessionConfig[T]) (*Session[T], error) {
	s := &Session[T]{config: c, tasks: map[taskKey]*Task[T]{}, more: make(chan struct{}, 1)}
	events := Events{Results: s.results}
	if c.Report != nil {
		events.Progress = s.progress
	}
	var err error
	if s.Stream, err = p.Open(events); err != nil {
		return nil, err
	}
	go s.feed()
	return s, nil
}

// Len is how many tasks the session has.
func (s *Session[T]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks)
}

// Add takes tasks, and sends them as soon as there are credits. It does not wait.
func (s *Session[T]) Add(tasks ...*Task[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tasks {
		s.tasks[t.key()] = t
	}
	s.unsent = append(s.unsent, tasks...)
	s.send()
}

// send sends as many tasks as there are credits for; feed sends the rest. The caller holds mu.
func (s *Session[T]) send() {
	var items []*wire.Item
	var tasks []*Task[T]
	for credits := s.Stream.Credits(); len(items) < credits && len(s.unsent) > 0; {
		t := s.unsent[0]
		s.unsent[0] = nil
		s.unsent = s.unsent[1:]
		if !t.over {
			items, tasks = append(items, t.Item), append(tasks, t)
		}
	}
	if len(items) > 0 && s.Stream.Send(items) != nil {
		return // the stream has ended: Left has them
	}
	for _, t := range tasks {
		t.sent = true
	}
	s.waiting = append(s.waiting, tasks...)
	s.begin()
	s.tell()
	if len(s.unsent) > 0 {
		select {
		case s.more <- struct{}{}:
		default:
		}
	}
}

// feed sends what has to wait for credits, until the stream has ended.
func (s *Session[T]) feed() {
	for {
		select {
		case <-s.more:
		case <-s.Stream.Ended():
			return
		}
		if _, err := s.Stream.WaitCredits(context.Background()); err != nil {
			return
		}
		s.mu.Lock()
		s.send()
		s.mu.Unlock()
	}
}

// begin notes which tasks can have begun by now. The caller holds mu.
func (s *Session[T]) begin() {
	for len(s.waiting) > 0 && s.begun < s.config.Places {
		t := s.waiting[0]
		s.waiting[0] = nil
		s.waiting = s.waiting[1:]
		if t.over {
			continue
		}
		t.begun = true
		s.begun++
		if t.Timeout > 0 {
			t.deadline = time.Now().Add(t.Timeout + s.config.Wait)
		}
	}
}

// take removes a task, nil if the session does not have it. The caller holds mu.
func (s *Session[T]) take(key taskKey) *Task[T] {
	t := s.tasks[key]
	if t == nil {
		return nil
	}
	delete(s.tasks, key)
	t.over = true
	if t.begun {
		s.begun--
		s.begin()
	}
	return t
}

// tell wakes those that wait for news. The caller holds mu.
func (s *Session[T]) tell() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// results are events of the stream.
func (s *Session[T]) results(all []*wire.Result) {
	tasks := make([]*Task[T], len(all))
	s.mu.Lock()
	for i, r := range all {
		if tasks[i] = s.take(taskKey{r.Id, r.Attempt}); tasks[i] != nil {
			tasks[i].Result = r
		}
	}
	s.mu.Unlock()
	for i, r := range all {
		switch {
		case tasks[i] == nil:
			s.config.Stray(r)
		case s.config.Settle != nil:
			s.config.Settle(tasks[i], r)
		}
	}
	s.mu.Lock()
	s.tell()
	s.mu.Unlock()
}

// progress are events of the stream.
func (s *Session[T]) progress(all []*wire.Progress) {
	for _, p := range all {
		s.mu.Lock()
		t := s.tasks[taskKey{p.Id, p.Attempt}]
		s.mu.Unlock()
		if t != nil {
			s.config.Report(t, p)
		}
	}
}

// Unsent takes back the tasks that the plugin has not got yet.
func (s *Session[T]) Unsent() (unsent []*Task[T]) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.unsent {
		if !t.over {
			unsent = append(unsent, s.take(t.key()))
		}
	}
	s.unsent = nil
	return unsent
}

// Left takes back all tasks.
func (s *Session[T]) Left() []*Task[T] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsent, s.waiting = nil, nil
	left := slices.Collect(maps.Values(s.tasks))
	for _, t := range left {
		s.take(t.key())
	}
	return left
}

// End tells the plugin which items are to end. It takes back those that the plugin has not got yet, and reports
// whether one goes on that was told longer ago than most. It reads the clock itself: a tick that was due while this
// process was frozen bears the time at which it was due, and a plugin would seem to have had its time since.
func (s *Session[T]) End(most time.Duration) (unsent []*Task[T], overrun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for key, t := range s.tasks {
		reason, ends := s.toEnd(t, now)
		switch {
		case !ends:
		case !t.sent:
			unsent = append(unsent, s.take(key))
		case t.told.IsZero():
			t.told = now
			s.Stream.Cancel(key.id, key.attempt, reason)
		}
		overrun = overrun || t.Overran(now, most)
	}
	return unsent, overrun
}

// toEnd reports whether an item is to end, and why.
func (s *Session[T]) toEnd(t *Task[T], now time.Time) (wire.Cancel_Reason, bool) {
	if t.Context == nil || t.Context.Err() == nil {
		return wire.Cancel_REASON_TIMEOUT, t.TimedOut(now)
	}
	return s.config.Reason(context.Cause(t.Context)), true
}

// Sent reports whether the plugin has got the item. Call it within Wait, or of a task that is over.
func (t *Task[T]) Sent() bool { return t.sent }

// Over reports whether the task has its result or was taken back. Call it within Wait.
func (t *Task[T]) Over() bool { return t.over }

// Overran reports whether the item should have ended long ago. Call it of a task that is over.
func (t *Task[T]) Overran(now time.Time, most time.Duration) bool {
	return !t.told.IsZero() && now.Sub(t.told) > most
}

// TimedOut reports whether the item had its time, if it has ended by now. Call it of a task that is over.
func (t *Task[T]) TimedOut(now time.Time) bool { return !t.deadline.IsZero() && now.After(t.deadline) }

// Wait waits until each of the tasks is in a state, such as (*Task[T]).Sent or (*Task[T]).Over. With an error,
// ErrEnded or the cause of ctx, it describes how many are not.
func (s *Session[T]) Wait(ctx context.Context, state func(*Task[T]) bool, tasks ...*Task[T]) (missing int, err error) {
	for {
		s.mu.Lock()
		missing = 0
		for _, t := range tasks {
			if !state(t) {
				missing++
			}
		}
		if s.news == nil {
			s.news = make(chan struct{})
		}
		news := s.news
		s.mu.Unlock()
		switch {
		case missing == 0:
			return 0, nil
		case err != nil:
			return missing, err
		}
		select {
		case <-news:
		case <-s.Stream.Ended():
			err = ErrEnded
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
}
