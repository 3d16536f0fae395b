//go:build unix

package pluginproc_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

type (
	session = pluginproc.Session[string]
	task    = pluginproc.Task[string]
)

// puppet is a plugin whose messages the test sends. The session has handled a message when it takes the next one.
type puppet struct {
	wire.PluginClient
	wire.Plugin_ProcessClient
	fromPlugin chan *wire.PluginMessage
	toPlugin   chan *wire.HostMessage
}

func (p *puppet) Open(e pluginproc.Events) (*pluginproc.Stream, error) {
	return pluginproc.OpenStream(p, e)
}

func (p *puppet) Process(context.Context, ...grpc.CallOption) (wire.Plugin_ProcessClient, error) {
	return p, nil
}

func (p *puppet) Send(m *wire.HostMessage) error {
	p.toPlugin <- &wire.HostMessage{Items: slices.Clone(m.Items), Cancels: m.Cancels} // the slice is used again
	return nil
}

func (p *puppet) CloseSend() error { return nil }

func (p *puppet) Recv() (*wire.PluginMessage, error) {
	if m, more := <-p.fromPlugin; more {
		return m, nil
	}
	return nil, io.EOF
}

// do sends a message from the plugin, and returns when the session has handled it.
func (p *puppet) do(m *wire.PluginMessage) {
	p.fromPlugin <- m
	p.fromPlugin <- &wire.PluginMessage{}
}

// play opens a session with a puppet, for tasks with a timeout of a minute.
func play(t *testing.T, c pluginproc.SessionConfig[string], ids ...int64) (*session, *puppet, []*task) {
	t.Helper()
	p := &puppet{fromPlugin: make(chan *wire.PluginMessage), toPlugin: make(chan *wire.HostMessage, 100)}
	if c.Stray == nil {
		c.Stray = func(r *wire.Result) { t.Errorf("stray result of item %d", r.Id) }
	}
	s, err := pluginproc.OpenSession(p, c)
	must.OK(t, err)
	t.Cleanup(func() { close(p.fromPlugin); <-s.Stream.Ended() })
	var tasks []*task
	for _, id := range ids {
		tasks = append(tasks, &task{Item: &wire.Item{Id: id, Attempt: 1}, Timeout: time.Minute})
	}
	return s, p, tasks
}

func done(id int64) *wire.PluginMessage {
	return &wire.PluginMessage{Results: []*wire.Result{{Id: id, Attempt: 1}}}
}

// The timeout of an item runs from when the plugin has room for it, not from when it was sent.
func TestSessionDeadlines(t *testing.T) {
	s, p, tasks := play(t, pluginproc.SessionConfig[string]{Places: 2}, 1, 2, 3, 4, 5)
	p.do(&wire.PluginMessage{Credits: 5})
	s.Add(tasks...)
	steps := []struct {
		ended int64
		want  []int64
	}{{0, []int64{1, 2}}, {2, []int64{1, 3}}, {4, []int64{1, 3}}, {1, []int64{3, 5}}, {3, []int64{5}}, {5, nil}}
	for _, step := range steps {
		if step.ended > 0 {
			p.do(done(step.ended))
		}
		var running []int64
		for _, task := range tasks {
			if task.Result == nil && task.TimedOut(time.Now().Add(time.Hour)) { // has a deadline: it has begun
				running = append(running, task.Item.Id)
			}
		}
		if diff := cmp.Diff(step.want, running); diff != "" {
			t.Errorf("after the end of %d (-want +got):\n%s", step.ended, diff)
		}
	}
	if s.Len() != 0 {
		t.Errorf("%d tasks at the end", s.Len())
	}
}

