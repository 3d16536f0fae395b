//go:build unix

package pluginproc_test

import (
	"bufio"
	"errors"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func TestRound(t *testing.T) {
	h := start(t, self(t, "actor"), `{"greeting":"good day"}`)
	d, err := h.Describe(t.Context(), &wire.DescribeRequest{})
	if err != nil || d.Name != "actor" || d.Concurrency != 2 {
		t.Fatal(d, err)
	}
	h.send(17, "greet")
	want := &wire.Result{
		Id: 17, Attempt: 1, LockId: []byte("lock"), Outcome: wire.Result_OUTCOME_DONE, Output: []byte(`"good day"`),
	}
	if diff := cmp.Diff(want, h.result(17), protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
	if left := h.Stop(t.Context(), time.Second); len(left) > 0 {
		t.Error("unfinished:", left)
	}
	must.OK(t, h.Err())
	h.untilLine("closed")
}

func TestConfigure(t *testing.T) {
	p, err := pluginproc.Start(t.Context(), self(t, "actor"))
	must.OK(t, err)
	defer p.Kill()
	tests := []struct {
		name   string
		req    *wire.ConfigureRequest
		field  string
		answer string // "" is accepted
	}{
		{"empty", &wire.ConfigureRequest{ValidateOnly: true}, "", ""},
		{"unknown", &wire.ConfigureRequest{Config: []byte(`{"greting":"x"}`)}, "greting",
			"there is no such field; did you mean greeting?"},
		{"rule", &wire.ConfigureRequest{Config: []byte(`{"greeting":""}`)}, "greeting", "must not be empty"},
		{"type", &wire.ConfigureRequest{Config: []byte(`{"greeting":1}`)}, "greeting", "must be text, not the number 1"},
		{"duration", &wire.ConfigureRequest{Config: []byte(`{"patience":"soon"}`)}, "patience",
			`must be a duration such as 30s, 5m or 7d, not "soon"`},
		{"own check", &wire.ConfigureRequest{Config: []byte(`{"greeting":"no"}`)}, "", "greeting: not that one"},
		{"no such secret", &wire.ConfigureRequest{Secrets: map[string]string{"greeting": "x"}}, "greeting",
			"is not a secret of this plugin"},
		{"not JSON", &wire.ConfigureRequest{Config: []byte(`{`)}, "", "not JSON"},
		{"accepted", &wire.ConfigureRequest{Config: []byte(`{"patience":"2d"}`),
			Secrets: map[string]string{"token": "t0k3n"}}, "", ""},
	}
	for _, test := range tests {
		problems, err := p.Configure(t.Context(), test.req)
		switch {
		case err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.answer == "" && len(problems) > 0:
			t.Errorf("%s: %v", test.name, problems)
		case test.answer != "" && (len(problems) != 1 || problems[0].Field != test.field ||
			!strings.Contains(problems[0].Message, test.answer)):
			t.Errorf("%s: got %v, want %s: %s", test.name, problems, test.field, test.answer)
		}
	}
	if _, err := p.Configure(t.Context(), &wire.ConfigureRequest{}); err == nil {
		t.Error("a second config was accepted")
	}
	if problem, err := p.CheckHealth(t.Context()); problem != "" || err != nil {
		t.Error(problem, err)
	}
}

func TestCrash(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "greet", "wait", "greet")
	h.result(1)
	h.result(3)
	h.untilLine("waiting 2") // else this line may come between the last words
	h.send(4, "crash")
	c := h.crash()
	if c.Code != 2 || c.Signal != 0 || !strings.Contains(c.Stderr, "last words\npanic: boom") {
		t.Errorf("%+v", c)
	}
	if h.tasks[2].Result != nil || h.tasks[4].Result != nil {
		t.Error("results of the lost:", h.tasks[2].Result, h.tasks[4].Result)
	}
	if err := h.stream.Send([]*wire.Item{{Id: 9}}); !errors.Is(err, pluginproc.ErrEnded) {
		t.Error(err)
	}
	if _, err := h.stream.WaitCredits(t.Context()); !errors.Is(err, pluginproc.ErrEnded) {
		t.Error(err)
	}
}

// A service manager may send SIGTERM to all processes at once: begun items are finished.
func TestTerminated(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "finish-late")
	h.untilLine("waiting 1")
	must.OK(t, syscall.Kill(h.PID(), syscall.SIGTERM))
	if r := h.result(1); r.Outcome != wire.Result_OUTCOME_DONE {
		t.Error(r)
	}
	if c := h.crash(); c.Code != 0 || c.Err != nil || !strings.Contains(c.Error(), "exited with 0") {
		t.Errorf("%+v", c)
	}
}

