package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrEnded is returned by Take if the worker ends, or has ended.
var ErrEnded = errors.New("the worker has ended")

// Take makes the worker work one more kind, also while it runs. admit may be nil. It is called first, with the
// heartbeat of this worker as it is without the kind; no other heartbeat is sent meanwhile, so admit can call
// Ledger.Define. After an error the kind is not worked. Errors: those of admit, *ledger.InvalidError, ErrEnded, and
// those of reading the policy of the kind.
func (w *Worker) Take(ctx context.Context, kind string, h Handler, c KindConfig,
	admit func(ledger.Agent) error) error {
	if err := checkKind(kind, h, c); err != nil {
		return err
	}
	w.beats.Lock()
	defer w.beats.Unlock()
	if err := w.canTake(kind); err != nil { // before admit changes the definition of the kind
		return err
	}
	defer w.announce() // admit may have sent a heartbeat, too
	if admit != nil {
		if err := admit(w.agent()); err != nil {
			return err
		}
	}
	policies, err := w.policies(ctx)
	if err != nil {
		return err
	}
	l := newLane(w, kind, h, c)
	l.govern(policies[kind])
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed { // meanwhile
		return ErrEnded
	}
	w.kinds = append(slices.Clip(w.kinds), l)
	if w.loops != nil {
		w.loops.work(w.life, l)
	}
	return nil
}

// canTake returns an error if the worker has ended, or works the kind already. The caller holds beats.
func (w *Worker) canTake(kind string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.closed:
		return ErrEnded
	case slices.ContainsFunc(w.kinds, func(l *lane) bool { return l.kind == kind }):
		return bad("handlers", "kind %q has one already", kind)
	}
	return nil
}

// announce sends a heartbeat if the worker runs. The caller holds beats.
func (w *Worker) announce() {
	w.mu.Lock()
	runs := w.loops != nil
	w.mu.Unlock()
	if runs {
		w.failed("beat", w.beatLocked(w.life))
	}
}

// Drop makes the worker stop working a kind. Nothing more is claimed, and items that have not begun are handed back.
// Running items may continue for Grace, and are then stopped as at the end of Run. Drop returns when all ends are
// recorded, or the worker has ended. Other kinds continue meanwhile.
func (w *Worker) Drop(kind string) {
	w.mu.Lock()
	i := slices.IndexFunc(w.kinds, func(l *lane) bool { return l.kind == kind })
	if i < 0 {
		w.mu.Unlock()
		return
	}
	l := w.kinds[i]
	began := l.ctx != nil
	if !began { // removed under the same lock, so that Run cannot start it
		w.kinds = slices.Delete(slices.Clone(w.kinds), i, i+1)
	}
	w.mu.Unlock()
	if began {
		l.stopClaimer()
		l.end()
		<-l.claimerDone // items of a last claim are handed back
		for l.holds() > 0 && w.life.Err() == nil {
			wait(w.life, l.changed, 0)
		}
		signal(l.changed) // to another Drop of the kind that waits
		l.cancel()
	}
	w.beats.Lock()
	defer w.beats.Unlock()
	w.mu.Lock()
	w.kinds = slices.DeleteFunc(slices.Clone(w.kinds), func(o *lane) bool { return o == l })
	w.mu.Unlock()
	w.announce()
}

// lanes returns the lanes of all kinds. The caller must not change the slice.
func (w *Worker) lanes() []*lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kinds
}
