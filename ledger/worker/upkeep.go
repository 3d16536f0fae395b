package worker

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/process"
)

const (
	promoteMost   = 1000                 // items of one call
	promoteLeast  = 5 * time.Millisecond // the shortest pause between two calls
	expireMost    = 100                  // items of one call, so that renewals of other workers are not delayed
	expireEvery   = time.Second
	quietEvery    = 4 * time.Second // the longest pause of a quiet worker, before jitter
	pruneMost     = 500             // items of one call
	pruneEvery    = 5 * time.Minute
	beatEvery     = 10 * time.Second
	beatTTL       = 3 * beatEvery
	farewellTime  = 2 * time.Second // of each last call of a worker: its heartbeat, its tallies
	hintsBuffered = 256             // hints that may wait for the lanes; more are dropped
)

// promoteLoop makes items of all kinds ready when they are due. It sleeps until the next one is due.
func (w *Worker) promoteLoop(life context.Context) {
	for life.Err() == nil {
		wait(life, w.due, w.promote(life, w.config.Poll))
	}
}

// promote makes due items ready. pause is the time until the next item is due, or about every if that is sooner.
func (w *Worker) promote(life context.Context, every time.Duration) (pause time.Duration) {
	next, err := w.config.Ledger.Promote(life, promoteMost)
	pause = jitter(every)
	if !w.failed("promote", err) && !next.IsZero() {
		pause = min(pause, max(next.Sub(w.clock.now()), promoteLeast))
	}
	return pause
}

// quietLoop does the upkeep of a quiet worker, except pruning, with one timer.
func (w *Worker) quietLoop(life context.Context) {
	for pause := jitter(quietEvery); sleep(life, pause); {
		w.expire(life)
		pause = w.promote(life, quietEvery)
		for pause <= promoteLeast && sleep(life, pause) { // more are due
			pause = w.promote(life, quietEvery)
		}
		pause = max(pause, expireEvery)
	}
}

// expireLoop ends expired leases, and the leases of processes that are known to be gone. After an outage it first gives
// live workers the time to renew their expired leases.
func (w *Worker) expireLoop(life context.Context) {
	for sleep(life, jitter(expireEvery)) {
		w.expire(life)
	}
}

func (w *Worker) expire(life context.Context) {
	w.failed("expire", w.expireGone(life))
	for full := true; full && !w.outage.recent(w.config.Lease); {
		n, err := w.config.Ledger.Expire(life, expireMost)
		w.meterExpired(n)
		full = !w.failed("expire", err) && n > 0
	}
}

// expireGone takes the leases of programs that are gone before they expire.
func (w *Worker) expireGone(ctx context.Context) error {
	n, err := w.config.Ledger.ExpireGone(ctx)
	w.meterExpired(n)
	return err
}

func (w *Worker) meterExpired(leases int) {
	if m := w.config.Meter; m != nil && leases > 0 {
		m.Expired(leases)
	}
}

// pruneLoop applies Keep of the kinds, and removes old tallies.
func (w *Worker) pruneLoop(life context.Context) {
	for sleep(life, jitter(pruneEvery)) {
		w.failed("tallies", w.config.Ledger.ForgetTallies(life))
		for full := true; full; {
			n, err := w.config.Ledger.Prune(life, pruneMost)
			full = !w.failed("prune", err) && n == pruneMost
		}
	}
}

// beatLoop sends heartbeats and reads the policies again, at intervals.
func (w *Worker) beatLoop(life context.Context) {
	for sleep(life, beatEvery) {
		w.failed("beat", w.beat(life))
	}
}

func (w *Worker) beat(ctx context.Context) error {
	if w.config.Quiet {
		return nil
	}
	w.beats.Lock()
	defer w.beats.Unlock()
	return w.beatLocked(ctx)
}

// beatLocked is beat for a caller that holds beats.
func (w *Worker) beatLocked(ctx context.Context) error {
	l := w.config.Ledger
	me := w.agent()
	if err := l.Beat(ctx, me, beatTTL); err != nil {
		return err
	}
	here := time.Now()
	agents, err := l.Agents(ctx)
	if err != nil {
		return err
	}
	for _, a := range agents {
		if a.Name == me.Name {
			w.clock.set(a.SeenAt, here)
		}
	}
	return w.readPolicies(ctx)
}

// agent returns the heartbeat of this worker.
func (w *Worker) agent() ledger.Agent {
	host, _ := os.Hostname() // "" if it is not known
	kinds, configs, stalled := map[string]string{}, map[string]string{}, map[string]time.Time{}
	plugins := map[string]health.Plugin{}
	for _, l := range w.lanes() {
		kinds[l.kind] = l.config.Definition
		if d, ok := l.handler.(Defined); ok {
			kinds[l.kind], configs[l.kind] = d.Definition(), d.Config()
		}
		if s, ok := l.handler.(Supervised); ok {
			plugins[l.kind] = s.Plugin()
		}
		if l.governor == nil {
			continue
		}
		if until := l.governor.Stalled(); !until.IsZero() {
			stalled[l.kind] = w.clock.there(until)
		}
	}
	if w.config.Absent != nil {
		for kind, absence := range w.config.Absent() {
			if _, works := kinds[kind]; works { // the worker still has the kind and is dropping it
				continue
			}
			if stalled[kind] = w.clock.there(absence.Again); absence.Config != "" {
				configs[kind] = absence.Config
			}
			plugins[kind] = health.Plugin{State: health.Absent, Code: absence.Code, Error: health.OneLine(absence.Error),
				ErrorAt: absence.At.UTC().Truncate(time.Second)}
		}
	}
	return ledger.Agent{Name: w.config.Agent, Host: host, PID: os.Getpid(), Process: process.This(),
		Version: w.config.Version, Kinds: kinds, Configs: configs, Stalled: stalled, Plugins: plugins,
		Shard: w.config.Shard, Skew: w.clock.skew()}
}

