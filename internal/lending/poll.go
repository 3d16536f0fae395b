package lending

import (
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// queue names the items for which claims wait. Waiting claims of the same queue can take the same items.
type queue struct {
	kind  string
	shard scheduler.Shard
}

// line has the waiting claims of a queue.
type line struct {
	polls   []*poll // claims that do not look now; the first of them looks next
	members int     // number of all claims
	missed  bool    // a hint came while all claims looked
	// empty is when a claim found nothing last, though no limit or rate held items back. A hint makes it zero.
	empty time.Time
	hints int // number of hints
}

// poll is a waiting claim.
type poll struct {
	caller, agent string
	queue         queue
	woken         chan struct{} // has an entry if the claim is to look
	queued        bool          // it is in polls of its line
}

func (p *poll) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// enter lets a claim wait, unless too many claims of its agent or caller wait already. look reports whether the claim
// looks at once. It need not if another claim of the queue waits that has just found nothing.
func (d *Lender) enter(caller, agent string, q queue) (p *poll, look bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.agents[agent]; n >= PollsPerAgent {
		return nil, false, tooMany("agent "+agent, n)
	}
	if n := d.callers[caller]; n >= PollsPerCaller {
		return nil, false, tooMany("this caller", n)
	}
	d.agents[agent]++
	d.callers[caller]++
	p = &poll{caller: caller, agent: agent, queue: q, woken: make(chan struct{}, 1), queued: true}
	l := d.waiting[q]
	if l == nil {
		l = &line{}
		d.waiting[q] = l
	}
	look = len(l.polls) == 0 || time.Since(l.empty) >= lookEvery || d.draining[agent] || d.Quiet
	l.members++
	l.polls = append(l.polls, p)
	d.want()
	return p, look, nil
}

func tooMany(who string, n int) error {
	return failure.New(failure.ExitTemporary, "too_many", fmt.Sprintf("%d claims of %s wait already", n, who),
		"wait for their answers, or claim without waiting: wait_s 0")
}

// hints returns the number of hints that the queue of a poll has had.
func (d *Lender) hints(p *poll) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.waiting[p.queue].hints
}

// again puts a poll that has found nothing back to the front of the queue, or lets it look once more if a hint came
// meanwhile. empty means that no item was ready when the queue had had so many hints.
func (d *Lender) again(p *poll, hints int, empty bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.waiting[p.queue]
	if empty && hints == l.hints {
		l.empty = time.Now()
	}
	switch {
	case l.missed:
		l.missed = false
		p.wake()
	case !p.queued:
		p.queued = true
		l.polls = slices.Insert(l.polls, 0, p)
	}
}

// leave ends the wait of a poll. The next poll looks if there may be more items, or if p was woken to look.
func (d *Lender) leave(p *poll, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.waiting[p.queue]
	if p.queued {
		l.polls = slices.DeleteFunc(l.polls, func(o *poll) bool { return o == p })
	}
	if more || !p.queued {
		l.wakeFirst()
	}
	countDown(d.agents, p.agent)
	countDown(d.callers, p.caller)
	if l.members--; l.members == 0 {
		delete(d.waiting, p.queue)
	}
}

func countDown(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

// hinted lets the first waiting claim of each queue of a kind look; "" means every kind.
func (d *Lender) hinted(kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for q, l := range d.waiting {
		if kind == "" || kind == q.kind {
			l.wakeFirst()
		}
	}
}

// wakeFirst wakes the first claim that does not look. The caller holds mu.
func (l *line) wakeFirst() {
	l.empty = time.Time{}
	l.hints++
	if l.missed = len(l.polls) == 0; !l.missed {
		l.polls[0].queued = false
		l.polls[0].wake()
		l.polls = slices.Delete(l.polls, 0, 1)
	}
}
