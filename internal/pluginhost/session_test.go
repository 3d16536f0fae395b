package pluginhost

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/bounds"
	"github.com/ledgerd/ledgerd/ledger/worker"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// noProcess has a stream that takes as many items as it has credits, and reports nothing by itself.
type noProcess struct {
	wire.PluginClient
	wire.Plugin_ProcessClient
	credits chan int32
	events  pluginproc.Events
}

func (p *noProcess) Open(e pluginproc.Events) (*pluginproc.Stream, error) {
	p.events = e
	return pluginproc.OpenStream(p, e)
}

func (p *noProcess) Process(context.Context, ...grpc.CallOption) (wire.Plugin_ProcessClient, error) {
	return p, nil
}
func (p *noProcess) Send(*wire.HostMessage) error { return nil }

func (p *noProcess) CloseSend() error { return nil }

func (p *noProcess) Recv() (*wire.PluginMessage, error) {
	if n, more := <-p.credits; more {
		return &wire.PluginMessage{Credits: n}, nil
	}
	return nil, io.EOF
}

// withoutProcess makes a session whose plugin is a noProcess with these credits. A test sends the plugin's messages
// through its events.
func withoutProcess(t testing.TB, h *Host, places int, credits int32) (*session, *noProcess) {
	t.Helper()
	s := &session{host: h, setup: &setup{about: &Description{}, emits: []string{"child"}, worker: "p@1.0.0+abcdef",
		places: places}}
	p := &noProcess{credits: make(chan int32, 1)}
	must.OK(t, s.open(p))
	t.Cleanup(func() { close(p.credits) })
	if credits > 0 {
		p.credits <- credits
		must.Do(t)(s.work.Stream.WaitCredits(t.Context()))
	}
	return s, p
}

// inHand makes a session without a process that has these items in hand; their context is ctx.
func inHand(t *testing.T, ctx context.Context, ids ...int64) (*session, *noProcess, map[int64]ledger.Result,
	*bytes.Buffer) {
	log, settled := &bytes.Buffer{}, map[int64]ledger.Result{}
	s, p := withoutProcess(t, &Host{log: slog.New(slog.NewTextHandler(log, nil)), times: defaultTimes}, 4, 100)
	for _, id := range ids {
		lease := &ledger.Lease{Item: ledger.Item{ID: id, Attempt: 1}}
		s.work.Add(&task{Of: given{lease, func(res ledger.Result) { settled[id] = res }}, Item: item(t.Context(), lease),
			Context: ctx})
	}
	return s, p, settled, log
}

func result(id int64, edit ...func(*wire.Result)) *wire.Result {
	r := &wire.Result{Id: id, Attempt: 1, Outcome: wire.Result_OUTCOME_DONE}
	for _, e := range edit {
		e(r)
	}
	return r
}

