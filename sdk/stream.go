package sdk

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/sdk/wire"
)

// session is the one stream of a process: a queue of items, as many workers as the concurrency, and
// a writer. It is made for items that take microseconds: an item has no goroutine, timer or message
// of its own. Results are gathered while there is more to do, and credits grow until about creditTime
// of work lies in the queue.
type session struct {
	inst     instance
	emits    []string
	calls    int // of the function at a time
	maxBatch int // items of a call
	maxWait  time.Duration
	doubtful bool          // OnLostDoubt: nothing may lie in the queue
	every    time.Duration // least time between two progress reports of an item; negative: every report is sent

	mu       sync.Mutex
	arrived  *sync.Cond // for workers: something to do, or the end
	changed  *sync.Cond // for waitIdle
	queue    []*wire.Item
	head     int // of the queue; items before it were taken
	running  map[attempt]*task
	results  []*wire.Result
	reports  []*wire.Progress
	held     []*task // with progress that came too soon after the one before
	idle     int     // workers that wait for items
	waking   bool    // one of them was woken, and has not looked yet
	busy     int     // calls under way; one may outlast its last task
	granted  int     // credits that the host has not used yet, and received items that have no result yet
	perItem  float64 // nanoseconds an item takes, smoothed
	draining bool
	ended    bool
	sending  bool

	wake chan struct{} // to the writer, holds one
	late *time.Timer   // wakes the writer if nothing else does
	tick *time.Timer   // for progress reports that were held back
}

// attempt identifies one attempt of an item.
type attempt struct{ id, number int64 }

const (
	creditTime = 10 * time.Millisecond  // of work in the queue
	creditMax  = 2048                   // items, however short their work is
	gather     = 128                    // as many results are sent without waiting for others
	gatherTime = 500 * time.Microsecond // how long a result may wait for others
	messageMax = 1 << 20                // bytes of results after which a message ends
	stopTime   = time.Second            // for functions that were told to stop
)

func newSession(inst instance, p *Plugin, batched bool, concurrency int, every time.Duration) *session {
	s := &session{
		inst: inst, emits: slices.Concat(p.Emits, inst.emits()), calls: concurrency, maxBatch: 1,
		doubtful: p.OnLost == OnLostDoubt, every: every,
		running: map[attempt]*task{}, wake: make(chan struct{}, 1),
	}
	if batched {
		s.maxBatch, s.maxWait = p.batch()
	}
	s.arrived, s.changed = sync.NewCond(&s.mu), sync.NewCond(&s.mu)
	s.late = time.AfterFunc(time.Hour, s.signal)
	s.tick = time.AfterFunc(time.Hour, s.passOn)
	s.late.Stop()
	s.tick.Stop()
	return s
}

// serve works the stream until the host ends it. After its return nothing is sent.
func (s *session) serve(rpc wire.Plugin_ProcessServer) error {
	for range s.calls {
		go s.worker()
	}
	written := make(chan error, 1)
	go func() { written <- s.write(rpc) }()
	s.signal() // the first credits
	err := s.read(rpc)
	if err == nil {
		s.waitIdle(rpc.Context()) // the host has no more, and gets the last results
	}
	s.end(ErrStopping)
	return errors.Join(err, <-written)
}

// end ends workers and writer, and cancels the items that are still in work.
func (s *session) end(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.cancelRunning(cause)
	s.late.Stop()
	s.tick.Stop()
	s.arrived.Broadcast()
	s.changed.Broadcast()
	s.signal()
}

func (s *session) cancelRunning(cause error) {
	for _, t := range s.running {
		t.cancel(cause)
	}
}

// read handles messages of the host until it ends the stream.
func (s *session) read(rpc wire.Plugin_ProcessServer) error {
	for {
		m, err := rpc.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		s.take(m.Items)
		for _, c := range m.Cancels {
			s.cancel(c)
		}
		s.mu.Unlock()
	}
}

// take puts items into the queue. The caller holds mu.
func (s *session) take(items []*wire.Item) {
	if s.draining {
		s.handBack(items)
		return
	}
	if s.head >= len(s.queue)/2 { // or it would grow for ever
		n := copy(s.queue, s.queue[s.head:])
		clear(s.queue[n:])
		s.queue, s.head = s.queue[:n], 0
	}
	s.queue = append(s.queue, items...)
	s.wakeOne()
}

