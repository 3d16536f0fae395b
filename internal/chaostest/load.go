//go:build unix

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

// payload is the payload for the plugins of chaos builds.
type payload struct {
	Name  string `json:"name"`
	How   string `json:"how"`
	MS    int    `json:"ms"`
	Times int64  `json:"times"`
}

// Modes are the ways in which plugins misbehave, beside reporting a failure.
var Modes = []string{"panic", "exit", "crash", "kill", "freeze", "hang", "slow", "flood-stderr", "long-line", "hclog",
	"grandchild", "escape", "fork", "grow", "leak", "flood-log", "flood-progress", "emit-undeclared", "emit-huge",
	"kill-host", "kill-host-before"}

// Prefixes distinguish modes of plugins and failpoints from faults, in counts by name.
const (
	modePrefix  = "plugin "
	pointPrefix = "at "
)

// modesOf draws five modes for a run, since each costs a process or some seconds.
func modesOf(p Plan) []string {
	if p.Fault != Plugin {
		return nil
	}
	modes := slices.Clone(Modes)
	p.random(forModes).Shuffle(len(modes), func(i, j int) { modes[i], modes[j] = modes[j], modes[i] })
	return modes[:5]
}

// item makes the n-th item of a run. A third of the items are of the kind onceKind or do not just end as done.
func (r *run) item(random *rand.Rand, n int) ledger.NewItem {
	p := payload{Name: fmt.Sprint("item ", n), How: "done", MS: 10 + random.IntN(60), Times: 1}
	it := ledger.NewItem{Kind: repeatableKind}
	switch percent := random.IntN(100); {
	case percent < 18 && slices.Contains(r.plan.Kinds, onceKind):
		it.Kind = onceKind // one attempt only, so it reports no failure
	case percent < 24:
		p.How = "fail"
	case percent < 27:
		p.How = "snooze"
	case percent < 30:
		p.How = "skip"
	case percent < 32:
		p.How = "emit"
	case percent < 33:
		p.How = "permanent"
	case percent < 34:
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
	return ledger.NewItem{Kind: repeatableKind, Key: p.Name, Payload: ledger.JSON(p)}
}

// first is the number of items before the work begins.
const first = 500

// feed adds items until ctx ends. Two callers add the same items at the same time. Each batch also has one of the first
// keys with new content: that item is known and keeps its payload. Errors are expected while the database is
// unavailable.
func (r *run) feed(ctx context.Context) error {
	random := r.plan.random(forFeed)
	n := first
	for {
		batch := make([]ledger.NewItem, 0, 16)
		for range 8 {
			batch = append(batch, r.item(random, n))
			n++
		}
		batch = append(batch, r.item(random, random.IntN(first)))
		var rivals errgroup.Group
		for range 2 {
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

// add adds items in one call. In runs with failovers the call gives up after a second, and another call repeats it
// through another store, as another program would.
func (r *run) add(ctx context.Context, items ...ledger.NewItem) error {
	if r.other == nil {
		_, err := r.client.Add(ctx, items...)
		return err
	}
	var failed error
	for _, l := range []*ledger.Ledger{r.client, r.other} {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		_, failed = l.Add(ctx, items...)
		if cancel(); failed == nil {
			break
		}
	}
	return failed
}

// tolerable drops errors that faults of the database, or the end of the run, cause in a client.
func tolerable(err error) error {
	if errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// person is the name of an agent that is a person.
const person = "ann"

// visit makes a person claim items now and then, and end them in time, too late, or never.
func (r *run) visit(ctx context.Context) error {
	random := r.plan.random(forPerson)
	for ctx.Err() == nil {
		held, err := r.client.Claim(ctx, ledger.Claim{Kind: repeatableKind, Agent: person, Limit: 1 + random.IntN(3),
			TTL: time.Second + time.Duration(random.IntN(1000))*time.Millisecond})
		if err != nil {
			if err := tolerable(err); err != nil {
				return err
			}
			sleep(ctx, 100*time.Millisecond)
			continue
		}
		sleep(ctx, time.Duration(random.IntN(2500))*time.Millisecond)
		if random.IntN(3) == 0 {
			r.client.Extend(ctx, 2*time.Second, held...)
			sleep(ctx, time.Duration(random.IntN(500))*time.Millisecond)
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
	random := r.plan.random(forOperator)
	for ctx.Err() == nil {
		sleep(ctx, 300*time.Millisecond)
		key := fmt.Sprint("item ", random.IntN(first))
		f := ledger.Filter{Kinds: []string{repeatableKind}, Key: key}
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
