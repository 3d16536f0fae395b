package pluginhost

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// inHand makes a session without a process that has these items in hand, and places for some.
func inHand(places int, timeout time.Duration, ids ...int64) (*session, map[int64]ledger.Result, *bytes.Buffer) {
	log, settled := &bytes.Buffer{}, map[int64]ledger.Result{}
	h := &Host{log: slog.New(slog.NewTextHandler(log, nil)), times: defaultTimes}
	s := &session{host: h, tasks: map[taskKey]*task{}, setup: &setup{about: &Description{Emits: []string{"child"}}, worker: "p@1.0.0+abcdef", places: places}}
	for _, id := range ids {
		t := &task{key: taskKey{id, 1}, ctx: context.Background(), lease: &ledger.Lease{Item: ledger.Item{ID: id}}, sent: true, timeout: timeout}
		t.settle = func(res ledger.Result) { settled[id] = res }
		s.tasks[t.key] = t
		s.waiting = append(s.waiting, t)
	}
	s.begin()
	return s, settled, log
}

func result(id int64, edit ...func(*wire.Result)) *wire.Result {
	r := &wire.Result{Id: id, Attempt: 1, Outcome: wire.Result_OUTCOME_DONE}
	for _, e := range edit {
		e(r)
	}
	return r
}

// The timeout of an item runs from when the plugin has room for it, not from when it was sent.
func TestDeadlines(t *testing.T) {
	s, _, _ := inHand(2, time.Minute, 1, 2, 3, 4, 5)
	running := func() (ids []int64) {
		for id := int64(1); id <= 5; id++ {
			if task := s.tasks[taskKey{id, 1}]; task != nil && !task.deadline.IsZero() {
				ids = append(ids, id)
			}
		}
		return ids
	}
	steps := []struct {
		ended int64
		want  []int64
	}{{0, []int64{1, 2}}, {2, []int64{1, 3}}, {4, []int64{1, 3}}, {1, []int64{3, 5}}, {3, []int64{5}}, {5, nil}}
	for _, step := range steps {
		if step.ended > 0 {
			s.results([]*wire.Result{result(step.ended)})
		}
		if diff := cmp.Diff(step.want, running()); diff != "" {
			t.Errorf("after the end of %d (-want +got):\n%s", step.ended, diff)
		}
	}
	if s.begun != 0 || len(s.tasks) != 0 {
		t.Errorf("%d begun and %d tasks at the end", s.begun, len(s.tasks))
	}
}

// What the plugin sends against the protocol harms nobody but the item that it is about.
func TestBadResults(t *testing.T) {
	child := func(kind string) func(*wire.Result) {
		return func(r *wire.Result) { r.Emit = []*wire.Child{{Kind: kind, Key: "c", Priority: 1 << 20}} }
	}
	cancelled, cancel := context.WithCancelCause(context.Background())
	cancel(worker.ErrCancelled)
	stopped, cancel := context.WithCancelCause(context.Background())
	cancel(worker.ErrStopping)
	type end struct {
		Outcome ledger.Outcome
		Final   bool
		Code    string
	}
	tests := []struct {
		name string
		res  *wire.Result
		ctx  context.Context
		want end
	}{
		{"declared kind", result(1, child("child")), nil, end{ledger.OutcomeDone, false, ""}},
		{"undeclared kind", result(1, child("exec")), nil, end{ledger.OutcomeFailed, true, "emit_refused"}},
		{"unknown outcome", result(1, func(r *wire.Result) { r.Outcome = 99 }), nil, end{ledger.OutcomeFailed, true, "bad_result"}},
		{"no outcome", result(1, func(r *wire.Result) { r.Outcome = 0 }), nil, end{ledger.OutcomeFailed, true, "bad_result"}},
		{"cancelled as asked", result(1, func(r *wire.Result) { r.Outcome = wire.Result_OUTCOME_CANCELLED }), cancelled, end{ledger.OutcomeCancelled, false, ""}},
		{"cancelled, told to stop", result(1, func(r *wire.Result) { r.Outcome = wire.Result_OUTCOME_CANCELLED }), stopped, end{ledger.OutcomeReleased, false, ""}},
		{"cancelled unasked", result(1, func(r *wire.Result) { r.Outcome = wire.Result_OUTCOME_CANCELLED }), nil, end{ledger.OutcomeReleased, false, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s, settled, _ := inHand(4, 0, 1, 2)
			if tt.ctx != nil {
				s.tasks[taskKey{1, 1}].ctx = tt.ctx
			}
			s.results([]*wire.Result{tt.res, result(2)})
			got := settled[1]
			if diff := cmp.Diff(tt.want, end{got.Outcome, got.Final, got.Code}); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if got.Worker != "p@1.0.0+abcdef" {
				t.Errorf("worker %q", got.Worker)
			}
			if settled[2].Outcome != ledger.OutcomeDone {
				t.Errorf("its neighbour: %+v", settled[2])
			}
			for _, n := range got.Emit {
				if ledger.CheckItem(n) == nil {
					t.Error("a priority out of range was brought into it")
				}
			}
		})
	}
}

// Results for items that the process does not have, or not any more, are dropped.
func TestStrayResults(t *testing.T) {
	s, settled, log := inHand(4, 0, 1, 2)
	s.results([]*wire.Result{
		result(1), result(1, func(r *wire.Result) { r.Outcome = wire.Result_OUTCOME_FAILED }),
		result(7), result(1, func(r *wire.Result) { r.Attempt = 2 }),
		result(2, func(r *wire.Result) { r.Attempt = 0 }), // of an attempt that was lost before
	})
	if len(settled) != 1 || settled[1].Outcome != ledger.OutcomeDone {
		t.Errorf("settled %+v", settled)
	}
	if n := strings.Count(log.String(), "does not have"); n != 4 {
		t.Errorf("%d were noticed, want 4:\n%s", n, log)
	}
}

func TestDelay(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		0: 0, 1500: 1500 * time.Millisecond, -1: 0, 1 << 62: ledger.MaxDelay, -1 << 62: 0,
	} {
		if got := delay(ms); got != want {
			t.Errorf("delay(%d) = %s, want %s", ms, got, want)
		}
	}
}

// A plugin that sends such results without end fills no log.
func TestStrayFlood(t *testing.T) {
	s, settled, log := inHand(4, 0, 1)
	flood := make([]*wire.Result, 100_000)
	for i := range flood {
		flood[i] = result(int64(1000 + i))
	}
	s.results(flood)
	s.results([]*wire.Result{result(1)})
	if settled[1].Outcome != ledger.OutcomeDone {
		t.Errorf("settled %+v", settled)
	}
	if n := strings.Count(log.String(), "\n"); n < 1 || n > 40 || s.strays != 100_000 {
		t.Errorf("%d lines about %d results", n, s.strays)
	}
}

// What a plugin says that it takes is believed up to a bound: all of it would be leased and held here.
func TestMostInHand(t *testing.T) {
	for _, tt := range []struct{ inHand, credits, places, want int }{
		{4, 8, 4, 12}, {0, 0, 4, 4}, {2048, 2048, 8, 4096}, {9_000, 3 * math.MaxInt32, 8, mostInHand},
		{0, 0, 50_000, 50_000}, {0, math.MaxInt32, 1 << 62, mostPlaces},
	} {
		if got := mostOf(tt.inHand, tt.credits, tt.places); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
