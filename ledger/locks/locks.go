package locks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/google/uuid"

	"github.com/ledgerd/ledgerd/ledger"
)

// Manager takes locks in one ledger's database. It is safe for concurrent use.
type Manager struct{ store ledger.LockStore }

// New makes a Manager.
func New(l *ledger.Ledger) *Manager { return &Manager{l.LockStore()} }

// Options of a lock; the zero value is good.
type Options struct {
	Holder  string        // shown to others, at most ledger.MaxAgent bytes; "" means host/pid
	TTL     time.Duration // 1 s … 24 h; 0 means one minute; renewed at a third
	AtLeast time.Duration // up to 24 h: Release keeps the lock this long after it was taken, for jobs faster than schedules agree
	Wait    time.Duration // how long to wait for another holder; 0 means not at all
}

// Lock is a held lock.
type Lock struct {
	Name  string
	Fence int64 // greater than that of every earlier holder of any lock in this ledger

	token  uuid.UUID // chosen before it was asked for, so that asking again is safe
	ttl    time.Duration
	keeper *keeper
}

// HeldError says who holds a lock. After an early release (see Options.AtLeast) it says who held it.
type HeldError struct {
	Name, Holder string
	Fence        int64
	Since, Until time.Time // by the database's clock
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("lock %q is held by %s since %s, until %s unless renewed", e.Name, e.Holder,
		e.Since.Format(time.RFC3339), e.Until.Format(time.RFC3339))
}

// ErrLost says that a lock is not held any more: it was not renewed in time, or an operator took it.
var ErrLost = errors.New("lock lost")

const (
	// Who waits looks after firstLook, and then ever more rarely.
	firstLook, lastLook = 20 * time.Millisecond, 500 * time.Millisecond
	// How often, and after which pause, a call is repeated when the database is unavailable, unless
	// it took long to say so.
	tries, retryPause, retryTime = 3, 100 * time.Millisecond, 5 * time.Second
	// How long a call may take. It waits for a holder that is committing (see Check), which may be
	// frozen while it does: then the lock is held though its time is over.
	askTime = 10 * time.Second
	// How long the database is asked to forget a lock that nobody has got.
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
	if o.TTL == 0 {
		o.TTL = time.Minute
	}
	o.TTL, o.AtLeast = o.TTL.Truncate(time.Microsecond), o.AtLeast.Truncate(time.Microsecond) // as databases keep it
	if o.Wait < 0 {
		return o, &ledger.InvalidError{Field: "wait", Reason: o.Wait.String() + ", must not be negative"}
	}
	return o, ledger.CheckLock(name, o.Holder, o.TTL, o.AtLeast)
}

// Acquire takes a lock and keeps it renewed until Release, also when ctx has ended, or returns
// *HeldError. The context it returns ends with ctx, with Release, and with cause ErrLost before
// somebody else can have the lock. Also without Wait it may take ten seconds to refuse: when the
// holder's time is over and it is about to commit (see Check).
//
// Errors besides: ledger.ErrInvalid; ledger.ErrUnavailable, after which the lock may stay taken for
// its TTL; that of ctx.
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
			held, end := context.WithCancelCause(ctx)
			l.keeper = keep(l, called, end, func(ctx context.Context) error {
				return m.store.Update(ctx, nil, func(tx ledger.Tx) error { return renew(tx, l) })
			})
			return held, l, nil
		}
		left := time.Until(giveUp)
		if held := (*HeldError)(nil); !errors.As(err, &held) || left <= 0 {
			return ctx, nil, err
		}
		if err := pause(ctx, min(left, look/2+rand.N(look))); err != nil {
			return ctx, nil, err
		}
	}
}

// take asks for the lock once. Being refused writes nothing.
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
	if err == nil || errors.As(err, new(*HeldError)) {
		return fence, err
	}
	forgetting, cancel := context.WithTimeout(context.WithoutCancel(ctx), forgetTime) // it may have taken effect
	defer cancel()
	_ = m.store.Update(forgetting, nil, func(tx ledger.Tx) error { return forget(tx, want) }) // at worst the lock ends with its TTL
	switch {
	case asking.Err() == nil || ctx.Err() != nil:
		return 0, err
	case len(there) > 0:
		return 0, heldError(there[0])
	}
	return 0, fmt.Errorf("lock %q: no answer within %v: %w", want.Name, askTime, ledger.ErrUnavailable)
}

// Release gives the lock back; releasing a lost lock is nil, also one that was released before.
// After an error (ledger.ErrUnavailable, or that of ctx) it may be called again; else the lock ends
// with its TTL: it is renewed no more.
func (m *Manager) Release(ctx context.Context, l *Lock) error {
	l.keeper.stop()
	return again(ctx, func() error {
		return m.store.Update(ctx, nil, func(tx ledger.Tx) error { return release(tx, l) })
	})
}

// Do runs fn under a lock and releases it, also on error and panic. *HeldError if it is held; else
// the error of fn. If the lock was lost before fn returned the error matches ErrLost, whether fn
// noticed or not.
func (m *Manager) Do(ctx context.Context, name string, o Options, fn func(ctx context.Context, l *Lock) error) error {
	held, l, err := m.Acquire(ctx, name, o)
	if err != nil {
		return err
	}
	defer m.end(ctx, l)
	err = fn(held, l)
	if l.keeper.lost.Load() {
		return lost(err)
	}
	return err
}

// end releases a lock whose work is done. That it fails does not undo the work: the lock ends with
// its TTL then.
func (m *Manager) end(ctx context.Context, l *Lock) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.ttl)
	defer cancel()
	_ = m.Release(ctx, l)
}

// Held returns all locks that are held now, by name.
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

// ForceRelease takes a lock from its holder, which goes into the journal with the actor's name, and
// says from whom; nil if nobody held it. The holder learns of it at its next renewal, after a third
// of its TTL, and may run beside the next one until then.
func (m *Manager) ForceRelease(ctx context.Context, actor, name string) (from *HeldError, err error) {
	if err := ledger.CheckLock(name, actor, ledger.MinTTL, 0); err != nil {
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
		if !errors.Is(err, ledger.ErrUnavailable) || try == tries || time.Since(began) > retryTime || pause(ctx, rand.N(2*retryPause)) != nil {
			return err
		}
	}
}

// pause waits, unless ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
