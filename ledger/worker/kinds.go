package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/ledgerd/ledgerd/ledger"
)

// ErrEnded is returned by Take if the worker ends, or has ended.
var ErrEnded = errors.New("the worker has ended")

// Take has the worker work one more kind, also while it runs. admit is called before, with the heartbeat of this
// worker as it is without the kind; no other one goes out meanwhile. So Ledger.Define can be called in it. It may be
// nil. With an error the kind is not worked: errors are admit's, *ledger.InvalidError, ErrEnded, and those of the
// ledger, from which the policy of the kind is read.
func (w *Worker) Take(ctx context.Context, kind string, h Handler, c KindConfig,
	admit func(ledger.Agent) error) error {
	if err := checkKind(kind, h, c); err != nil {
		return err
	}
	w.beats.Lock()
	defer w.beats.Unlock()
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
	switch {
	case w.closed:
		return ErrEnded
	case slices.ContainsFunc(w.kinds, func(o *lane) bool { return o.kind == kind }):
		return bad("handlers", "kind %q has one already", kind)
	}
	w.kinds = append(slices.Clip(w.kinds), l)
	if w.loops != nil {
		w.loops.work(w.life, l)
	}
	return nil
}

// announce sends a heartbeat if the worker runs. The caller holds beats.
func (w *Worker) announce() {
	if w.runs() {
		w.failed("beat", w.beatLocked(w.life))
	}
}

func (w *Worker) runs() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.loops != nil
}

// Drop has the worker work a kind no more. Nothing more is claimed, and what has not begun is handed back. What runs
// may go on for Grace, and is stopped then as at the end of Run. Drop returns when the ends of all are recorded, or the
// worker has ended. Other kinds go on meanwhile.
func (w *Worker) Drop(kind string) {
	w.mu.Lock()
	i := slices.IndexFunc(w.kinds, func(l *lane) bool { return l.kind == kind })
	if i < 0 {
		w.mu.Unlock()
		return
	}
	l := w.kinds[i]
	began := l.life != nil
	w.mu.Unlock()
	if began {
		l.unclaim()
		l.end()
		<-l.claiming // what a last claim brought is handed back
		for l.holds() > 0 && w.life.Err() == nil {
			wait(w.life, l.news, 0)
		}
		l.over()
	}
	w.beats.Lock()
	defer w.beats.Unlock()
	w.mu.Lock()
	w.kinds = slices.DeleteFunc(slices.Clone(w.kinds), func(o *lane) bool { return o == l })
	w.mu.Unlock()
	w.announce()
}

// lanes are those of all kinds. The caller does not change what it gets.
func (w *Worker) lanes() []*lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kinds
}
