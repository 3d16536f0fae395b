package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/internal/failpoint"
	"github.com/ledgerd/ledgerd/ledger"
)

// Bounds of the phases at the end of a worker.
const (
	stopTime   = 5 * time.Second // for handlers to return after their context has ended
	finishTime = 5 * time.Second // for the last ends to be recorded
)

// Run works until ctx ends. Then it stops claiming and hands back items that have not begun. Running items may
// finish within Grace; after that the contexts of their handlers end. Run returns nil at most Grace and about ten
// seconds after the end of ctx. Items whose handler has not returned by then are released, or with
// ledger.OnLostDoubt left in doubt.
//
// If the database does not answer, Run waits for it, at most for Config.GiveUp. If waiting does not help, Run returns
// the error: ledger.ErrSchema, ErrNoLedger, ErrDenied, ErrDamaged or ErrInvalid, also once the ledger or its
// pool is closed.
func (w *Worker) Run(ctx context.Context) error {
	return w.work(ctx, func(ctx context.Context) {
		for ctx.Err() == nil && !w.done() {
			wait(ctx, w.look, 0)
		}
	})
}

// StopNow ends the grace early: the contexts of running items end at once, as soon as ctx has ended.
func (w *Worker) StopNow() { w.once.Do(func() { close(w.hurry) }) }

// work runs the worker until the function returns. The ctx of the function ends with that of the caller, or when the
// worker cannot continue.
func (w *Worker) work(ctx context.Context, until func(context.Context)) error {
	if w.used.Swap(true) {
		return errors.New("worker: a worker is run once")
	}
	w.base = withoutSpan(context.WithoutCancel(ctx))
	life, end := context.WithCancel(w.base)
	defer end()
	w.life = life
	defer w.removeHeartbeat() // also when ctx ends in the middle of prepare
	if ready, err := w.prepare(ctx); !ready {
		w.close()
		return err
	}

	if w.config.Lends {
		w.outage.endedNow(w.config.Lease)
	}
	claiming, stopClaiming := context.WithCancelCause(ctx)
	defer stopClaiming(nil)
	var g goroutines
	w.start(claiming, &g)
	g.rest.Go(func() {
		select {
		case err := <-w.broke:
			stopClaiming(err)
		case <-life.Done():
		}
	})

	until(claiming)
	var broken error
	if ctx.Err() == nil {
		if broken = context.Cause(claiming); broken != nil {
			w.log.Error("cannot go on: claiming nothing more, finishing what runs", "grace", w.config.Grace.String(), "error",
				broken)
		}
	}
	stopClaiming(nil)
	w.stop(w.close())
	late := time.AfterFunc(finishTime, end)
	defer late.Stop()
	g.claiming.Wait() // items of a last claim are handed back
	for w.holds() > 0 && life.Err() == nil {
		wait(life, w.look, 0)
	}
	w.finisher.close()
	g.finishing.Wait()
	end()
	g.rest.Wait()
	w.tallyRest()
	w.lost.tell(w.log)
	return broken
}

// prepare waits for the ledger, takes the leases of programs that are gone (one of them may have had the name of this
// worker), reads the policies and writes the heartbeat. If ctx ends first, it returns false without an error.
func (w *Worker) prepare(ctx context.Context) (ready bool, err error) {
	var pause backoff
	for ctx.Err() == nil {
		err := w.expireGone(ctx)
		if err == nil {
			err = w.beat(ctx)
		}
		switch {
		case err == nil:
			w.outage.note("beat", nil)
			return true, nil
		case fatal(err):
			return false, err
		}
		if ctx.Err() == nil {
			w.outage.note("beat", err)
			if w.config.GiveUp > 0 && w.outage.lasts(w.config.GiveUp) {
				return false, err
			}
		}
		sleep(ctx, pause.next())
	}
	return false, nil
}

// goroutines of a worker, by the event that ends them.
type goroutines struct {
	claims    context.Context // of the goroutines that claim
	claiming  sync.WaitGroup  // ends when claiming ends
	finishing sync.WaitGroup  // ends by close of the finisher, when nothing is left
	rest      sync.WaitGroup  // ends with life
}

func (w *Worker) start(claiming context.Context, g *goroutines) {
	g.finishing.Go(func() { w.finisher.loop(w.life, 1) })
	g.finishing.Go(func() { w.finisher.loop(w.life, finishFull) })
	calls := make(chan call, 4)
	loops := []func(context.Context){w.quietLoop, w.pruneLoop}
	if !w.config.Quiet {
		loops = []func(context.Context){func(life context.Context) { w.watchLoop(life, calls) },
			func(life context.Context) { w.askLoop(life, calls) }, w.promoteLoop, w.expireLoop, w.pruneLoop, w.beatLoop,
			w.tallyLoop, w.listen}
	}
	for _, loop := range loops {
		g.rest.Go(func() { loop(w.life) })
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	g.claims, w.loops = claiming, g
	for _, l := range w.kinds {
		g.work(w.life, l)
	}
}

// work begins to work a kind.
func (g *goroutines) work(life context.Context, l *lane) {
	var claims context.Context
	l.ctx, l.cancel = context.WithCancel(life)
	claims, l.stopClaimer = context.WithCancel(g.claims)
	l.claimerDone = make(chan struct{})
	g.rest.Go(func() { l.dispatchLoop(l.ctx) })
	g.claiming.Go(func() {
		defer close(l.claimerDone)
		l.claimLoop(claims)
	})
}

// close makes the worker take no more kinds, and returns the lanes that it has.
func (w *Worker) close() []*lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loops, w.closed = nil, true
	return w.kinds
}

// stop ends all running items, see Run.
func (w *Worker) stop(lanes []*lane) {
	failpoint.Here("worker.stopping")
	var all sync.WaitGroup
	for _, l := range lanes {
		all.Go(l.end)
	}
	all.Wait()
}

// end ends the running items of the kind, see Run. A second call waits for the first.
func (l *lane) end() {
	if l.ending.Swap(true) {
		<-l.handlersDone
		return
	}
	defer close(l.handlersDone)
	w := l.worker
	l.stop()
	if l.governor != nil {
		l.governor.HandBack(w.config.Grace)
	}
	l.waitForHandlers(w.config.Grace, w.hurry)
	for _, t := range l.inHandle() {
		t.cancel(ErrStopping)
	}
	l.waitForHandlers(stopTime, nil)
	for _, t := range l.inHandle() {
		t.log().Warn("the handler did not return when it was stopped")
		t.settle(l.cutOff())
	}
}

// cutOff returns the result of an item that had begun and may have come to any point.
func (l *lane) cutOff() ledger.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	res := ledger.Result{Outcome: ledger.OutcomeReleased, Code: "stopped",
		Error: "the handler did not return when it was stopped"}
	if l.doubtful() {
		res.Outcome = ledger.OutcomeUnknown
	}
	return res
}

// waitForHandlers waits until no handler runs, but no longer than most, and not after hurry is closed.
func (l *lane) waitForHandlers(most time.Duration, hurry <-chan struct{}) {
	late := time.NewTimer(most)
	defer late.Stop()
	for len(l.inHandle()) > 0 {
		select {
		case <-l.changed:
		case <-hurry:
			return
		case <-late.C:
			return
		}
	}
}

// inHandle returns the tasks that run.
func (l *lane) inHandle() (tasks []*task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.tasks {
		if t.phase == running {
			tasks = append(tasks, t)
		}
	}
	return tasks
}