// What was begun is stopped at a second SIGTERM, and reported.
func TestTerminatedTwice(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "wait")
	h.untilLine("waiting 1")
	must.OK(t, syscall.Kill(h.PID(), syscall.SIGTERM))
	for id := int64(2); ; id++ {
		if h.send(id, "greet"); h.result(id).Outcome == wire.Result_OUTCOME_RELEASED {
			break // it has heard the first
		}
	}
	must.OK(t, syscall.Kill(h.PID(), syscall.SIGTERM))
	if r := h.result(1); r.Outcome != wire.Result_OUTCOME_RELEASED {
		t.Error(r)
	}
	if c := h.crash(); c.Code != 0 || c.Err != nil {
		t.Errorf("%+v", c)
	}
}

// A plugin hands back what it gets after SIGTERM, as long as it lives. That is half a second, and a busy machine may
// take it away: several may try.
func TestTerminatedIdle(t *testing.T) {
	const want = 3 // of its credits
	var released int
	for range 10 {
		h := start(t, self(t, "actor"), `{}`)
		must.OK(t, syscall.Kill(h.PID(), syscall.SIGTERM))
		released = 0
		for id := int64(1); released < want; id++ {
			sent := &task{Item: &wire.Item{Id: id, Attempt: 1, Payload: []byte(`{"do":"greet"}`)}}
			h.session.Add(sent)
			if _, err := h.session.Wait(t.Context(), (*task).Over, sent); err != nil {
				break // the process has ended
			}
			if sent.Result.Outcome == wire.Result_OUTCOME_RELEASED {
				released++
			}
		}
		if h.Kill(); released == want {
			return
		}
	}
	t.Errorf("%d items were handed back, then no more", released)
}

// If a plugin dies by itself while it is being stopped, this is a crash, too.
func TestDiesWhileStopping(t *testing.T) {
	h := start(t, self(t, "actor"), `{"die_late":true}`)
	h.Stop(t.Context(), time.Second)
	if c := h.crash(); c.Code != 5 {
		t.Error(c)
	}
}

func TestHang(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "hang")
	h.untilLine("waiting 1")
	began := time.Now()
	left := h.Stop(t.Context(), 100*time.Millisecond)
	if took := time.Since(began); took > time.Minute {
		t.Error("Stop took", took)
	}
	if diff := cmp.Diff([]int64{1}, left); diff != "" {
		t.Error(diff)
	}
	if alive(h.PID()) {
		t.Error("it lives on")
	}
}

func TestFrozen(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "wait")
	h.untilLine("waiting 1")
	must.OK(t, syscall.Kill(h.PID(), syscall.SIGSTOP))
	began := time.Now()
	h.Stop(t.Context(), 100*time.Millisecond)
	if took := time.Since(began); took > time.Minute {
		t.Error("Stop took", took)
	}
	if alive(h.PID()) {
		t.Error("it lives on")
	}
	must.OK(t, h.Err())
}

func TestFloodStderr(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "flood-stderr")
	h.result(1)
	h.Stop(t.Context(), 0)
	if len(h.lines) > 50_000 {
		t.Error("lines are not rationed:", len(h.lines))
	}
	missed := false
	for _, l := range h.lines {
		missed = missed || strings.Contains(l, "lines were not taken")
		if len(l) > pluginproc.MaxLine+100 {
			t.Error("a line has", len(l))
		}
	}
	if !missed && len(h.lines) < 100_000 {
		t.Error("no line reports that lines are missing")
	}
}

func TestFloodStdout(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "flood-stdout", "print")
	h.result(1)
	h.untilLine("printed")
}

// A plugin in another language may not keep the limits.
func TestTooLargeMessage(t *testing.T) {
	h := start(t, self(t, "rogue"), "")
	h.send(1, "anything")
	if c := h.crash(); !errors.Is(c, pluginproc.ErrTooLarge) || !strings.Contains(c.Error(), "result too large") {
		t.Error(c)
	}
}

func TestStreamEndedByPlugin(t *testing.T) {
	h := start(t, self(t, "rogue"), "")
	must.Do(t)(h.stream.WaitCredits(t.Context()))
	must.OK(t, h.stream.Send([]*wire.Item{{Id: 1, Payload: []byte("leave")}}))
	if c := h.crash(); c.Err == nil || !strings.Contains(c.Error(), "stream") {
		t.Error(c)
	}
}

