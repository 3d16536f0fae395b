package pluginproc

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Session sends items to a plugin and receives its results and reports. T is what the host keeps with an item.
//
// A plugin does not report when it begins an item. It begins items in the order in which it got them, and works as many
// at a time as it has places. So an item has begun at the latest when fewer unfinished items than places are before it.
// Its timeout runs from then on. It may have begun earlier: a result may still be on its way, or be lost with the
// process. So each item that the process had when it died may have caused the crash.
type Session[T any] struct {
	Stream *Stream // for cancels, and for messages that a session does not send
	config SessionConfig[T]
	more   chan struct{} // wakes feed when tasks are unsent; holds one value

	mu      sync.Mutex
	tasks   map[taskKey]*Task[T]
	unsent  []*Task[T]    // wait for credits, in order; includes tasks that are over
	waiting []*Task[T]    // sent and not begun, in order; includes tasks that are over
	begun   int           // tasks that have certainly begun, and are not over
	news    chan struct{} // closed after tasks were sent and after results; nil while no caller waits
}

// SessionConfig is the configuration of a session. Settle, Report and Stray are called one at a time, without locks,
// from the goroutine that reads the stream.
type SessionConfig[T any] struct {
	Places int           // items that the plugin works at a time
	Wait   time.Duration // for a batch to fill; added to each timeout
	// Reason converts the cause of a context that has ended into the reason for the plugin. Required if tasks have a
	// Context. It must not call the session.
	Reason func(cause error) wire.Cancel_Reason
	// Settle gets the one result of a task, and the task is over. If it is nil, Task.Result has the result.
	Settle func(*Task[T], *wire.Result)
	// Report gets each report of progress; nil means that reports are dropped.
	Report func(*Task[T], *wire.Progress)
	// Stray gets results of attempts that the session does not have. Required.
	Stray func(*wire.Result)
}

type taskKey struct{ id, attempt int64 }

// Task is one attempt at an item. The host sets the exported fields before Add, except Result.
type Task[T any] struct {
	Of      T
	Item    *wire.Item
	Context context.Context // when it ends, the plugin is told to end the item; nil means that it never ends
	Timeout time.Duration   // from the begin until the plugin is told to end the item; 0 means none
	Result  *wire.Result    // nil until the task is over, and if it was taken back

	sent, begun, over bool
	deadline          time.Time // of its timeout; zero without a timeout, and before it has begun
	told              time.Time // when the plugin was told to end it
}

func (t *Task[T]) key() taskKey { return taskKey{t.Item.Id, t.Item.Attempt} }

// OpenSession opens the stream of p, a process or its stand-in, and begins a session on it.
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

// Add sends tasks as soon as there are credits. It does not wait.
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

// feed sends tasks that wait for credits, until the stream has ended.
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

// begin marks the tasks that have begun by now. The caller holds mu.
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

// tell wakes the callers of Wait. The caller holds mu.
func (s *Session[T]) tell() {
	if s.news != nil {
		close(s.news)
		s.news = nil
	}
}

// results handles results from the stream.
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

// progress handles reports of progress from the stream.
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

// Starved is how many tasks wait for credits while the plugin has nothing in hand.
func (s *Session[T]) Starved() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tasks {
		if t.sent {
			return 0
		}
	}
	return len(s.tasks)
}

// Unsent removes the tasks that were not sent to the plugin yet, and returns them.
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

// Left removes all tasks and returns them.
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

// End tells the plugin to end the items whose context or timeout is over. It removes those of them that were not sent
// yet and returns them. overrun reports whether an item goes on although the plugin was told to end it longer than most
// ago. End reads the clock itself: after this process was frozen, the time of a tick is too early.
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

// toEnd reports whether the plugin has to end an item, and the reason.
func (s *Session[T]) toEnd(t *Task[T], now time.Time) (wire.Cancel_Reason, bool) {
	if t.Context == nil || t.Context.Err() == nil {
		return wire.Cancel_REASON_TIMEOUT, t.TimedOut(now)
	}
	return s.config.Reason(context.Cause(t.Context)), true
}

// Sent reports whether the item was sent to the plugin. Call it within Wait, or for a task that is over.
func (t *Task[T]) Sent() bool { return t.sent }

// Over reports whether the task has its result or was taken back. Call it within Wait.
func (t *Task[T]) Over() bool { return t.over }

// Overran reports whether the plugin was told to end the item longer than most before now. Call it for a task that is
// over.
func (t *Task[T]) Overran(now time.Time, most time.Duration) bool {
	return !t.told.IsZero() && now.Sub(t.told) > most
}

// TimedOut reports whether the item's timeout had passed by now. Call it for a task that is over.
func (t *Task[T]) TimedOut(now time.Time) bool { return !t.deadline.IsZero() && now.After(t.deadline) }

// Wait waits until state is true for each of the tasks: (*Task[T]).Sent or (*Task[T]).Over. Errors are ErrEnded and the
// cause of ctx; missing is then the number of tasks for which state is false.
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
