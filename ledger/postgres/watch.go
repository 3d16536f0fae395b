package postgres

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ledgerd/ledgerd/ledger/internal/wait"
)

// channelPrefix is followed by the schema: one channel for each ledger of a database.
const channelPrefix = "ledgerd_"

// notify announces kinds: $1 channel, $2 kinds.
const notify = `SELECT pg_notify($1, kind) FROM unnest($2::text[]) u(kind)`

const (
	announceEvery   = 5 * time.Millisecond  // the shortest time between two announcements of a kind
	tellEvery       = 50 * time.Millisecond // the same for announcements in callers' transactions
	announceTimeout = time.Second
	reconnectFirst  = 100 * time.Millisecond
	reconnectLast   = 30 * time.Second
)

// announcer sends kinds to the watchers of other processes, in a goroutine of its own: the callers do not wait.
type announcer struct {
	mu      sync.Mutex
	pending map[string]bool
	sending bool
	told    map[string]time.Time // kind → when a caller's transaction last told of it
}

// tellInTx makes the commit of the caller's transaction announce the kinds of which items become ready. Commits that
// notify wait for each other in the server, so each kind is announced at most once per tellEvery.
func (t *tx) tellInTx() error {
	kinds := t.s.announcer.due(t.ready, time.Now())
	if len(kinds) == 0 {
		return nil
	}
	return t.query(notify, []any{t.s.channel, kinds}, func(scanner) error { return nil })
}

// due returns the kinds that no caller's transaction has announced within tellEvery.
func (a *announcer) due(ready marks, now time.Time) (kinds []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.told, func(_ string, at time.Time) bool { return now.Sub(at) >= tellEvery })
	for m := range ready {
		if _, told := a.told[m.kind]; !told {
			if a.told == nil {
				a.told = map[string]time.Time{}
			}
			a.told[m.kind] = now
			kinds = append(kinds, m.kind)
		}
	}
	return kinds
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

// announce sends pending hints until there are none.
func (s *Store) announce() {
	for {
		kinds := s.announcer.take()
		if len(kinds) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), announceTimeout) // Close waits for it
		_, _ = s.pool.Exec(ctx, notify, pgx.QueryExecModeCacheDescribe, s.channel, kinds)
		cancel()
		_ = wait.For(s.ending, announceEvery)
	}
}

// take empties the announcer. If it was empty, the sender ends.
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

// Watch implements ledger.Store: it listens on a connection of its own, and again when that is lost. Since hints may
// have been missed meanwhile, it then calls wake with "", for any kind.
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
		_ = wait.For(ctx, delay/2+rand.N(delay/2))
	}
}

// listen calls wake until the connection is lost; it reports whether there was one.
func (s *Store) listen(ctx context.Context, wake func(kind string)) bool {
	pooled, err := s.pool.Acquire(ctx)
	if err != nil {
		return false
	}
	conn := pooled.Hijack() // the pool does not count it any more
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+quote(s.channel)); err != nil {
		return false
	}
	wake("")
	// The wait has a context without an end: else pgx would ask the server to cancel a statement, and there is none.
	defer context.AfterFunc(ctx, func() { _ = conn.PgConn().Conn().SetDeadline(time.Now()) })()
	for {
		n, err := conn.WaitForNotification(context.WithoutCancel(ctx))
		if err != nil {
			return true
		}
		wake(n.Payload)
	}
}
