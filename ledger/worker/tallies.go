package worker

import (
	"context"
	"time"

	"github.com/ledgerd/ledgerd/ledger/bounds"
)

// tallyEvery is how often what ended is written for those who ask how fast work goes on: what a
// kill can lose of it.
const tallyEvery = 5 * time.Second

// tallied adds up what ended. It never holds up a finish: many endings are one row.
func (w *Worker) tallied(t *task, ev *Event) {
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