// wakeOne wakes a worker if there are items in the queue. This worker wakes the next one if there are more. So few
// workers do items that take microseconds, and all do items that take long. The caller holds mu.
func (s *session) wakeOne() {
	switch {
	case len(s.queue) == s.head:
	case s.maxWait > 0: // workers that fill a batch wait for arrived as well
		s.arrived.Broadcast()
	case s.idle > 0 && !s.waking:
		s.waking = true
		s.arrived.Signal()
	}
}

// handBack releases items that were not begun. The caller holds mu.
func (s *session) handBack(items []*wire.Item) {
	for _, it := range items {
		s.add(&wire.Result{Id: it.Id, Attempt: it.Attempt, LockId: it.LockId, Outcome: wire.Result_OUTCOME_RELEASED})
	}
}

// cancel ends an item, begun or not. If the item is not here, its result has been sent or will be. The
// caller holds mu.
func (s *session) cancel(c *wire.Cancel) {
	cause := causeOf(c.Reason)
	if t := s.running[attempt{c.Id, c.Attempt}]; t != nil {
		t.cancel(cause)
		return
	}
	for i, it := range s.queue[s.head:] {
		if it.Id == c.Id && it.Attempt == c.Attempt {
			s.queue = slices.Delete(s.queue, s.head+i, s.head+i+1)
			r := &wire.Result{Id: it.Id, Attempt: it.Attempt, LockId: it.LockId}
			judgeCause(r, cause)
			s.add(r)
			return
		}
	}
}

// worker works items until the session ends. If the plugin's function ends its goroutine, the worker ends with it, and
// another worker takes its place.
func (s *session) worker() {
	finished := false
	defer func() {
		if !finished {
			go s.worker()
		}
	}()
	tasks := make([]*task, 0, s.maxBatch)
	for {
		tasks = s.next(tasks[:0])
		if len(tasks) == 0 {
			finished = true
			return
		}
		s.call(tasks)
	}
}

func (s *session) call(tasks []*task) {
	began := time.Now()
	defer func() { s.called(len(tasks), time.Since(began)) }()
	for _, t := range tasks {
		t.startTimeout()
	}
	s.inst.work(tasks)
}

// next waits for items and returns the items of one call; none at the end of the session.
func (s *session) next(tasks []*task) []*task {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		for len(s.queue) == s.head && !s.ended {
			s.idle++
			s.arrived.Wait()
			s.idle--
			s.waking = false
		}
		if s.maxWait > 0 {
			s.fill()
		}
		if s.ended { // also while fill waited
			return nil
		}
		n := min(s.maxBatch, len(s.queue)-s.head)
		if n == 0 {
			continue // others were faster
		}
		for _, it := range s.queue[s.head : s.head+n] {
			t := newTask(it, s)
			s.running[attempt{it.Id, it.Attempt}] = t
			tasks = append(tasks, t)
		}
		clear(s.queue[s.head : s.head+n])
		s.head += n
		s.busy++
		s.wakeOne()
		return tasks
	}
}

// fill waits until a batch is full or its time is over. The caller holds mu.
func (s *session) fill() {
	over := false
	t := time.AfterFunc(s.maxWait, func() {
		s.mu.Lock()
		over = true
		s.mu.Unlock()
		s.arrived.Broadcast()
	})
	defer t.Stop()
	for !over && !s.ended && !s.draining && len(s.queue) > s.head && len(s.queue)-s.head < s.maxBatch {
		s.arrived.Wait()
	}
}

// called notes the end of a call with n items that took d.
func (s *session) called(n int, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.changed.Broadcast()
	each := float64(d) / float64(n)
	s.perItem = cmp.Or(s.perItem, each)
	s.perItem += (each - s.perItem) / 16
}

// window is the most that granted may be: as many items as take creditTime, within bounds. The caller holds mu.
func (s *session) window() int {
	atOnce := s.calls * s.maxBatch
	switch {
	case s.doubtful:
		return atOnce
	case s.perItem == 0: // nothing is known yet
		return 2 * atOnce
	default:
		wanted := float64(s.calls) * float64(creditTime) / s.perItem
		return max(2*atOnce, int(min(wanted, creditMax)))
	}
}

// settled takes the complete result of a task. A task calls it once.
func (s *session) settled(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, attempt{t.item.Id, t.item.Attempt})
	s.add(&t.result)
}

// add gives a result to the writer. The writer sends it at once if there are many or nothing else is in work. The
// caller holds mu.
func (s *session) add(r *wire.Result) {
	s.results = append(s.results, r)
	s.granted--
	switch {
	case len(s.results) >= gather, len(s.running) == 0 && len(s.queue) == s.head:
		s.signal()
	case len(s.results) == 1:
		s.late.Reset(gatherTime)
	}
}

