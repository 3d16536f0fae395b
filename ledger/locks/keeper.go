package locks

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

// Parts of a TTL: when a lock is renewed, how long after a renewal that failed the next one comes,
// and how long before its end the holder stops trusting it.
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

// lose tells the holder.
func (k *keeper) lose() {
	k.lost.Store(true)
	k.end(ErrLost)
}

// keep renews l; called is the moment at which l was asked for. end tells the holder that it is lost.
func keep(l *Lock, called time.Time, end context.CancelCauseFunc, renew func(context.Context) error) *keeper {
	ctx, quit := context.WithCancel(context.Background())
	k := &keeper{end: end, quit: quit, done: make(chan struct{})}
	go func() {
		defer close(k.done)
		k.run(ctx, l.ttl, called, renew)
	}()
	return k
}

// run renews. The holder is told in time even if the database hangs: by a timer, because a
// renewal may hang.
func (k *keeper) run(ctx context.Context, ttl time.Duration, called time.Time, renew func(context.Context) error) {
	trusted := func() time.Time { return called.Add(ttl - ttl/distrust) }
	alarm := time.AfterFunc(time.Until(trusted()), k.lose)
	defer alarm.Stop()
	next := called.Add(ttl / renewAt)
	for pause(ctx, time.Until(next)) == nil {
		now := time.Now()
		if !now.Before(trusted()) {
			k.lose()
			return
		}
		trying, cancel := context.WithDeadline(ctx, trusted())
		err := renew(trying)
		cancel()
		switch {
		case err == nil && !alarm.Stop(): // it came too late: the holder has been told
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

// stop ends the renewals and the holder's context, and returns when nothing is under way any more.
func (k *keeper) stop() {
	k.end(context.Canceled)
	k.quit()
	<-k.done
}
