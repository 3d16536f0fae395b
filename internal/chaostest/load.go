package chaostest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledgerd/ledger"
)

// payload is what the plugins of chaos builds take.
type payload struct {
	Name  string `json:"name"`
	How   string `json:"how"`
	MS    int    `json:"ms"`
	Times int64  `json:"times"`
}

// Modes are the ways in which plugins misbehave, beyond answering that something failed.
var Modes = []string{"panic", "exit", "crash", "kill", "freeze", "hang", "slow", "flood-stderr", "long-line", "hclog",
	"grandchild", "escape", "fork", "grow", "leak", "flood-log", "flood-progress", "emit-undeclared", "emit-huge",
	"kill-host", "kill-host-before"}

// modePrefix distinguishes modes from faults where both are counted.
const modePrefix = "plugin "

// modesOf draws which modes a run has: few of them, as each takes a process with it or seconds.
func modesOf(p Plan) []string {
	if p.Fault != Plugin {
		return nil
	}
	modes := append([]string(nil), Modes...)
	p.random(2).Shuffle(len(modes), func(i, j int) { modes[i], modes[j] = modes[j], modes[i] })
	return modes[:5]
}

// item makes the n-th item of a run.
func (r *run) item(random *rand.Rand, n int) ledger.NewItem {
	p := payload{Name: fmt.Sprint("item ", n), How: "done", MS: 10 + random.IntN(60), Times: 1}
	it := ledger.NewItem{Kind: may}
	switch d := random.IntN(100); {
	case d < 18 && slices.Contains(r.plan.Kinds, mustNot):
		it.Kind = mustNot // only once, so it never fails by answering
	case d < 24:
		p.How = "fail"
	case d < 27:
		p.How = "snooze"
	case d < 30:
		p.How = "skip"
	case d < 32:
		p.How = "emit"
	case d < 33:
		p.How = "permanent"
	case d < 34:
		p.How = "doubt"
	}
	if random.IntN(5) == 0 {
		it.Priority = int16(random.IntN(5) - 2)
	}
	it.Key, it.Payload = p.Name, ledger.JSON(p)
	return it
}

// misfit makes an item that misbehaves in this mode at its first attempt.
func misfit(mode string) ledger.NewItem {
	p := payload{Name: "misfit " + mode, How: mode, MS: 20, Times: 1}
	return ledger.NewItem{Kind: may, Key: p.Name, Payload: ledger.JSON(p)}
}

// first is how many items there are before the work begins.
const first = 500

// feed adds items until ctx ends, all of them twice at once and some later on, too. Errors while the database is away
// are expected.
func (r *run) feed(ctx context.Context) error {
	random := r.plan.random(3)
	n := first
	for {
		batch := make([]ledger.NewItem, 0, 16)
		for range 8 {
			batch = append(batch, r.item(random, n))
			n++
		}
		again := r.plan.random(uint64(1000 + random.IntN(n)))
		batch = append(batch, r.item(again, random.IntN(first)))
		var rivals errgroup.Group
		for range 2 { // both know the same things, at the same time
			rivals.Go(func() error { return tolerable(r.add(ctx, batch...)) })
		}
		if err := rivals.Wait(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(60 * time.Millisecond):
		}
	}
}

// add adds items one call after the other, as keys may be the same.
func (r *run) add(ctx context.Context, items ...ledger.NewItem) error {
	_, err := r.client.Add(ctx, items...)
	return err
}

// tolerable leaves out what faults of the database, and the end of the run, do to a client.
func tolerable(err error) error {
	if errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// person is an agent that is no program.
const person = "ann"

// visit has a person claim now and then, hold what they got, and hand it in: in time, too late, or never.
func (r *run) visit(ctx context.Context) error {
	random := r.plan.random(4)
	for ctx.Err() == nil {
		held, err := r.client.Claim(ctx, ledger.Claim{Kind: may, Agent: person, Limit: 1 + random.IntN(3), TTL: time.Second +
			time.Duration(random.IntN(1000))*time.Millisecond})
		if err != nil {
			if err := tolerable(err); err != nil {
				return err
			}
			hold(ctx, 100*time.Millisecond)
			continue
		}
		hold(ctx, time.Duration(random.IntN(2500))*time.Millisecond)
		if random.IntN(3) == 0 {
			r.client.Renew(ctx, 2*time.Second, held...)
			hold(ctx, time.Duration(random.IntN(500))*time.Millisecond)
		}
		for _, ls := range held {
			result := []ledger.Result{ledger.Done(nil), ledger.Release(), ledger.RetryAfter(50*time.Millisecond,
				errors.New("not today"))}[random.IntN(3)]
			err := r.client.Finish(ctx, ledger.Ending{Lease: ls, Result: result})[0]
			if err := tolerable(err); err != nil && !errors.Is(err, ledger.ErrLeaseLost) {
				return err
			}
		}
	}
	return nil
}

// operator cancels, retries and reopens some items.
func (r *run) operator(ctx context.Context) error {
	random := r.plan.random(5)
	for ctx.Err() == nil {
		hold(ctx, 300*time.Millisecond)
		key := fmt.Sprint("item ", random.IntN(first))
		f := ledger.Filter{Kinds: []string{may}, Key: key}
		var err error
		switch random.IntN(3) {
		case 0:
			_, err = r.client.Cancel(ctx, "operator", f)
		case 1:
			_, err = r.client.Retry(ctx, "operator", f)
		case 2:
			_, err = r.client.Reopen(ctx, "operator", f)
		}
		if tolerable(err) != nil {
			return err
		}
	}
	return nil
}
