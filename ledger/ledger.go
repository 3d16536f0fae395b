package ledger

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
)

// Ledger holds the rules over a store. It is safe for concurrent use.
type Ledger struct {
	store  Store
	log    *slog.Logger
	jitter func() float64
	gone   func(Agent) bool
	kinds  sync.Map // names of kinds that are known to have a row

	fitness fitness

	mu      sync.Mutex
	wakers  map[int]chan<- string
	wakerID int
}

// Options of New; the zero value is for production.
type Options struct {
	Logger *slog.Logger     // nil means slog.Default()
	Jitter func() float64   // tests only: replaces the random number, 0 … 1, of back-offs
	Gone   func(Agent) bool // tests only: replaces Agent.Gone
}

// New makes a ledger over a store that sqlite.Open, postgres.Open or memory.New returned.
// Closing the ledger closes the store, but never a pool that the caller made.
func New(store Store, o Options) *Ledger {
	l := &Ledger{store: store, log: o.Logger, jitter: o.Jitter, gone: o.Gone, wakers: map[int]chan<- string{},
		fitness: fitness{next: time.Now().Add(lookEvery)}} // whoever opened the store has looked
	if l.log == nil {
		l.log = slog.Default()
	}
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

// Claim lends up to c.Limit items, most urgent first: (priority, due, id). An empty result
// means that at some instant of the call nothing of the kind was claimable. Fewer than Limit
// does not: others may have been at the same rows.
func (l *Ledger) Claim(ctx context.Context, c Claim) ([]*Lease, error) {
	leases, _, err := l.ClaimWithin(ctx, c)
	return leases, err
}

// HeldBack says what the limits of a kind kept from being claimed.
type HeldBack struct {
	// Wait is after how long a rate lets the next of what is ready be claimed, as far as the claim has
	// looked: at all of it, if it leased nothing; 0: none is held back by a rate.
	Wait time.Duration
	// Full says that something is ready for which as many run as may.
	Full bool
}

// wait notes that a rate lets the next be claimed after d, if it holds one back.
func (h *HeldBack) wait(d time.Duration) {
	if d > 0 && (h.Wait == 0 || d < h.Wait) {
		h.Wait = d
	}
}

// ClaimWithin is Claim, and says what the limits of the kind hold back.
func (l *Ledger) ClaimWithin(ctx context.Context, c Claim) ([]*Lease, HeldBack, error) {
	c.TTL = cmp.Or(c.TTL, time.Minute)
	v := checker{}
	if v.claim(c); v.err != nil {
		return nil, HeldBack{}, v.err
	}
	if err := l.fit(ctx, nil); err != nil {
		return nil, HeldBack{}, err
	}
	lockID, err := uuid.NewV7() // rising ids keep indexes of them compact
	if err != nil {
		return nil, HeldBack{}, err
	}
	called := time.Now()
	var held HeldBack
	var got Claimed
	for more := true; more; more = got.More && len(got.Records) == 0 {
		if got, err = l.store.Claim(ctx, Grant{c, lockID}); err != nil {
			return nil, HeldBack{}, err
		}
		held.Full = held.Full || got.Full
		held.wait(got.Wait)
	}
	recs := got.Records
	leases := make([]*Lease, len(recs))
	block := make([]Lease, len(recs))
	for i := range recs {
		r := &recs[i]
		block[i] = Lease{Item: r.Item(r.Work.LeasedAt), Agent: r.Work.Agent, LockID: r.Work.LockID, StartedAt: r.Work.LeasedAt,
			ExpiresAt: r.Work.ExpiresAt, Alone: r.Work.Alone, Resumed: r.Work.LockID != lockID, called: called, ttl: c.TTL, limited: got.Limited, epoch: r.Work.Epoch}
		leases[i] = &block[i]
	}
	return leases, held, nil
}

// Renew extends leases to ttl from now and returns one error per lease: nil, ErrLeaseLost,
// ErrUnavailable, or ErrCancelled when the item is to be cancelled (the lease is extended all
// the same, so that its end can still be reported).
func (l *Ledger) Renew(ctx context.Context, ttl time.Duration, leases ...*Lease) []error {
	errs := make([]error, len(leases))
	v := checker{}
	if v.ttl(ttl); v.err != nil {
		return fill(errs, v.err)
	}
	got, err := l.store.Renew(ctx, ttl, refs(leases))
	if err != nil {
		return fill(errs, err)
	}
	held := make(map[LeaseRef]bool, len(got)) // → to be cancelled
	for _, r := range got {
		held[r.LeaseRef] = r.Cancel
	}
	var missing []int // which is not lost: somebody may have had the row locked
	for i, ls := range leases {
		if cancel, ok := held[ls.ref()]; !ok {
			missing = append(missing, i)
		} else if cancel {
			errs[i] = ErrCancelled
		}
	}
	if len(missing) > 0 {
		rest := make([]*Lease, len(missing))
		for k, i := range missing {
			rest[k] = leases[i]
		}
		for k, err := range l.Held(ctx, rest...) {
			errs[missing[k]] = err
		}
	}
	return errs
}

// Held says whether leases are in force, as Renew does, and changes nothing: a cheap way to learn
// of a cancellation between two renewals.
func (l *Ledger) Held(ctx context.Context, leases ...*Lease) []error {
	errs := make([]error, len(leases))
	ids := make([]int64, len(leases))
	for i, ls := range leases {
		ids[i] = ls.ID
	}
	got, err := l.store.Holders(ctx, ids)
	if err != nil {
		return fill(errs, err)
	}
	held := make(map[LeaseRef]bool, len(got)) // → to be cancelled
	for _, r := range got {
		held[r.LeaseRef] = r.Cancel
	}
	for i, ls := range leases {
		if cancel, ok := held[ls.ref()]; !ok {
			errs[i] = ErrLeaseLost
		} else if cancel {
			errs[i] = ErrCancelled
		}
	}
	return errs
}

// Start marks leases as started, which commits before it returns, and extends them to ttl. Of
// kinds with OnLostDoubt an item comes into doubt only if it was started. It returns one error
// per lease: nil, or ErrLeaseLost (also when the item was cancelled): then do not begin.
func (l *Ledger) Start(ctx context.Context, ttl time.Duration, leases ...*Lease) []error {
	errs := make([]error, len(leases))
	v := checker{}
	if v.ttl(ttl); v.err != nil {
		return fill(errs, v.err)
	}
	started := make(map[*Lease]bool, len(leases))
	// Answers are by item: of several leases on one item each is asked for by itself.
	for rest := leases; len(rest) > 0; {
		var later []*Lease
		wave := make(map[int64]*Lease, len(rest))
		for _, ls := range rest {
			if wave[ls.ID] == nil {
				wave[ls.ID] = ls
			} else {
				later = append(later, ls)
			}
		}
		ids, err := l.store.Start(ctx, ttl, refs(slices.Collect(maps.Values(wave))))
		if err != nil {
			return fill(errs, err)
		}
		for _, id := range ids {
			started[wave[id]] = true
		}
		rest = later
	}
	for i, ls := range leases {
		if !started[ls] {
			errs[i] = ErrLeaseLost
		}
	}
	return errs
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
