package worker

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

const (
	claimMost   = 1000                   // items of one claim
	bufferMost  = 2000                   // items claimed ahead, before they can begin
	bufferBytes = 16 << 20               // payloads of these items, roughly
	bufferTime  = 500 * time.Millisecond // of work in the buffer; far less than a lease
	lookAgain   = 50 * time.Millisecond  // pause after the first claim that found nothing
	claimShare  = 4                      // if rates hold items back, the pause after a claim is so many times its duration
)

// claimLoop claims until ctx ends. Ended tasks that made room for items are ended in the same call as the next claim.
func (l *lane) claimLoop(ctx context.Context) {
	w := l.worker
	defer signal(w.look)
	var pause backoff
	var toEnd []*task
	defer func() { w.finisher.add(toEnd...) }()
	empty, short := false, false // the last claim found nothing, or less than it asked for
	for ctx.Err() == nil && !w.quota.spent() {
		now := time.Now()
		limit, until := l.limit()
		l.mu.Lock()
		l.pace.measure(now)
		n := l.wanted(limit)
		l.mu.Unlock()
		if n = w.quota.take(n); n == 0 {
			w.finisher.add(toEnd...)
			toEnd = l.waitForRoom(ctx, limit, until.Sub(now))
			continue
		}
		got, lone, held, err := l.claim(ledger.Claim{Limit: n, LookFirst: short}, toEnd)
		for i := range lone {
			l.runAlone(lone[i:])
		}
		toEnd = nil
		w.quota.took(n, got)
		if w.failed("claim", err) {
			sleep(ctx, pause.next())
			continue
		}
		pause = 0
		hinted := len(l.hint) > 0
		if got == 0 {
			hinted = l.waitForHint(ctx, empty, held, time.Since(now))
		}
		empty, short = got == 0, got < n && !hinted
	}
}

// waitForRoom waits until more items may be claimed. The quota and a governor do not signal that: they are asked
// regularly, and a governor that takes no items at the time that it gave. It returns the tasks that made the room and
// were not given to the finisher; see exchange.
func (l *lane) waitForRoom(ctx context.Context, limit int, until time.Duration) (toEnd []*task) {
	var most time.Duration
	if l.governor != nil || l.worker.quota.limited() {
		most = l.worker.config.Poll
	}
	if limit == 0 && until > 0 {
		most = min(most, until)
	}
	if limit == 0 {
		signal(l.worker.look) // the lane cannot claim, so it may be idle
	}
	l.mu.Lock()
	l.waitLimit = limit
	l.mu.Unlock()
	wait(ctx, l.room, most)
	l.mu.Lock()
	defer l.mu.Unlock()
	toEnd, l.toEnd, l.waitLimit = l.toEnd, nil, 0
	return toEnd
}

// waitForHint waits after a claim that found nothing. Maybe no item is ready, or other claims had the same rows locked:
// so the next claim comes soon, and the ones after it at the interval Poll. If a rate holds items back, the wait ends
// when the rate allows the next one. Reading thousands of keys that are held back takes long, so the wait is at least
// claimShare times that. It reports whether there was a hint.
func (l *lane) waitForHint(ctx context.Context, again bool, held scheduler.HeldBack, took time.Duration) (hinted bool) {
	l.mu.Lock()
	l.dry = true
	l.mu.Unlock()
	signal(l.worker.look)
	most := lookAgain
	if again || held.Full || held.Wait > 0 {
		most = jitter(l.worker.config.Poll)
	}
	if held.Wait > 0 {
		until := max(held.Wait, time.Millisecond)
		most = min(max(most, claimShare*took), until)
	}
	return wait(ctx, l.hint, most)
}

// hinted is called when items of the kind may have become ready.
func (l *lane) hinted() {
	l.mu.Lock()
	l.dry = false
	l.mu.Unlock()
	signal(l.hint)
}

