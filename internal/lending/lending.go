package lending

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/stats"
)

// The bounds of requests.
const (
	MaxWait        = 30 * time.Second // of a claim, if no item is ready
	ClaimTime      = 2 * callTime     // bounds a claim that does not wait: it reads the kind, then claims
	MaxLeases      = 1000             // per claim, or tokens per call
	PollsPerAgent  = 2                // waiting claims per agent
	PollsPerCaller = 64               // waiting claims per caller
)

const (
	lookEvery  = time.Second
	quietEvery = 10 * time.Second // between looks of a quiet lender
	linger     = time.Minute      // how long the ledger's hints are received after anybody waited: they cost time
	maxLooking = 16               // waiting claims that look at the same time
	callTime   = 10 * time.Second // per call of the ledger, even if the client has gone
	kindsTime  = time.Second      // greatest age of a cached policy
	tallyEvery = 5 * time.Second
)

// Caller is a program that makes requests.
type Caller struct {
	Name string                        // waiting claims are counted by it
	May  func(kind, agent string) bool // whether it may lease items of a kind as an agent
	// Reads means that it may read items, and so learn why one cannot be leased. Any other caller learns its state only.
	Reads bool
}

// Lender leases the items of one ledger. It does not expire leases or prune: a worker does that, even one without
// handlers.
type Lender struct {
	ledger *ledger.Ledger
	log    *slog.Logger
	// Quiet is for programs that run in many processes: without a hint, waiting claims look again only every few
	// seconds. Set it before Run.
	Quiet bool

	mu       sync.Mutex             // guards the fields down to recording, kinds and readAt
	waiting  map[queue]*line        // waiting claims
	agents   map[string]int         // number of waiting claims by agent
	callers  map[string]int         // number of waiting claims by caller
	draining map[string]bool        // agents that are to end
	hearing  map[chan<- string]bool // subscribers of hints

	finishing []*finishing // ends that are not recorded yet
	recording int          // number of goroutines that record ends

	granted granted

	sums   stats.Sums   // of ended attempts
	behind atomic.Int64 // nanoseconds that this clock is behind the ledger's

	kinds  map[string]ledger.Kind
	readAt time.Time // of kinds

	looking chan struct{} // one element for each waiting claim that looks
	wanted  chan struct{} // has an entry if somebody has begun to wait for hints
	ended   chan struct{} // closed when Run has ended
}

// New makes a lender. It wakes waiting claims only while Run runs.
func New(l *ledger.Ledger, log *slog.Logger) *Lender {
	return &Lender{ledger: l, log: log, waiting: map[queue]*line{}, agents: map[string]int{}, callers: map[string]int{},
		draining: map[string]bool{}, hearing: map[chan<- string]bool{}, looking: make(chan struct{}, maxLooking),
		wanted: make(chan struct{}, 1), ended: make(chan struct{})}
}

// Subscribe sends a kind on c, "" for any, whenever items of the kind may have become ready, until end is called. This
// is a hint: it is dropped if c is full. All subscribers share one subscription of the ledger.
func (d *Lender) Subscribe(c chan<- string) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hearing[c] = true
	d.want()
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.hearing, c)
	}
}

// want makes Run subscribe to hints of the ledger.
func (d *Lender) want() {
	select {
	case d.wanted <- struct{}{}:
	default:
	}
}

// waits reports whether anybody waits for hints.
func (d *Lender) waits() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.waiting)+len(d.hearing) > 0
}

// tell sends a hint to all subscribers.
func (d *Lender) tell(kind string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.hearing {
		select {
		case c <- kind:
		default:
		}
	}
}

// Run wakes waiting claims, so that they look for items again, until ctx ends. Then no claim waits any more. It is
// called once.
func (d *Lender) Run(ctx context.Context) {
	defer close(d.ended)
	hints := make(chan string, 256)
	var listening sync.WaitGroup
	defer listening.Wait()
	var waited time.Time // when somebody waited for hints last
	var stop func()      // ends the subscription; nil: there is none
	subscribe := func() {
		if waited = time.Now(); stop == nil {
			life, end := context.WithCancel(ctx)
			stop = end
			listening.Go(func() { d.ledger.Subscribe(life, hints) })
		}
	}
	look := lookEvery
	if d.Quiet {
		look = quietEvery
	}
	every := time.Tick(look)
	tally := time.NewTicker(max(tallyEvery, look))
	defer tally.Stop()
	d.tally(ctx)
	for {
		select {
		case <-ctx.Done():
			d.tally(ctx)
			return
		case <-tally.C:
			d.tally(ctx)
		case <-d.wanted:
			subscribe()
		case kind := <-hints:
			d.hinted(kind)
			d.tell(kind)
		case <-every:
			d.hinted("")
			if d.waits() {
				subscribe()
			} else if stop != nil && time.Since(waited) > linger {
				stop()
				stop = nil
			}
		}
	}
}

// tally records the counts of ended attempts, and reads the ledger's clock.
func (d *Lender) tally(ctx context.Context) {
	ctx, cancel := call(ctx)
	defer cancel()
	if now, err := d.ledger.Now(ctx); err == nil {
		d.behind.Store(int64(time.Until(now)))
	}
	list := d.sums.Take(bounds.MaxBatch)
	if err := d.ledger.AddTallies(ctx, list...); err != nil {
		d.log.Debug("ended attempts are not tallied yet", "error", err)
		for _, m := range list {
			d.sums.Add(m)
		}
	}
}

// Drain makes the next claim or renewal of an agent ask it to end its leases and to claim nothing more. With on false
// it may claim again. Only this process knows of it.
func (d *Lender) Drain(agent string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !on {
		delete(d.draining, agent)
		return
	}
	d.draining[agent] = true
	for _, l := range d.waiting {
		for _, p := range l.polls {
			if p.agent == agent {
				p.wake()
			}
		}
	}
}

// drains reports whether an agent is to end its leases.
func (d *Lender) drains(agent string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining[agent]
}

// kind returns a kind, at most kindsTime old.
func (d *Lender) kind(ctx context.Context, name string) (ledger.Kind, error) {
	d.mu.Lock()
	k, known := d.kinds[name]
	fresh := time.Since(d.readAt) < kindsTime
	d.mu.Unlock()
	if known && fresh {
		return k, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	all, err := d.ledger.Kinds(ctx)
	if err != nil {
		return k, err
	}
	byName := make(map[string]ledger.Kind, len(all))
	for _, k := range all {
		byName[k.Name] = k
	}
	d.mu.Lock()
	d.kinds, d.readAt = byName, time.Now()
	d.mu.Unlock()
	if k, known = byName[name]; !known {
		return k, failure.New(failure.ExitError, "not_found", fmt.Sprintf("this ledger has no kind %q", name),
			"ledgerd add makes a kind known")
	}
	return k, nil
}

// call returns the context of a call of the ledger. The call continues if the client has gone.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTime)
}
