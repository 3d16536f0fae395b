package lending

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// queue is what waiting claims wait for: any of them can take the same items.
type queue struct {
	kind  string
	shard scheduler.Shard
}

// poll is a waiting claim.
type poll struct {
	caller, agent string
	queue         queue
	woken         chan struct{} // buffers one
	queued        bool
}

func (p *poll) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// enter lets a claim wait, unless too many claims of its agent or caller wait already.
func (d *Lender) enter(caller, agent string, q queue) (*poll, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.agents[agent]; n >= PollsPerAgent {
		return nil, tooMany("agent "+agent, n)
	}
	if n := d.callers[caller]; n >= PollsPerCaller {
		return nil, tooMany("this caller", n)
	}
	d.agents[agent]++
	d.callers[caller]++
	p := &poll{caller: caller, agent: agent, queue: q, woken: make(chan struct{}, 1), queued: true}
	d.waiting[q] = append(d.waiting[q], p)
	return p, nil
}

func tooMany(who string, n int) error {
	return failure.New(failure.ExitTemporary, "too_many", fmt.Sprintf("%d claims of %s wait already", n, who),
		"wait for their answers, or claim without waiting: wait_s 0")
}

// again puts a poll that has found nothing back to the front of the queue.
func (d *Lender) again(p *poll) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !p.queued {
		p.queued = true
		d.waiting[p.queue] = slices.Insert(d.waiting[p.queue], 0, p)
	}
}

// leave ends the wait of a poll. The next poll looks if there may be more items, or if this one was to look.
func (d *Lender) leave(p *poll, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.queued {
		d.waiting[p.queue] = slices.DeleteFunc(d.waiting[p.queue], func(o *poll) bool { return o == p })
	}
	if more || !p.queued {
		d.wakeFirst(p.queue)
	}
	countDown(d.agents, p.agent)
	countDown(d.callers, p.caller)
	if len(d.waiting[p.queue]) == 0 {
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
	for q := range d.waiting {
		if kind == "" || kind == q.kind {
			d.wakeFirst(q)
		}
	}
}

// wakeFirst wakes the first waiting claim. The caller holds mu.
func (d *Lender) wakeFirst(q queue) {
	if polls := d.waiting[q]; len(polls) > 0 {
		polls[0].queued = false
		polls[0].wake()
		d.waiting[q] = slices.Delete(polls, 0, 1)
	}
}