// claim claims, ends tasks in the same call, and puts the claimed items into the buffer. It returns those that must run
// alone, for runAlone.
func (l *lane) claim(c ledger.Claim, toEnd []*task) (got int, lone []*task, held scheduler.HeldBack, err error) {
	w := l.worker
	c.Kind, c.Agent, c.TTL, c.Shard = l.kind, w.config.Agent, w.config.Lease, w.config.Shard
	asked := time.Now()
	leases, held, err := l.exchange(c, toEnd)
	now := time.Now()
	if m := w.config.Meter; m != nil && err == nil {
		m.Claimed(l.kind, len(leases), now.Sub(asked))
	}
	if err != nil || len(leases) == 0 {
		l.mu.Lock()
		l.setHeldBack(held)
		l.mu.Unlock()
		return 0, nil, held, err
	}
	w.clock.set(leases[0].StartedAt, now)
	block := make([]task, len(leases))
	tasks := make([]*task, len(leases))
	trust := now.Add(leases[0].Remaining())
	bytes := 0
	for i, ls := range leases {
		block[i] = task{lane: l, lease: ls, claimed: now, trustedUntil: trust, end: ls.ExpiresAt,
			renewAt: trust.Add(w.config.Lease/3 - trustTime(w.config.Lease))}
		tasks[i] = &block[i]
		bytes += len(ls.Payload)
	}
	l.mu.Lock()
	l.dry = false
	l.pace.weigh(bytes, len(leases))
	l.add(tasks)
	l.mu.Unlock()
	failpoint.Here("worker.claimed")
	lone, beside := alone(tasks)
	if len(beside) > 0 {
		l.push(l.start(beside))
	}
	return len(leases), lone, held, nil
}

const (
	exchangeMost  = 16          // ends, and items, of a claim that ends tasks
	exchangeBytes = 64 << 10    // of output of each task
	exchangeTime  = time.Second // for ending and claiming together
)

// exchange claims, and ends tasks in the same call. Tasks whose end was not recorded go to the finisher. Another
// process may have locked the row of a task; the call then times out, and only claims.
func (l *lane) exchange(c ledger.Claim, toEnd []*task) ([]*ledger.Lease, scheduler.HeldBack, error) {
	w := l.worker
	if len(toEnd) == 0 {
		return w.config.Ledger.ClaimWithin(w.life, c)
	}
	ctx, cancel := context.WithTimeout(w.life, exchangeTime)
	defer cancel()
	endings := endingsOf(toEnd)
	failpoint.Here("worker.settled")
	errs, leases, held, err := w.exchanger.FinishAndClaim(ctx, c, endings...)
	failpoint.Here("worker.recorded")
	for i, t := range toEnd {
		if errs[i] == nil || errors.Is(errs[i], ledger.ErrLeaseLost) {
			w.record(t, endings[i], errs[i])
		} else {
			w.finisher.add(t)
		}
	}
	if err != nil && (ctx.Err() != nil || !errors.Is(err, ledger.ErrUnavailable)) { // perhaps only the ends failed
		return w.config.Ledger.ClaimWithin(w.life, c)
	}
	return leases, held, err
}

