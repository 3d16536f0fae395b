package worker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledgerd/ledger"
)

// tallyEvery is how often what ended is written for those who ask how fast work goes on: what a
// kill can lose of it.
const tallyEvery = 5 * time.Second

// minutes adds up what ended, by minute and kind. It never holds up a finish: many endings are one row.
type minutes struct {
	mu   sync.Mutex
	sums map[minute]ledger.MinuteTally
}

type minute struct {
	at   int64 // in Unix minutes: cheaper to look up than a time
	kind string
}

func (m *minutes) add(at time.Time, kind string, outcome ledger.Outcome, worked time.Duration) {
	key := minute{at.Unix() / 60, kind}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sums == nil {
		m.sums = map[minute]ledger.MinuteTally{}
	}
	t := m.sums[key]
	t.Count(outcome, worked)
	m.sums[key] = t
}

// take empties it.
func (m *minutes) take(agent string) []ledger.MinuteTally {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := slices.SortedFunc(maps.Keys(m.sums), func(a, b minute) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind))
	})
	keys = keys[max(0, len(keys)-ledger.MaxBatch):] // the ledger has been away for days: the newest will do
	list := make([]ledger.MinuteTally, len(keys))
	for i, k := range keys {
		list[i] = m.sums[k]
		list[i].At, list[i].Kind, list[i].Agent = time.Unix(60*k.at, 0), k.kind, agent
	}
	m.sums = nil
	return list
}

// back returns what could not be written.
func (m *minutes) back(list []ledger.MinuteTally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sums == nil {
		m.sums = map[minute]ledger.MinuteTally{}
	}
	for _, t := range list {
		key := minute{t.At.Unix() / 60, t.Kind}
		now := m.sums[key]
		now.Done += t.Done
		now.Failed += t.Failed
		now.Other += t.Other
		now.Worked += t.Worked
		m.sums[key] = now
	}
}

func (w *Worker) tallyLoop(life context.Context) {
	for sleep(life, jitter(tallyEvery)) {
		w.flush(life)
	}
}

func (w *Worker) flush(ctx context.Context) {
	list := w.minutes.take(w.config.Agent)
	if len(list) > 0 && w.failed("tally", w.config.Ledger.AddTallies(ctx, list...)) {
		w.minutes.back(list)
	}
}

// tallyRest writes what is left when the worker stops; what cannot be written is lost.
func (w *Worker) tallyRest() {
	ctx, cancel := context.WithTimeout(w.base, farewellTime)
	defer cancel()
	if list := w.minutes.take(w.config.Agent); len(list) > 0 {
		if err := w.config.Ledger.AddTallies(ctx, list...); err != nil {
			w.log.Debug("what ended last was not tallied", "error", err)
		}
	}
}