// A message of the plugin that is against the protocol harms only the item that it is about.
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
		{"declared kind", result(1, child("child")), t.Context(), end{ledger.OutcomeDone, false, ""}},
		{"undeclared kind", result(1, child("exec")), t.Context(), end{ledger.OutcomeFailed, true, "emit_refused"}},
		{"unknown outcome", result(1, func(r *wire.Result) { r.Outcome = 99 }), t.Context(), end{ledger.OutcomeFailed, true,
			"bad_result"}},
		{"no outcome", result(1, func(r *wire.Result) { r.Outcome = 0 }), t.Context(), end{ledger.OutcomeFailed, true,
			"bad_result"}},
		{"child with a NUL", result(1, func(r *wire.Result) { r.Emit = []*wire.Child{{Kind: "child", Key: "\x00"}} }),
			t.Context(), end{ledger.OutcomeFailed, true, "emit_refused"}},
		{"output is no JSON", result(1, func(r *wire.Result) { r.Output = []byte("{\"a\":") }), t.Context(),
			end{ledger.OutcomeFailed, true, "bad_output"}},
		{"output is no UTF-8", result(1, func(r *wire.Result) { r.Output = []byte("\"\xff\"") }), t.Context(),
			end{ledger.OutcomeFailed, true, "bad_output"}},
		{"cancelled as asked", result(1, func(r *wire.Result) { r.Outcome = wire.Result_OUTCOME_CANCELLED }), cancelled,
			end{ledger.OutcomeCancelled, false, ""}},
		{"cancelled, told to stop", result(1, func(r *wire.Result) { r.Outcome = wire.Result_OUTCOME_CANCELLED }), stopped,
			end{ledger.OutcomeReleased, false, ""}},
		{"cancelled unasked", result(1, func(r *wire.Result) { r.Outcome = wire.Result_OUTCOME_CANCELLED }), t.Context(),
			end{ledger.OutcomeReleased, false, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, p, settled, _ := inHand(t, tt.ctx, 1, 2)
			p.events.Results([]*wire.Result{tt.res, result(2)})
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
	_, p, settled, log := inHand(t, t.Context(), 1, 2)
	p.events.Results([]*wire.Result{
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

// The unit of a report is shown on terminals: it has no secrets, and a limit.
func TestUnitOfReport(t *testing.T) {
	var got Progress
	h := &Host{log: slog.New(slog.DiscardHandler), times: defaultTimes,
		config: &Config{Progress: func(p Progress) { got = p }}}
	s, p := withoutProcess(t, h, 4, 100)
	s.setup.hide = redact.New(password)
	lease := &ledger.Lease{Item: ledger.Item{ID: 1, Attempt: 1, Key: "k"}}
	s.work.Add(&task{Of: given{lease, func(ledger.Result) {}}, Item: item(t.Context(), lease), Context: t.Context()})
	p.events.Progress([]*wire.Progress{{Id: 1, Attempt: 1, Done: 3, Unit: password + strings.Repeat("ä", 64)}})
	if want := (Progress{1, "k", 3, 0, "***" + strings.Repeat("ä", 30)}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestDelay(t *testing.T) {
	for ms, want := range map[int64]time.Duration{
		0: 0, 1500: 1500 * time.Millisecond, -1: 0, 1 << 62: bounds.MaxDelay, -1 << 62: 0,
	} {
		if got := delay(ms); got != want {
			t.Errorf("delay(%d) = %s, want %s", ms, got, want)
		}
	}
}

// A plugin that never grants credits is warned of, once.
func TestNoCredits(t *testing.T) {
	log := &bytes.Buffer{}
	s, p := withoutProcess(t, &Host{log: slog.New(slog.NewTextHandler(log, nil)), times: defaultTimes}, 4, 0)
	began := time.Now()
	tasks := make([]*task, 3)
	for i := range tasks {
		lease := &ledger.Lease{Item: ledger.Item{ID: int64(i), Attempt: 1}}
		tasks[i] = &task{Of: given{lease, func(ledger.Result) {}}, Item: item(t.Context(), lease), Context: t.Context()}
	}
	after := func(d time.Duration) int {
		s.look(began.Add(d))
		return strings.Count(log.String(), "grants no credits")
	}
	got := []int{after(time.Hour)} // nothing waits
	s.work.Add(tasks...)
	got = append(got, after(time.Hour+9*time.Second), after(time.Hour+11*time.Second), after(2*time.Hour))
	p.credits <- 1
	must.Do(t)(s.work.Wait(t.Context(), (*task).Sent, tasks[0]))
	got = append(got, after(3*time.Hour)) // two wait for the end of one
	if diff := cmp.Diff([]int{0, 0, 1, 1, 1}, got); diff != "" || !strings.Contains(log.String(), "items=3") {
		t.Errorf("%s%s", diff, log)
	}
}

// A plugin that sends such results without end fills no log.
func TestStrayFlood(t *testing.T) {
	s, p, settled, log := inHand(t, t.Context(), 1)
	flood := make([]*wire.Result, 100_000)
	for i := range flood {
		flood[i] = result(int64(1000 + i))
	}
	p.events.Results(flood)
	p.events.Results([]*wire.Result{result(1)})
	if settled[1].Outcome != ledger.OutcomeDone {
		t.Errorf("settled %+v", settled)
	}
	if n := strings.Count(log.String(), "\n"); n < 1 || n > 40 || s.strays != 100_000 {
		t.Errorf("%d lines about %d results", n, s.strays)
	}
}

// The number of items that a plugin asks for is bounded: all of them would be leased and held here.
func TestMostInHand(t *testing.T) {
	for _, tt := range []struct{ inHand, credits, places, want int }{
		{4, 8, 4, 12}, {0, 0, 4, 4}, {2048, 2048, 8, 4096}, {9_000, 3 * math.MaxInt32, 8, maxInHand},
		{0, 0, 50_000, 50_000}, {0, math.MaxInt32, 1 << 62, maxPlaces},
	} {
		if got := maxOf(tt.inHand, tt.credits, tt.places); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}
