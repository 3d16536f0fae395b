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

// The bounds of what is asked for.
const (
	MaxWait        = 30 * time.Second // of a claim, until there is something to claim
	ClaimTime      = 2 * callTime     // a claim that does not wait leases within it: it reads the kind, then claims
	MaxLeases      = 1000             // of one claim, or tokens of one call
	PollsPerAgent  = 2                // claims of an agent that wait at a time
	PollsPerCaller = 64               // and of a caller
)

const (
	defaultLease = time.Minute
	lookEvery    = time.Second
	quietEvery   = 10 * time.Second // between looks of a quiet lender
	mostLooking  = 16               // waiting claims at a time
	callTime     = 10 * time.Second // of one call of the ledger: it goes on if the client has gone
	kindsTime    = time.Second      // how old the policy of a kind may be
	tallyEvery   = 5 * time.Second
)

// Caller is a program that asks. Its waiting claims are counted by its name. May reports whether it may have leases of
// a kind as an agent.
type Caller struct {
	Name string
	May  func(kind, agent string) bool
}

// Lender lends the leases of one ledger. It does not take back expired leases or prune: a worker does that, and it may
// have no handlers.
type Lender struct {
	ledger *ledger.Ledger
	log    *slog.Logger
	// Quiet is for programs that run in many processes at a time: claims that wait look again at hints, and without a
	// hint only every few seconds. Set it before Run.
	Quiet bool

	mu       sync.Mutex
	waiting  map[string][]*poll // by kind, the first one looks first
	agents   map[string]int     // how many claims of each wait
	callers  map[string]int
	draining map[string]bool // agents

	hearing map[chan<- string]bool

	finishing []*finishing // ends that wait to be recorded
	recording int          // how many goroutines record them

	sums   stats.Sums   // of what ended
	behind atomic.Int64 // by how many nanoseconds this clock is behind the ledger's

	kinds  map[string]ledger.Kind
	readAt time.Time // of kinds

	looking chan struct{} // holds those waiting claims that look
	ended   chan struct{} // closed when Run has ended
}

// New makes a lender. A claim that waits is woken only while Run runs.
func New(l *ledger.Ledger, log *slog.Logger) *Lender {
	return &Lender{ledger: l, log: log, waiting: map[string][]*poll{}, agents: map[string]int{}, callers: map[string]int{},
		draining: map[string]bool{}, hearing: map[chan<- string]bool{}, looking: make(chan struct{}, mostLooking),
		ended: make(chan struct{})}
}

// Subscribe sends the kind on c, "" for any, whenever items of it may have become ready, until end is called: a hint,
// dropped when c is full. All that subscribe share one subscription of the ledger.
func (d *Lender) Subscribe(c chan<- string) (end func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hearing[c] = true
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.hearing, c)
	}
}

// tell gives a hint to those who subscribe.
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

// Run wakes waiting claims, so that they look for items again, until ctx ends; then no claim waits any more. It is
// called once.
func (d *Lender) Run(ctx context.Context) {
	defer close(d.ended)
	hints := make(chan string, 256)
	var listening sync.WaitGroup
	defer listening.Wait()
	listening.Go(func() { d.ledger.Subscribe(ctx, hints) })
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
		case kind := <-hints:
			d.hinted(kind)
			d.tell(kind)
		case <-every:
			d.hinted("")
		}
	}
}

// tally writes what has ended for those who ask how fast work goes on, and looks at the ledger's clock.
func (d *Lender) tally(ctx context.Context) {
	ctx, cancel := call(ctx)
	defer cancel()
	if now, err := d.ledger.Now(ctx); err == nil {
		d.behind.Store(int64(time.Until(now)))
	}
	list := d.sums.Take(bounds.MaxBatch)
	if err := d.ledger.AddTallies(ctx, list...); err != nil {
		d.log.Debug("what ended was not tallied yet", "error", err)
		for _, m := range list {
			d.sums.Add(m)
		}
	}
}

// Drain tells an agent with its next claim or renewal that it is to end its leases and claim nothing more. With on
// false it may claim again. Only this process knows of it.
func (d *Lender) Drain(agent string, on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !on {
		delete(d.draining, agent)
		return
	}
	d.draining[agent] = true
	for _, polls := range d.waiting {
		for _, p := range polls {
			if p.agent == agent {
				p.wake()
			}
		}
	}
}

func (d *Lender) drains(agent string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.draining[agent]
}

// kind is the policy of a kind, as it was at most kindsTime ago.
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

// call is the context of a call of the ledger that goes on if the client has gone.
func call(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), callTime)
}
