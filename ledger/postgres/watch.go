package postgres

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// channelPrefix is followed by the schema: one channel for each ledger of a database.
const channelPrefix = "ledgerd_"

const (
	announceEvery   = 5 * time.Millisecond // at most one announcement of a kind within it
	announceTimeout = time.Second
	reconnectFirst  = 100 * time.Millisecond
	reconnectLast   = 30 * time.Second
)

// announcer sends kinds to the watchers of other processes, off the path of those who added.
type announcer struct {
	mu      sync.Mutex
	pending map[string]bool
	sending bool
}

// Announce implements ledger.Store.
func (s *Store) Announce(kinds ...string) {
	a := &s.announcer
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil {
		a.pending = map[string]bool{}
	}
	for _, k := range kinds {
		a.pending[k] = true
	}
	if a.sending {
		return
	}
	leave, err := s.enter()
	if err != nil {
		return // closed: polling finds it
	}
	a.sending = true
	go func() {
		defer leave()
		s.announce()
	}()
}

// announce sends what is pending until nothing is.
func (s *Store) announce() {
	for {
		kinds := s.announcer.take()
		if len(kinds) == 0 {
			return
		}
		// Close waits for it
		ctx, cancel := context.WithTimeout(context.Background(), announceTimeout)
		// a hint
		_, _ = s.pool.Exec(ctx, `SELECT pg_notify($1, kind) FROM unnest($2::text[]) u(kind)`, pgx.QueryExecModeCacheDescribe,
			s.channel, kinds)
		cancel()
		pause(s.ending, announceEvery)
	}
}

// take empties the announcer; nothing ends the sender.
func (a *announcer) take() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	kinds := make([]string, 0, len(a.pending))
	for k := range a.pending {
		kinds = append(kinds, k)
	}
	clear(a.pending)
	a.sending = len(kinds) > 0
	return kinds
}

// Watch implements ledger.Store: it listens on a connection of its own, and again when that is
// lost. Hints that may have been missed meanwhile are announced as any kind.
func (s *Store) Watch(ctx context.Context, wake func(kind string)) {
	leave, err := s.enter()
	if err != nil {
		<-ctx.Done()
		return
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	for delay := reconnectFirst; ctx.Err() == nil; delay = min(2*delay, reconnectLast) {
		if s.listen(ctx, wake) {
			delay = reconnectFirst
		}
		pause(ctx, delay/2+rand.N(delay/2))
	}
}

// listen calls wake until the connection is lost; it reports whether there was one.
func (s *Store) listen(ctx context.Context, wake func(kind string)) bool {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return false
	}
	conn := pooled.Hijack() // made as the pool makes them, and counted no more
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+quote(s.channel)); err != nil {
		return false
	}
	wake("")
	// The end of ctx would ask the server to cancel a statement, and wait for it; there is none.
	defer context.AfterFunc(ctx, func() { _ = conn.PgConn().Conn().SetDeadline(time.Now()) })()
	for {
		n, err := conn.WaitForNotification(context.WithoutCancel(ctx))
		if err != nil {
			return true
		}
		wake(n.Payload)
	}
}
