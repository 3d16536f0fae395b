package ledger

import (
	"cmp"
	"context"
	"iter"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"

	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/tracing"
)

// Ledger holds the rules over a store. It is safe for concurrent use.
type Ledger struct {
	store  Store
	log    *slog.Logger
	jitter func() float64
	gone   func(Agent) bool
	kinds  sync.Map // names of kinds that are known to have a row

	tracer *tracing.Tracer

	fitness fitness
	floors  atomic.Pointer[[]int64] // as the ledger was opened, see Restored

	mu      sync.Mutex
	wakers  map[int]chan<- string
	wakerID int
}

// Options of New; the zero value is for production.
type Options struct {
	Logger *slog.Logger     // nil means slog.Default()
	Jitter func() float64   // tests only: replaces the random number, 0 … 1, of back-offs
	Gone   func(Agent) bool // tests only: replaces Agent.Gone

	// TracerProvider gets a span of each call that adds items; nil means none. Trace contexts are stored and
	// passed on without it too.
	TracerProvider trace.TracerProvider
}

// New makes a ledger over a store that sqlite.Open, postgres.Open or memory.New returned.
// Closing the ledger closes the store, but never a pool that the caller made.
func New(store Store, o Options) *Ledger {
	l := &Ledger{store: store, log: cmp.Or(o.Logger, slog.Default()), jitter: o.Jitter, gone: o.Gone,
		wakers: map[int]chan<- string{}, tracer: tracing.NewTracer(o.TracerProvider),
		fitness: fitness{next: time.Now().Add(lookEvery)}} // the store was looked at when it was opened
	opened := store.Opened()
	l.floors.Store(&opened)
	if l.jitter == nil {
		l.jitter = rand.Float64
	}
	if l.gone == nil {
		l.gone = Agent.Gone
	}
	return l
}

// Close waits for running calls and closes the store.
func (l *Ledger) Close() error { return l.store.Close() }

// Claim leases up to c.Limit items, most urgent first: (priority, due, id). An empty result means that at some moment
// of the call no item of the kind could be claimed. Fewer items than Limit do not mean that these are all: other claims
// may have had the same rows locked.
func (l *Ledger) Claim(ctx context.Context, c Claim) ([]*Lease, error) {
	leases, _, err := l.ClaimWithin(ctx, c)
	return leases, err
}

// ClaimWithin is Claim, and describes what the limits of the kind hold back.
func (l *Ledger) ClaimWithin(ctx context.Context, c Claim) ([]*Lease, scheduler.HeldBack, error) {
	g, err := l.grant(ctx, c)
	if err != nil {
		return nil, scheduler.HeldBack{}, err
	}
	return l.lend(ctx, g, time.Now(), Claimed{More: true})
}

// grant checks a claim and draws its token.
func (l *Ledger) grant(ctx context.Context, c Claim) (Grant, error) {
	c.TTL = cmp.Or(c.TTL, bounds.DefaultTTL)
	v := checker{}
	if v.claim(c); v.err != nil {
		return Grant{}, v.err
	}
	if err := l.fit(ctx, nil); err != nil {
		return Grant{}, err
	}
	lockID, err := uuid.NewV7() // rising ids keep indexes of them compact
	return Grant{c, lockID, l.floor()}, err
}

// lend makes leases of what was claimed by a call that began then, and claims as long as that is nothing
// and there is more.
func (l *Ledger) lend(ctx context.Context, g Grant, called time.Time, got Claimed) ([]*Lease, scheduler.HeldBack,
	error) {
	held := got.HeldBack
	for got.More && len(got.Records) == 0 {
		var err error
		if got, err = l.store.Claim(ctx, g); err != nil {
			return nil, scheduler.HeldBack{}, err
		}
		held.Full = held.Full || got.Full
		held.Delay(got.Wait)
	}
	recs := got.Records
	leases := make([]*Lease, len(recs))
	block := make([]Lease, len(recs))
	for i := range recs {
		r := &recs[i]
		block[i] = Lease{Item: r.Item(r.Work.LeasedAt), Agent: r.Work.Agent, LockID: r.Work.LockID,
			StartedAt: r.Work.LeasedAt,
			ExpiresAt: r.Work.ExpiresAt, Alone: r.Work.Alone, Resumed: r.Work.LockID != g.LockID, called: called, ttl: g.TTL,
			limited: got.Limited, epoch: r.Work.Epoch, first: r.firstAttempt()}
		leases[i] = &block[i]
	}
	return leases, held, nil
}

// Renew extends leases to ttl from now and returns one error per lease: nil, ErrLeaseLost,
// ErrUnavailable, or ErrCancelled when the item is to be cancelled (the lease is extended all
// the same, so that its end can still be reported).
func (l *Ledger) Renew(ctx context.Context, ttl time.Duration, leases ...*Lease) []error {
	_, errs := l.Extend(ctx, ttl, leases...)
	return errs
}

// Extend is Renew that also returns when each lease ends now, by the database's clock; zero if it is lost.
func (l *Ledger) Extend(ctx context.Context, ttl time.Duration, leases ...*Lease) ([]time.Time, []error) {
	ends, errs := make([]time.Time, len(leases)), make([]error, len(leases))
	v := checker{}
	if v.ttl(ttl); v.err != nil {
		return ends, fill(errs, v.err)
	}
	var got []Renewal
	for wave := range waves(leases) {
		renewed, err := l.store.Renew(ctx, ttl, refs(slices.Collect(maps.Values(wave))))
		if err != nil {
			return ends, fill(errs, err)
		}
		got = append(got, renewed...)
	}
	missing := inForce(got, leases, ends, errs)
	if len(missing) == 0 {
		return ends, errs
	}
	rest := make([]*Lease, len(missing)) // not lost yet: another process may have had the row locked
	for k, i := range missing {
		rest[k] = leases[i]
	}
	late, lost := l.held(ctx, rest)
	for k, i := range missing {
		ends[i], errs[i] = late[k], lost[k]
	}
	return ends, errs
}

