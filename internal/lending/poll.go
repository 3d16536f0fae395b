package lending

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledgerd/internal/failure"
)

// poll is a waiting claim.
type poll struct {
	caller, agent, kind string
	woken               chan struct{} // buffers one
	queued              bool
}

func (p *poll) wake() {
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

// enter lets a claim wait, unless too many claims of its agent or caller wait already.
func (d *Lender) enter(caller, agent, kind string) (*poll, error) {
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
	p := &poll{caller: caller, agent: agent, kind: kind, woken: make(chan struct{}, 1), queued: true}
	d.waiting[kind] = append(d.waiting[kind], p)
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
		d.waiting[p.kind] = slices.Insert(d.waiting[p.kind], 0, p)
	}
}

// leave ends the wait of a poll. The next poll looks if there may be more items, or if this one was to look.
func (d *Lender) leave(p *poll, more bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.queued {
		d.waiting[p.kind] = slices.DeleteFunc(d.waiting[p.kind], func(o *poll) bool { return o == p })
	}
	if more || !p.queued {
		d.wakeFirst(p.kind)
	}
	countDown(d.agents, p.agent)
	countDown(d.callers, p.caller)
	if len(d.waiting[p.kind]) == 0 {
		delete(d.waiting, p.kind)
	}
}

func countDown(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

// hinted lets the first waiting claim of a kind look; "" means every kind.
func (d *Lender) hinted(kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if kind != "" {
		d.wakeFirst(kind)
		return
	}
	for kind := range d.waiting {
		d.wakeFirst(kind)
	}
}

// wakeFirst wakes the first waiting claim. The caller holds mu.
func (d *Lender) wakeFirst(kind string) {
	if polls := d.waiting[kind]; len(polls) > 0 {
		polls[0].queued = false
		polls[0].wake()
		d.waiting[kind] = slices.Delete(polls, 0, 1)
	}
}