// Items go out in order as credits come; what the plugin has not got yet can be taken back.
func TestSessionCredits(t *testing.T) {
	s, p, tasks := play(t, pluginproc.SessionConfig[string]{Places: 2}, 1, 2, 3, 4)
	s.Add(tasks...)
	cancelled, cancel := context.WithCancelCause(t.Context())
	cancel(io.ErrClosedPipe)
	if missing, err := s.Wait(cancelled, (*task).Sent, tasks...); missing != 4 || !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("without credits, %d are missing: %v", missing, err)
	}
	p.do(&wire.PluginMessage{Credits: 1})
	p.do(&wire.PluginMessage{Credits: 2})
	if missing, err := s.Wait(t.Context(), (*task).Sent, tasks[:3]...); missing != 0 || err != nil {
		t.Errorf("%d are missing: %v", missing, err)
	}
	var got []int64
	for len(got) < 3 {
		for _, it := range (<-p.toPlugin).Items {
			got = append(got, it.Id)
		}
	}
	if !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("sent %v", got)
	}
	if unsent := s.Unsent(); len(unsent) != 1 || unsent[0] != tasks[3] || s.Len() != 3 {
		t.Errorf("unsent %v, %d left", unsent, s.Len())
	}
	p.do(done(2))
	if missing, err := s.Wait(cancelled, (*task).Over, tasks...); missing != 2 || err == nil { // 4 was taken back: over
		t.Errorf("%d have no result: %v", missing, err)
	}
	if left := s.Left(); len(left) != 2 || s.Len() != 0 {
		t.Errorf("left %v", left)
	}
}

// Each task has one result; a second one, and one of another attempt, is a stray.
func TestSessionStrays(t *testing.T) {
	var settled, reported, strays []int64
	s, p, tasks := play(t, pluginproc.SessionConfig[string]{
		Settle: func(_ *task, r *wire.Result) { settled = append(settled, r.Id) },
		Report: func(_ *task, p *wire.Progress) { reported = append(reported, p.Done) },
		Stray:  func(r *wire.Result) { strays = append(strays, r.Id) },
	}, 1, 2)
	p.do(&wire.PluginMessage{Credits: 2})
	s.Add(tasks...)
	p.do(&wire.PluginMessage{Progress: []*wire.Progress{{Id: 1, Attempt: 1, Done: 5}, {Id: 1, Attempt: 2, Done: 6}}})
	p.do(&wire.PluginMessage{Results: []*wire.Result{{Id: 1, Attempt: 1}, {Id: 1, Attempt: 1}, {Id: 2, Attempt: 2}}})
	if diff := cmp.Diff([][]int64{{1}, {5}, {1, 2}}, [][]int64{settled, reported, strays}); diff != "" {
		t.Errorf("settled, reported, strays (-want +got):\n%s", diff)
	}
}

// The plugin is told once which items are to end, and why.
func TestSessionEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p, tasks := play(t, pluginproc.SessionConfig[string]{Places: 1,
			Reason: func(error) wire.Cancel_Reason { return wire.Cancel_REASON_LEASE_LOST }}, 1, 2, 3)
		var cancel context.CancelFunc
		tasks[1].Context, cancel = context.WithCancel(t.Context())
		cancel()
		tasks[2].Context = tasks[1].Context
		p.do(&wire.PluginMessage{Credits: 2})
		s.Add(tasks...)
		time.Sleep(2 * time.Minute)
		for i, late := range []bool{false, false, true} {
			unsent, overran := s.End(time.Second)
			if (len(unsent) == 1 && unsent[0] == tasks[2]) != (i == 0) || overran != late {
				t.Errorf("call %d: unsent %v, overran %v", i, unsent, overran)
			}
			time.Sleep(time.Second)
		}
		s.Stream.Close()
		reasons := map[int64]wire.Cancel_Reason{}
		for len(reasons) < 2 {
			for _, c := range (<-p.toPlugin).Cancels {
				reasons[c.Id] = c.Reason
			}
		}
		want := map[int64]wire.Cancel_Reason{1: wire.Cancel_REASON_TIMEOUT, 2: wire.Cancel_REASON_LEASE_LOST}
		if diff := cmp.Diff(want, reasons); diff != "" {
			t.Errorf("cancels (-want +got):\n%s", diff)
		}
	})
}