// exchanges reports whether the claimer takes an ended task, to end it with its next claim. It does so only if it waits
// for room and few items are claimed at a time. Any other task goes to the finisher.
func (l *lane) exchanges(t *task) bool {
	if l.worker.exchanger == nil || !t.result.Outcome.Completed() || sizeOf(&t.result) > exchangeBytes {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waitLimit == 0 || l.stopping || l.policy.Limits.Any() || len(l.toEnd) == exchangeMost {
		return false
	}
	if n := l.wanted(l.waitLimit); n == 0 || n > exchangeMost {
		return false
	}
	l.toEnd = append(l.toEnd, t)
	signal(l.room)
	return true
}

// probe claims one item, for callers that have to know whether there is one. The caller cannot wait, so an item that
// must run alone is handed back: the claimer takes it.
func (l *lane) probe() (got int, err error) {
	n := l.worker.quota.take(1)
	if n == 1 {
		var lone []*task
		got, lone, _, err = l.claim(ledger.Claim{Limit: 1}, nil)
		l.handBack(lone)
	}
	l.worker.quota.took(n, got)
	return got, err
}

// alone separates the tasks that must run alone. A claim returns at most one of them, and then nothing else. A claim
// over HTTP may also return the tasks of earlier answers that were lost.
func alone(tasks []*task) (alone, beside []*task) {
	for _, t := range tasks {
		if t.lease.Alone {
			alone = append(alone, t)
		} else {
			beside = append(beside, t)
		}
	}
	return alone, beside
}

// runAlone begins the first waiting task when no other task of its kind is left except the waiting ones. It returns
// when that task has ended.
func (l *lane) runAlone(waiting []*task) {
	other := func(t *task) bool { return !slices.Contains(waiting, t) }
	l.mu.Lock()
	for slices.ContainsFunc(l.tasks, other) && !l.stopping {
		l.left.Wait()
	}
	l.mu.Unlock()
	l.push(l.start(waiting[:1]))
	l.mu.Lock()
	for slices.Contains(l.tasks, waiting[0]) {
		l.left.Wait()
	}
	l.mu.Unlock()
}

// start marks items of doubtful kinds as started, before their handler sees them, and returns those that may begin. It
// hands the others back.
func (l *lane) start(tasks []*task) []*task {
	l.mu.Lock()
	mark := l.doubtful() && !l.stopping
	l.mu.Unlock()
	if !mark {
		return tasks
	}
	w := l.worker
	leases := make([]*ledger.Lease, len(tasks))
	for i, t := range tasks {
		leases[i] = t.lease
	}
	var pause backoff
	called := time.Now()
	errs := w.config.Ledger.Start(w.life, w.config.Lease, leases...)
	for w.failed("start", unavailable(errs)) && l.trusts(tasks[0]) && sleep(w.life, pause.next()) {
		called = time.Now()
		errs = w.config.Ledger.Start(w.life, w.config.Lease, leases...)
	}
	var begin, refused []*task
	l.mu.Lock()
	for i, t := range tasks {
		if errs[i] == nil {
			t.trust(called)
			t.unsure = called
			begin = append(begin, t)
		} else {
			refused = append(refused, t)
		}
	}
	l.mu.Unlock()
	l.handBack(refused)
	return begin
}

// trusts reports whether the lease of a task may still be trusted.
func (l *lane) trusts(t *task) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !t.lost && time.Now().Before(t.trustedUntil)
}

// unavailable returns the error of a call that failed as a whole, nil if it succeeded.
func unavailable(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, ledger.ErrLeaseLost) && !errors.Is(err, ledger.ErrCancelled) &&
			!errors.Is(err, ledger.ErrInvalid) {
			return err
		}
	}
	return nil
}

// pace measures how fast items are begun and how large they are, to decide how many to claim ahead. The lane's mu
// guards it.
type pace struct {
	since time.Time
	begun int     // items since then
	rate  float64 // items a second
	size  float64 // bytes of a payload
}

const (
	paceLook   = 10 * time.Millisecond // shortest time over which a rate is measured
	paceMemory = time.Second           // how long it takes to forget most of an old rate
)

// measure updates the rate by the items begun since its last call.
func (p *pace) measure(now time.Time) {
	d := now.Sub(p.since)
	if d < paceLook {
		return
	}
	p.rate += (float64(p.begun)/d.Seconds() - p.rate) * (1 - math.Exp(-float64(d)/float64(paceMemory)))
	p.since, p.begun = now, 0
}

// weigh updates the size by n payloads.
func (p *pace) weigh(bytes, n int) { p.size += (float64(bytes)/float64(n) - p.size) / 2 }

// ahead returns how many items may lie in the buffer.
func (p *pace) ahead() int {
	return int(min(bufferMost, p.rate*bufferTime.Seconds(), bufferBytes/max(p.size, 1)))
}