// progressed takes a report of a task: the first one goes out at once, later ones when it is time, the newest of each
// task.
func (s *session) progressed(t *task, p *wire.Progress) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	switch {
	case s.every < 0 || now.Sub(t.reported) >= s.every:
		t.reported, t.report = now, nil
		s.reports = append(s.reports, p)
		s.signal()
	case t.report != nil:
		t.report = p
	default:
		t.report = p
		if s.held = append(s.held, t); len(s.held) == 1 {
			s.tick.Reset(s.every - now.Sub(t.reported))
		}
	}
}

// passOn sends the reports whose time has come.
func (s *session) passOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	held, next := s.held[:0], s.every
	for _, t := range s.held {
		_, running := s.running[attempt{t.item.Id, t.item.Attempt}]
		switch wait := s.every - now.Sub(t.reported); {
		case t.report == nil || !running:
		case wait > 0:
			held, next = append(held, t), min(next, wait)
		default:
			s.reports = append(s.reports, t.report)
			t.reported, t.report = now, nil
		}
	}
	clear(s.held[len(held):])
	s.held = held
	if len(held) > 0 {
		s.tick.Reset(next)
	}
	s.signal()
}

// signal wakes the writer.
func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write sends the gathered results, reports and credits, whenever it is woken, until the session ends.
func (s *session) write(rpc wire.Plugin_ProcessServer) error {
	var spare []*wire.Result
	for {
		<-s.wake
		s.mu.Lock()
		ended := s.ended
		results := s.results
		s.results = spare[:0]
		reports := s.reports
		s.reports = nil
		credits := 0
		if !s.draining && !ended {
			credits = max(0, s.window()-s.granted)
			s.granted += credits
		}
		s.sending = true
		s.mu.Unlock()

		err := send(rpc, credits, results, reports)
		clear(results)
		spare = results

		s.mu.Lock()
		s.sending = false
		s.changed.Broadcast()
		s.mu.Unlock()
		if err != nil || ended {
			return err
		}
	}
}

// send sends one message, or several if the results are large.
func send(rpc wire.Plugin_ProcessServer, credits int, results []*wire.Result, reports []*wire.Progress) error {
	for credits > 0 || len(results) > 0 || len(reports) > 0 {
		size, n := 0, 0
		for n < len(results) && (n == 0 || size < messageMax) {
			size += sizeOf(results[n])
			n++
		}
		m := &wire.PluginMessage{Credits: int32(credits), Results: results[:n], Progress: reports}
		if err := rpc.Send(m); err != nil {
			return err
		}
		credits, reports, results = 0, nil, results[n:]
	}
	return nil
}

// sizeOf is roughly the number of bytes of a result.
func sizeOf(r *wire.Result) int {
	n := len(r.Output) + len(r.Log) + len(r.Error)
	for _, c := range r.Emit {
		n += len(c.Payload) + len(c.Key) + len(c.Scope) + len(c.Fingerprint)
	}
	return n
}

// waitIdle waits until no item is in the queue or in work and all results are sent, or ctx ends.
func (s *session) waitIdle(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock() // or the broadcast could come between the check of ctx and Wait, and be lost
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for ctx.Err() == nil && !s.ended && (s.busy > 0 || len(s.queue) > s.head || len(s.results) > 0 || s.sending) {
		s.changed.Wait()
	}
}

// drain hands back the items that were not begun. The others get the grace to end and are then cancelled. It returns
// the items that still run. All other results have been sent, unless ctx or stopTime ended first.
func (s *session) drain(ctx context.Context, grace time.Duration) (unfinished []int64) {
	s.mu.Lock()
	s.draining = true
	s.handBack(s.queue[s.head:])
	s.queue, s.head = nil, 0
	s.arrived.Broadcast()
	s.signal()
	s.mu.Unlock()

	patient, cancel := context.WithTimeout(ctx, grace)
	s.waitIdle(patient)
	cancel()
	s.mu.Lock()
	s.cancelRunning(ErrStopping)
	s.mu.Unlock()
	last, cancel := context.WithTimeout(ctx, stopTime)
	s.waitIdle(last)
	cancel()

	s.mu.Lock()
	defer s.mu.Unlock()
	for a := range s.running {
		unfinished = append(unfinished, a.id)
	}
	return unfinished
}
