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
	kinds  sync.Map // names of kinds that have a row, as far as known

	tracer *tracing.Tracer

	environment string

	fitness fitness
	floors  atomic.Pointer[[]int64] // floors at the time of opening: attempts have greater numbers, see restored.go

	mu           sync.Mutex
	subscribers  map[int]chan<- string
	subscriberID int
}

// Options of New; the zero value is for production.
type Options struct {
	Logger *slog.Logger // nil means slog.Default()

	// Environment is the environment of this program, such as "staging"; "" means none. A ledger that is of another one
	// is refused; see Ledger.SetEnvironment.
	Environment string

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
		subscribers: map[int]chan<- string{}, tracer: tracing.NewTracer(o.TracerProvider),
		environment: o.Environment}
	opened := store.Opened()
	l.floors.Store(&opened.Floors)
	l.fitness.next, l.fitness.err = time.Now().Add(lookEvery), opened.of(o.Environment) // the store has checked the rest
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
// of the call no item of the kind could be claimed. A result shorter than Limit does not mean that no more items are
// ready: another claim may have had rows locked.
func (l *Ledger) Claim(ctx context.Context, c Claim) ([]*Lease, error) {
	leases, _, err := l.ClaimWithin(ctx, c)
	return leases, err
}

// ClaimWithin is Claim that also returns how much the limits of the kind hold back.
func (l *Ledger) ClaimWithin(ctx context.Context, c Claim) ([]*Lease, scheduler.HeldBack, error) {
	g, err := l.grant(ctx, c)
	if err != nil {
		return nil, scheduler.HeldBack{}, err
	}
	return l.newLeases(ctx, g, time.Now(), Claimed{More: true})
}

// grant checks a claim and makes its lock_id.
func (l *Ledger) grant(ctx context.Context, c Claim) (Grant, error) {
	c.TTL = wholeMicroseconds(cmp.Or(c.TTL, bounds.DefaultTTL))
	v := checker{}
	if v.claim(c); v.err != nil {
		return Grant{}, v.err
	}
	if err := l.fit(ctx, nil); err != nil {
		return Grant{}, err
	}
	lockID, err := uuid.NewV7() // ids that rise with time keep their indexes compact
	return Grant{c, lockID, l.floor()}, err
}

// newLeases returns the leases of a claim. got is what the claim has leased so far. While got has no records, but More
// is true, newLeases calls Store.Claim again. called is the time at which the granting call started.
func (l *Ledger) newLeases(ctx context.Context, g Grant, called time.Time, got Claimed) ([]*Lease, scheduler.HeldBack,
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
	leases := make([]*Lease, len(got.Records))
	block := make([]Lease, len(got.Records)) // one allocation for all
	for i := range got.Records {
		block[i] = newLease(&got.Records[i], g, called, got.Limited)
		leases[i] = &block[i]
	}
	return leases, held, nil
}

func newLease(r *Record, g Grant, called time.Time, limited bool) Lease {
	w := r.Work
	return Lease{Item: r.Item(w.LeasedAt), Agent: w.Agent, LockID: w.LockID, StartedAt: w.LeasedAt, ExpiresAt: w.ExpiresAt,
		Alone: w.Alone, Resumed: w.LockID != g.LockID, called: called, ttl: g.TTL, limited: limited, epoch: w.Epoch,
		first: r.firstAttempt()}
}

// Unclaim gives back leases that their holder does not know of, because the answer of their claim was not delivered.
// They count as released. A lease that was extended since its claim stays: a claim with Resume has returned it.
func (l *Ledger) Unclaim(ctx context.Context, leases ...*Lease) error {
	claimed := make(map[int64]*Lease, len(leases))
	for _, ls := range leases {
		claimed[ls.ID] = ls
	}
	var kinds []string
	err := l.store.Update(ctx, nil, func(tx Tx) error {
		kinds = nil
		recs, err := tx.Load(slices.Sorted(maps.Keys(claimed)))
		if err != nil {
			return err
		}
		var changes []Change
		for i := range recs {
			r, ls := &recs[i], claimed[recs[i].ID]
			if w := r.Work; w == nil || w.LockID != ls.LockID || !w.ExpiresAt.Equal(ls.ExpiresAt) {
				continue
			}
			changes = append(changes, r.settle(Release(), tx.Now(), l.jitter()))
			kinds = append(kinds, r.Kind)
		}
		return applyEnds(tx, recs, changes, &kinds)
	})
	if err == nil {
		l.announce(kinds)
	}
	return err
}

