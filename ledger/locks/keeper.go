package locks

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledgerd/ledger/internal/wait"
)

// Fractions of a TTL: a lock is renewed after a third of it, a failed renewal is repeated after a twelfth, and the
// holder stops a tenth before the end.
const (
	renewAt    = 3
	renewAgain = 12
	distrust   = 10
)

// keeper renews a lock until it is stopped or the lock is lost.
type keeper struct {
	end  context.CancelCauseFunc // of the holder's context
	quit context.CancelFunc      // of the keeper's own
	done chan struct{}
	lost atomic.Bool
}

// lose ends the holder's context.
func (k *keeper) lose() {
	k.lost.Store(true)
	k.end(ErrLost)
}

// keep renews l. called is the moment at which l was requested. end ends the holder's context if the lock is lost.
func keep(l *Lock, called time.Time, end context.CancelCauseFunc, renew func(context.Context) error) *keeper {
	ctx, quit := context.WithCancel(context.Background())
	k := &keeper{end: end, quit: quit, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.run(ctx, l.ttl, called, renew)
	}()
	return k
}

// run renews the lock. A timer ends the holder's context in time, because a renewal may hang.
func (k *keeper) run(ctx context.Context, ttl time.Duration, called time.Time, renew func(context.Context) error) {
	trusted := func() time.Time { return called.Add(ttl - ttl/distrust) }
	alarm := time.AfterFunc(time.Until(trusted()), k.lose)
	defer alarm.Stop()
	next := called.Add(ttl / renewAt)
	for wait.For(ctx, time.Until(next)) == nil {
		now := time.Now()
		if !now.Before(trusted()) {
			k.lose()
			return
		}
		trying, cancel := context.WithDeadline(ctx, trusted())
		err := renew(trying)
		cancel()
		switch {
		case err == nil && !alarm.Stop(): // too late: the holder's context has ended
			return
		case err == nil:
			called = now
			alarm.Reset(time.Until(trusted()))
			next = called.Add(ttl / renewAt)
		case errors.Is(err, ErrLost):
			k.lose()
			return
		default:
			next = time.Now().Add(ttl / renewAgain)
		}
	}
}

// stop ends the renewals and the holder's context. It returns when no renewal runs any more.
func (k *keeper) stop() {
	k.end(context.Canceled)
	k.quit()
	<-k.done
}