func TestGrandchild(t *testing.T) {
	for _, how := range []string{"stays", "escape"} {
		t.Run(how, func(t *testing.T) {
			h := start(t, self(t, "actor"), `{}`)
			h.send(1, "grandchild "+how)
			pid, err := strconv.Atoi(strings.Trim(string(h.result(1).Output), `"`))
			must.OK(t, err)
			h.send(2, "crash")
			h.crash() // although the grandchild holds the pipes
			if how == "escape" {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
					t.Error("a process in a session of its own is not ours to end, but is gone:", err)
				}
			}
			gone(t, pid)
		})
	}
}

func TestCancel(t *testing.T) {
	tests := []struct {
		reason wire.Cancel_Reason
		want   wire.Result_Outcome
		ending wire.Result_Ending
	}{
		{wire.Cancel_REASON_CANCELLED, wire.Result_OUTCOME_CANCELLED, 0},
		{wire.Cancel_REASON_LEASE_LOST, wire.Result_OUTCOME_RELEASED, 0},
		{wire.Cancel_REASON_STOPPING, wire.Result_OUTCOME_RELEASED, 0},
		{wire.Cancel_REASON_TIMEOUT, wire.Result_OUTCOME_FAILED, wire.Result_ENDING_TIMED_OUT},
	}
	h := start(t, self(t, "actor"), `{}`)
	for i, test := range tests {
		id := int64(i + 1)
		h.send(id, "wait")
		h.untilLine("waiting " + strconv.Itoa(i+1))
		h.stream.Cancel(id, 7, wire.Cancel_REASON_CANCELLED) // of another attempt: nothing
		h.stream.Cancel(id, 1, test.reason)
		if r := h.result(id); r.Outcome != test.want || r.Ending != test.ending {
			t.Errorf("%v: %v", test.reason, r)
		}
	}
}

// A cancel of an item that the plugin has not begun, in the same message as the item.
func TestCancelNotBegun(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "wait", "wait")
	h.untilLine("waiting 1")
	h.untilLine("waiting 2")
	h.send(3, "wait")
	h.stream.Cancel(3, 1, wire.Cancel_REASON_CANCELLED)
	if r := h.result(3); r.Outcome != wire.Result_OUTCOME_CANCELLED {
		t.Error(r)
	}
}

func TestCredits(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`) // concurrency 2
	h.send(1, "wait", "wait", "wait", "wait")
	h.untilLine("waiting 1")
	h.untilLine("waiting 2")
	if n := h.stream.Credits(); n != 0 {
		t.Errorf("%d credits beyond twice the concurrency", n)
	}
	if err := h.stream.Send([]*wire.Item{{Id: 9}}); !errors.Is(err, pluginproc.ErrCredits) {
		t.Error(err)
	}
	h.stream.Cancel(1, 1, wire.Cancel_REASON_CANCELLED)
	h.result(1)
	if _, err := h.stream.WaitCredits(t.Context()); err != nil {
		t.Error(err)
	}
}

// Items that were not begun are handed back, begun ones get the grace.
func TestDrain(t *testing.T) {
	h := start(t, self(t, "actor"), `{}`)
	h.send(1, "finish-late", "wait", "greet", "greet")
	h.untilLine("waiting 1")
	h.untilLine("waiting 2")
	if left := h.Stop(t.Context(), 2*time.Second); len(left) > 0 {
		t.Error("unfinished:", left)
	}
	want := map[int64]wire.Result_Outcome{
		1: wire.Result_OUTCOME_DONE, 2: wire.Result_OUTCOME_RELEASED,
		3: wire.Result_OUTCOME_RELEASED, 4: wire.Result_OUTCOME_RELEASED,
	}
	got := map[int64]wire.Result_Outcome{}
	for id, task := range h.tasks {
		got[id] = task.Result.GetOutcome()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	must.OK(t, h.Err())
}

// The host dies by SIGKILL: its plugins are gone within 3 s.
func TestHostKilled(t *testing.T) { hostKilled(t, "noop") }

// A plugin that the kernel does not kill notices the end of stdin.
func TestHostKilledStdin(t *testing.T) { hostKilled(t, "outlives-parent") }

func hostKilled(t *testing.T, act string) {
	spec := self(t, "host")
	cmd := exec.Command(spec.Path, "host", act, spec.SocketDir)
	out, err := cmd.StdoutPipe()
	must.OK(t, err)
	must.OK(t, cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	must.OK(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	must.OK(t, err)
	if !alive(pid) {
		t.Fatal("the plugin does not live")
	}
	must.OK(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	if took := gone(t, pid); took > 5*3*time.Second {
		t.Error("the plugin was gone after", took)
	}
	removeAll(t, spec.SocketDir)
}