// Extend extends leases to ttl from now. For each lease it returns when the lease expires, by the database's clock
// (zero if it is lost), and an error: nil, ErrLeaseLost, ErrUnavailable, or ErrCancelled if the item is to be
// cancelled. After ErrCancelled the lease is extended, too: its holder still has to end it. On Postgres a lease is in
// force and not extended while another transaction has locked its row: its end has not moved.
func (l *Ledger) Extend(ctx context.Context, ttl time.Duration, leases ...*Lease) ([]time.Time, []error) {
	ends, errs := make([]time.Time, len(leases)), make([]error, len(leases))
	ttl = wholeMicroseconds(ttl)
	v := checker{}
	if v.ttl(ttl); v.err != nil {
		return ends, slices.Repeat([]error{v.err}, len(errs))
	}
	var got []Renewal
	for wave := range waves(leases) {
		renewed, err := l.store.Renew(ctx, ttl, refs(slices.Collect(maps.Values(wave))))
		if err != nil {
			return ends, slices.Repeat([]error{err}, len(errs))
		}
		got = append(got, renewed...)
	}
	missing := fillIn(got, leases, ends, errs)
	if len(missing) == 0 {
		return ends, errs
	}
	unclear := make([]*Lease, len(missing)) // lost, or another process has locked the row
	for k, i := range missing {
		unclear[k] = leases[i]
	}
	heldEnds, heldErrs := l.held(ctx, unclear)
	for k, i := range missing {
		ends[i], errs[i] = heldEnds[k], heldErrs[k]
	}
	return ends, errs
}

// wholeMicroseconds truncates a TTL to what the databases store. So the expiry that a call returns is the stored one.
func wholeMicroseconds(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }

// fillIn sets when each lease in found expires, and ErrCancelled if its item is to be cancelled. It returns the
// indices of the leases that are not in found.
func fillIn(found []Renewal, leases []*Lease, ends []time.Time, errs []error) (missing []int) {
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

// Held reports whether leases are in force, with the errors of Extend, and changes nothing. It is a cheap way to notice
// a cancellation between two renewals.
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
		return ends, slices.Repeat([]error{err}, len(errs))
	}
	for _, i := range fillIn(got, leases, ends, errs) {
		errs[i] = ErrLeaseLost
	}
	return ends, errs
}

// Start marks leases as started and extends them to ttl. It commits before it returns. An item of a kind with
// OnLostDoubt comes into doubt only if it was started. It returns one error per lease: nil, or ErrLeaseLost (also when
// the item was cancelled). After ErrLeaseLost, do not begin the work.
func (l *Ledger) Start(ctx context.Context, ttl time.Duration, leases ...*Lease) []error {
	errs := make([]error, len(leases))
	v := checker{}
	ttl = wholeMicroseconds(ttl)
	if v.ttl(ttl); v.err != nil {
		return slices.Repeat([]error{v.err}, len(errs))
	}
	started := make(map[*Lease]bool, len(leases))
	for wave := range waves(leases) {
		ids, err := l.store.Start(ctx, ttl, refs(slices.Collect(maps.Values(wave))))
		if err != nil {
			return slices.Repeat([]error{err}, len(errs))
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

// waves yields the leases in groups, by the id of their item. A group has one lease per item at most, because a call of
// a store must not name an item twice.
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

// Promote makes up to limit due items of all kinds ready that were waiting. It returns when the next waiting item is
// due (zero: no item waits). Every worker calls it regularly.
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

// Expire takes up to limit expired leases from their holders, of all kinds. Each item becomes ready, dead, in doubt or
// cancelled, by the policy of its kind. It returns the number of leases: there may be more unless it is 0. Every worker
// calls it regularly.
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

// Subscribe sends a kind on c whenever items of the kind may have become ready, "" for any kind, until ctx ends. A hint
// is dropped if c is full, so subscribers must also poll.
func (l *Ledger) Subscribe(ctx context.Context, c chan<- string) {
	l.mu.Lock()
	id := l.subscriberID
	l.subscriberID++
	l.subscribers[id] = c
	l.mu.Unlock()
	defer func() {
		l.mu.Lock()
		delete(l.subscribers, id)
		l.mu.Unlock()
	}()
	l.store.Watch(ctx, l.wake)
}

// wake sends the hint to the subscribers of this process.
func (l *Ledger) wake(kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.subscribers {
		select {
		case c <- kind:
		default:
		}
	}
}

// announce sends the hint that items of these kinds became ready, to this process and to others.
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
