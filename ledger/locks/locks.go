package locks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/internal/wait"
)

// Manager takes locks in one ledger's database. It is safe for concurrent use.
type Manager struct{ store ledger.LockStore }

// New makes a Manager.
func New(l *ledger.Ledger) *Manager { return &Manager{l.LockStore()} }

// Options of a lock. The zero value is usable.
type Options struct {
	// Holder is the name that other callers see, at most bounds.MaxAgent bytes; "" means host/pid.
	Holder string
	// TTL is the time to live, 1 s … 24 h; 0 means one minute. The lock is renewed each time a third of it has passed.
	TTL time.Duration
	// AtLeast is the shortest time for which a lock stays taken, up to 24 h; it counts from Acquire. An earlier Release
	// leaves the lock taken until then. So a short job does not run twice when the clocks of two machines differ.
	AtLeast time.Duration
	// Wait is how long Acquire waits for a lock that another caller holds; 0 means that it does not wait.
	Wait time.Duration
}

// Lock is a held lock.
type Lock struct {
	Name  string
	Fence int64 // greater than that of every earlier holder of any lock in this ledger

	token  uuid.UUID // chosen before the first request, so that a request can be repeated safely
	ttl    time.Duration
	keeper *keeper
}

// HeldError names the holder of a lock. After an early release (see Options.AtLeast) it names the last holder.
type HeldError struct {
	Name, Holder string
	Fence        int64
	Since, Until time.Time // by the database's clock
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lock %q is held by %s since %s, until %s unless renewed", e.Name, e.Holder,
		e.Since.Format(time.RFC3339), e.Until.Format(time.RFC3339))
}

// ErrLost means that the caller does not hold the lock any more: the lock was not renewed in time, or an operator ended
// it by ForceRelease.
var ErrLost = errors.New("lock lost")

const (
	// A waiting caller asks again after about firstLook. Each further wait is about twice as long, up to lastLook.
	firstLook, lastLook = 20 * time.Millisecond, 500 * time.Millisecond
	// When the database is unavailable, a call is made up to tries times, with an average pause of retryPause. It is
	// not repeated once retryTime has passed.
	tries, retryPause, retryTime = 3, 100 * time.Millisecond, 5 * time.Second
	// How long a request for a lock may take. It waits for the transaction in which the old holder called Check. If
	// that holder is paused, the lock stays held although it has expired.
	askTime = 10 * time.Second
	// How long a failed Acquire tries to remove a lock that it may have taken.
	forgetTime = 2 * time.Second
)

// complete fills in defaults and checks limits.
func (o Options) complete(name string) (Options, error) {
	if o.Holder == "" {
		host, err := os.Hostname()
		if err != nil {
			return o, err
		}
		o.Holder = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	o.TTL = cmp.Or(o.TTL, time.Minute)
	o.TTL, o.AtLeast = o.TTL.Truncate(time.Microsecond), o.AtLeast.Truncate(time.Microsecond) // as databases keep it
	if o.Wait < 0 {
		return o, &ledger.InvalidError{Field: "wait", Reason: o.Wait.String() + ", must not be negative"}
	}
	return o, ledger.Lock{Name: name, Holder: o.Holder}.Check(o.TTL, o.AtLeast)
}

// Acquire takes a lock, and renews it until Release, even after ctx has ended. If another caller holds the lock and
// Options.Wait has passed, Acquire returns *HeldError.
//
// The returned context ends when ctx ends and when Release is called. If the lock is lost, the context ends with the
// cause ErrLost before another caller can get the lock; only after ForceRelease it may end later.
//
// Even without Options.Wait, a refusal may take ten seconds. This happens when the lock has expired, but the
// transaction in which its holder called Check has not ended.
//
// Other errors: ledger.ErrInvalid; ledger.ErrUnavailable, after which the lock may stay taken for its TTL; the error
// of ctx.
func (m *Manager) Acquire(ctx context.Context, name string, o Options) (context.Context, *Lock, error) {
	o, err := o.complete(name)
	if err != nil {
		return ctx, nil, err
	}
	token, err := uuid.NewV7()
	if err != nil {
		return ctx, nil, err
	}
	want := ledger.Lock{Name: name, Token: token, Holder: o.Holder}
	giveUp := time.Now().Add(o.Wait)
	for look := firstLook; ; look = min(2*look, lastLook) {
		var called time.Time
		var fence int64
		err := again(ctx, func() (err error) {
			called = time.Now()
			fence, err = m.take(ctx, want, o)
			return err
		})
		if err == nil {
			l := &Lock{Name: name, Fence: fence, token: token, ttl: o.TTL}
			lockCtx, end := context.WithCancelCause(ctx)
			l.keeper = keep(l, called, end, func(ctx context.Context) error {
				return m.store.Update(ctx, nil, func(tx ledger.Tx) error { return renew(tx, l) })
			})
			return lockCtx, l, nil
		}
		left := time.Until(giveUp)
		if _, held := errors.AsType[*HeldError](err); !held || left <= 0 {
			return ctx, nil, err
		}
		if err := wait.For(ctx, min(left, look/2+rand.N(look))); err != nil {
			return ctx, nil, err
		}
	}
}

// take requests the lock once. A refused request writes nothing.
func (m *Manager) take(ctx context.Context, want ledger.Lock, o Options) (fence int64, err error) {
	there, now, err := m.store.Locks(ctx, want.Name)
	if err != nil {
		return 0, err
	}
	if len(there) > 0 && there[0].Token != want.Token && inForce(there[0], now) {
		return 0, heldError(there[0])
	}
	asking, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	err = m.store.Update(asking, nil, func(tx ledger.Tx) (err error) {
		fence, err = take(tx, want, o)
		return err
	})
	if _, held := errors.AsType[*HeldError](err); err == nil || held {
		return fence, err
	}
	forgetting, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTime) // it may have taken effect
	defer cancel()
	// at worst the lock ends with its TTL
	_ = m.store.Update(forgetting, nil, func(tx ledger.Tx) error { return forget(tx, want) })
	switch {
	case asking.Err() == nil || ctx.Err() != nil:
		return 0, err
	case len(there) > 0:
		return 0, heldError(there[0])
	}
	return 0, fmt.Errorf("lock %q: no answer within %v: %w", want.Name, askTime, ledger.ErrUnavailable)
}