// removeHeartbeat removes this worker from the list of agents. If that fails, the heartbeat expires by itself.
func (w *Worker) removeHeartbeat() {
	if w.config.Quiet {
		return
	}
	ctx, cancel := context.WithTimeout(w.base, farewellTime)
	defer cancel()
	if err := w.config.Ledger.Beat(ctx, w.agent(), 0); err != nil {
		w.log.Debug("the heartbeat was not removed; it expires by itself", "error", err)
	}
}

func (w *Worker) readPolicies(ctx context.Context) error {
	policies, err := w.policies(ctx)
	if err != nil {
		return err
	}
	for _, l := range w.lanes() {
		l.govern(policies[l.kind])
	}
	return nil
}

// policies returns the policies in the ledger, by kind.
func (w *Worker) policies(ctx context.Context) (map[string]ledger.Kind, error) {
	kinds, err := w.config.Ledger.Kinds(ctx)
	byName := make(map[string]ledger.Kind, len(kinds))
	for _, k := range kinds {
		byName[k.Name] = k
	}
	return byName, err
}

// listen passes on hints that items may have become ready to the lanes.
func (w *Worker) listen(life context.Context) {
	hints := make(chan string, hintsBuffered)
	var reader sync.WaitGroup
	reader.Go(func() {
		for kind := range hints {
			for _, l := range w.lanes() {
				if kind == "" || kind == l.kind {
					l.hinted()
				}
			}
		}
	})
	w.config.Ledger.Subscribe(life, hints)
	close(hints)
	reader.Wait()
}

// outage logs once that the ledger is unavailable, and once that it is available again. An outage begins when a call
// fails. It ends when no call counts as failing any more: each has worked since, or was not tried for failingFor.
type outage struct {
	log *slog.Logger

	mu         sync.Mutex
	failing    map[string]time.Time // calls whose last try failed → when
	began      time.Time            // when the newest outage began; zero before the first
	over       time.Time            // when the newest outage ended; zero while it lasts and before the first
	recordedAt time.Time            // when the end of an item was recorded last
}

// failingFor is how long a call that is not tried again counts as failing: longer than any back-off.
const failingFor = 2 * time.Duration(lastBackoff)

// note records whether a call failed.
func (o *outage) note(call string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil && len(o.failing) == 0 {
		return
	}
	now := time.Now()
	maps.DeleteFunc(o.failing, func(c string, at time.Time) bool { return c == call || now.Sub(at) > failingFor })
	away := !o.began.IsZero() && o.over.IsZero()
	if err != nil {
		if o.failing == nil {
			o.failing = map[string]time.Time{}
		}
		o.failing[call] = now
		if !away {
			o.began, o.over = now, time.Time{}
			o.log.Warn("the ledger is unavailable; trying again until it is back", "call", call, "error", err)
		}
	} else if away && len(o.failing) == 0 {
		o.over = now
		o.log.Info("the ledger is available again", "after", now.Sub(o.began).Round(time.Millisecond).String())
	}
}

// endedNow records an outage of the given length that was over just now, unless there was one.
func (o *outage) endedNow(length time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.began.IsZero() {
		return
	}
	o.over = time.Now()
	o.began = o.over.Add(-length)
}

// endRecorded notes that the end of an item was recorded just now.
func (o *outage) endRecorded() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.recordedAt = time.Now()
}

// lasts reports whether the ledger is unavailable, and no end has been recorded for d. While ends are recorded, the
// work goes on, and calls that fail are tried again.
func (o *outage) lasts(d time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.began.IsZero() && o.over.IsZero() && time.Since(o.began) >= d && time.Since(o.recordedAt) >= d
}

// recent reports whether leases of the given TTL may have expired only because they could not be renewed. This holds
// during an outage, and for a third of the TTL after one that was longer than a quarter of the TTL.
func (o *outage) recent(ttl time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.began.IsZero():
		return false
	case o.over.IsZero():
		return true
	}
	return o.over.Sub(o.began) > ttl/4 && time.Since(o.over) < ttl/3
}

// unrecorded counts results that could not be recorded, for one message about all of them.
type unrecorded struct {
	mu    sync.Mutex
	items int
	last  error
}

func (u *unrecorded) add(err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.items++
	u.last = err
}

func (u *unrecorded) tell(log *slog.Logger) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.items > 0 {
		log.Error("results could not be recorded; their items are taken back when the leases expire", "items", u.items,
			"error", u.last)
	}
}
