package worker

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// tallyEvery is how often counts of ended attempts are written, from which the speed of work is computed. A killed
// worker loses at most the counts of this time.
const tallyEvery = 5 * time.Second

// addTally counts an ended attempt. It makes no call, since one call later writes the sums of many attempts.
func (w *Worker) addTally(t *task, ev *Event) {
	m := ev.Recorded.Tally(ev.Worked)
	if m.At, m.Kind, m.Agent = w.clock.now(), t.lease.Kind, w.config.Agent; !t.began.IsZero() {
		m.Waits.Count(ev.Waited)
		m.Works.Count(ev.Worked)
	}
	w.sums.Add(m)
}

func (w *Worker) tallyLoop(life context.Context) {
	for sleep(life, jitter(tallyEvery)) {
		w.flush(life)
	}
}

func (w *Worker) flush(ctx context.Context) {
	list := w.sums.Take(bounds.MaxBatch) // the newest ones, if the ledger has been unavailable for days
	if len(list) > 0 && w.failed("tally", w.config.Ledger.AddTallies(ctx, list...)) {
		for _, m := range list {
			w.sums.Add(m)
		}
	}
}

// tallyRest writes the last counts when the worker stops. If that fails, they are lost.
func (w *Worker) tallyRest() {
	ctx, cancel := context.WithTimeout(w.base, farewellTime)
	defer cancel()
	if list := w.sums.Take(bounds.MaxBatch); len(list) > 0 {
		if err := w.config.Ledger.AddTallies(ctx, list...); err != nil {
			w.log.Debug("what ended last was not tallied", "error", err)
		}
	}
}