// Release gives the lock back and stops its renewal. For a lock that was lost, or released before, it returns nil.
// After an error (ledger.ErrUnavailable, or that of ctx) Release may be called again. Without that the lock expires
// at the end of its TTL.
func (m *Manager) Release(ctx context.Context, l *Lock) error {
	l.keeper.stop()
	return again(ctx, func() error {
		return m.store.Update(ctx, nil, func(tx ledger.Tx) error { return release(tx, l) })
	})
}

// Do acquires a lock, runs fn, and releases the lock, also if fn fails or panics. It returns the error of Acquire, such
// as *HeldError, or the error of fn. If the lock was lost before fn returned, the error matches ErrLost, even if fn did
// not notice the loss.
func (m *Manager) Do(ctx context.Context, name string, o Options, fn func(ctx context.Context, l *Lock) error) error {
	lockCtx, l, err := m.Acquire(ctx, name, o)
	if err != nil {
		return err
	}
	defer m.end(ctx, l)
	err = fn(lockCtx, l)
	if l.keeper.lost.Load() {
		return lost(err)
	}
	return err
}

// end releases a lock after its work is done. If the release fails, the work stays done, and the lock expires at the
// end of its TTL.
func (m *Manager) end(ctx context.Context, l *Lock) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.ttl)
	defer cancel()
	_ = m.Release(ctx, l)
}

// Held returns all locks that are held now, sorted by name.
func (m *Manager) Held(ctx context.Context) ([]HeldError, error) {
	all, now, err := m.store.Locks(ctx, "")
	var held []HeldError
	for _, l := range all {
		if inForce(l, now) {
			held = append(held, *heldError(l))
		}
	}
	return held, err
}

// ForceRelease takes a lock from its holder, and returns that holder, or nil if the lock was free. It writes an entry
// with the actor's name into the journal. The holder learns of the loss at its next renewal, within a third of its TTL.
// Until then it may run at the same time as the next holder.
func (m *Manager) ForceRelease(ctx context.Context, actor, name string) (from *HeldError, err error) {
	if err := (ledger.Lock{Name: name, Holder: actor}).Check(bounds.MinTTL, 0); err != nil {
		return nil, err
	}
	// Locks also checks that this program may use the ledger.
	if _, _, err := m.store.Locks(ctx, name); err != nil {
		return nil, err
	}
	err = m.store.Update(ctx, nil, func(tx ledger.Tx) (err error) {
		from, err = breakUp(tx, actor, name)
		return err
	})
	return from, err
}

// again repeats a call that is safe to repeat when the database is unavailable for a moment.
func again(ctx context.Context, call func() error) error {
	began := time.Now()
	for try := 1; ; try++ {
		err := call()
		if !errors.Is(err, ledger.ErrUnavailable) || try == tries || time.Since(began) > retryTime ||
			wait.For(ctx, rand.N(2*retryPause)) != nil {
			return err
		}
	}
}