// inForce tells of leases when they end, and which are to be cancelled, and returns which of them were not found.
func inForce(found []Renewal, leases []*Lease, ends []time.Time, errs []error) (missing []int) {
	byRef := make(map[LeaseRef]Renewal, len(found))
	for _, r := range found {
		byRef[r.LeaseRef] = r
	}
	for i, ls := range leases {
		r, ok := byRef[ls.ref()]
		if !ok {
			missing = append(missing, i)
		}
		if ends[i] = r.ExpiresAt; r.Cancel {
			errs[i] = ErrCancelled
		}
	}
	return missing
}

// Held reports whether leases are in force, as Renew does, and changes nothing: a cheap way to learn
// of a cancellation between two renewals.
func (l *Ledger) Held(ctx context.Context, leases ...*Lease) []error {
	_, errs := l.held(ctx, leases)
	return errs
}

// held is Held that also returns when each lease ends.
func (l *Ledger) held(ctx context.Context, leases []*Lease) ([]time.Time, []error) {
	ends, errs := make([]time.Time, len(leases)), make([]error, len(leases))
	ids := make([]int64, len(leases))
	for i, ls := range leases {
		ids[i] = ls.ID
	}
	got, err := l.store.Holders(ctx, ids)
	if err != nil {
		return ends, fill(errs, err)
	}
	for _, i := range inForce(got, leases, ends, errs) {
		errs[i] = ErrLeaseLost
	}
	return ends, errs
}

// Start marks leases as started and extends them to ttl. It commits before it returns. Of kinds with OnLostDoubt an
// item comes into doubt only if it was started. It returns one error per lease: nil, or ErrLeaseLost (also when the
// item was cancelled): then do not begin.
func (l *Ledger) Start(ctx context.Context, ttl time.Duration, leases ...*Lease) []error {
	errs := make([]error, len(leases))
	v := checker{}
	if v.ttl(ttl); v.err != nil {
		return fill(errs, v.err)
	}
	started := make(map[*Lease]bool, len(leases))
	for wave := range waves(leases) {
		ids, err := l.store.Start(ctx, ttl, refs(slices.Collect(maps.Values(wave))))
		if err != nil {
			return fill(errs, err)
		}
		for _, id := range ids {
			started[wave[id]] = true
		}
	}
	for i, ls := range leases {
		if !started[ls] {
			errs[i] = ErrLeaseLost
		}
	}
	return errs
}

// waves are leases of different items each, by item: a store is asked for no item twice in one call.
func waves(leases []*Lease) iter.Seq[map[int64]*Lease] {
	return func(yield func(map[int64]*Lease) bool) {
		for len(leases) > 0 {
			var later []*Lease
			wave := make(map[int64]*Lease, len(leases))
			for _, ls := range leases {
				if wave[ls.ID] == nil {
					wave[ls.ID] = ls
				} else {
					later = append(later, ls)
				}
			}
			if !yield(wave) {
				return
			}
			leases = later
		}
	}
}

func (l *Lease) ref() LeaseRef { return LeaseRef{l.ID, l.LockID} }

func refs(leases []*Lease) []LeaseRef {
	r := make([]LeaseRef, len(leases))
	for i, ls := range leases {
		r[i] = ls.ref()
	}
	return r
}

func fill(errs []error, err error) []error {
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// Promote makes up to limit waiting items ready whose time has come, of all kinds, and returns
// when the next one is due (zero: nothing waits). Every worker does it.
func (l *Ledger) Promote(ctx context.Context, limit int) (time.Time, error) {
	if err := checkLimit(limit); err != nil {
		return time.Time{}, err
	}
	if err := l.fit(ctx, nil); err != nil {
		return time.Time{}, err
	}
	kinds, next, err := l.store.Promote(ctx, limit)
	if err == nil {
		l.announce(kinds)
	}
	return next, err
}

// Expire takes up to limit expired leases from their holders, of all kinds: each becomes ready,
// dead, in doubt or cancelled by its kind's policy. It returns how many. Every worker does it.
func (l *Ledger) Expire(ctx context.Context, limit int) (int, error) {
	if err := checkLimit(limit); err != nil {
		return 0, err
	}
	if err := l.fit(ctx, nil); err != nil {
		return 0, err
	}
	var n int
	var kinds []string
	err := l.store.Update(ctx, nil, func(tx Tx) error {
		recs, err := tx.LoadExpired(limit)
		if err != nil {
			return err
		}
		n, kinds = len(recs), nil
		return l.lose(tx, recs, "lease_lost", &kinds)
	})
	if err == nil {
		l.announce(kinds)
	}
	return n, err
}

// Subscribe sends the kind on c, "" for any, whenever items of it may have become ready, until
// ctx ends: a hint, dropped when c is full. Looking now and then remains the truth.
func (l *Ledger) Subscribe(ctx context.Context, c chan<- string) {
	l.mu.Lock()
	id := l.wakerID
	l.wakerID++
	l.wakers[id] = c
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.wakers, id)
		l.mu.Unlock()
	}()
	l.store.Watch(ctx, l.wake)
}

// wake tells the subscribers of this process.
func (l *Ledger) wake(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.wakers {
		select {
		case c <- kind:
		default:
		}
	}
}

// announce tells everybody that items of these kinds became ready.
func (l *Ledger) announce(kinds []string) {
	if len(kinds) == 0 {
		return
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)
	for _, k := range kinds {
		l.wake(k)
	}
	l.store.Announce(kinds...)
}
