package acttest

import (
	"context"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// Conformance runs the checks of "ledgerd plugin check", most of them over TLS: all of them with a plugin that works
// its items one by one, and those of GroupProcess with a plugin that works batches.
func Conformance(t *testing.T, oneByOne, batches conformance.Target) {
	for name, target := range map[string]conformance.Target{"one by one": oneByOne, "batches": batches} {
		target.Slack = 60 // a busy machine takes ten seconds to start an interpreter
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			target, end := target.Share() // so one check comes after the other
			defer end()
			for _, check := range conformance.Checks(target) {
				if name == "batches" && check.Group != conformance.GroupProcess {
					continue
				}
				t.Run(check.Name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					if err := check.Run(ctx, target); err != nil {
						t.Errorf("a plugin %s: %v", check.About, err)
					}
				})
			}
		})
	}
}

// Doubtful starts a plugin with on_lost = doubt and asserts that each order ends with its ending: an exception of
// unknown origin is no report. It returns the host of the plugin, with a concurrency of 3.
func Doubtful(t *testing.T, spec pluginproc.Spec, endings map[string]wire.Result_Ending) *Host {
	h := Start(t, spec, &wire.ConfigureRequest{Concurrency: 3})
	id := int64(0)
	for do, ending := range endings {
		id++
		h.Send(id, do, "you")
		if r := h.Result(id); r.Outcome != wire.Result_OUTCOME_FAILED || r.Ending != ending {
			t.Errorf("%s: %v", do, r)
		}
	}
	if n := h.Session.Stream.Credits(); n > 3 {
		t.Errorf("%d credits, with a concurrency of 3 and nothing that may lie in a queue", n)
	}
	return h
}

// Cancel asserts that the result of a cancelled item fits the reason of the cancel, whether it has begun or not.
func Cancel(t *testing.T, spec pluginproc.Spec) {
	h := Start(t, spec, &wire.ConfigureRequest{})
	began := signs(t)
	reasons := map[wire.Cancel_Reason]*wire.Result{
		wire.Cancel_REASON_CANCELLED:  {Outcome: wire.Result_OUTCOME_CANCELLED},
		wire.Cancel_REASON_LEASE_LOST: {Outcome: wire.Result_OUTCOME_RELEASED},
		wire.Cancel_REASON_STOPPING:   {Outcome: wire.Result_OUTCOME_RELEASED},
		wire.Cancel_REASON_TIMEOUT: {Outcome: wire.Result_OUTCOME_FAILED, Code: "timeout",
			Ending: wire.Result_ENDING_TIMED_OUT},
	}
	for id := range int64(8) { // four begin, four lie in the queue
		h.Send(id, "wait", began)
	}
	awaitSigns(t, began, 4)
	for _, first := range []int64{4, 0} {
		for reason := range reasons {
			h.Session.Stream.Cancel(first+int64(reason)-1, 1, reason)
		}
	}
	for reason, want := range reasons {
		for _, id := range []int64{int64(reason) - 1, int64(reason) + 3} {
			if r := h.Result(id); r.Outcome != want.Outcome || r.Code != want.Code || r.Ending != want.Ending {
				t.Errorf("item %d, %v: %v", id, reason, r)
			}
		}
	}
	h.SendItems(&wire.Item{Id: 9, TimeoutMs: 1, Payload: []byte(`{"do":"wait","name":"` + began + `"}`)})
	if r := h.Result(9); r.Code != "timeout" || r.Ending != wire.Result_ENDING_TIMED_OUT {
		t.Error("its own timeout:", r)
	}
	h.SendItems(&wire.Item{Id: 10, TimeoutMs: 1, Payload: []byte(`{"do":"late"}`)})
	if r := h.Result(10); r.Code != "enoent" || r.Ending != wire.Result_ENDING_TIMED_OUT {
		t.Error("an error with a code of its own, after the timeout:", r)
	}
}

// Drain asserts that begun items are finished or named as unfinished, that others are handed back, and that the process
// ends.
func Drain(t *testing.T, spec pluginproc.Spec) {
	h := Start(t, spec, &wire.ConfigureRequest{})
	began := signs(t)
	h.Send(1, "wait", began)
	h.Send(2, "deaf", began)
	for id := range int64(6) {
		h.Send(id+3, "wait", began)
	}
	awaitSigns(t, began, 4)
	left := h.Stop(t.Context(), 100*time.Millisecond)
	if diff := cmp.Diff([]int64{2}, left); diff != "" {
		t.Error("-want +unfinished\n" + diff)
	}
	for id := int64(1); id <= 8; id++ {
		if r := h.tasks[id].Result; id != 2 && r.GetOutcome() != wire.Result_OUTCOME_RELEASED || id == 2 && r != nil {
			t.Errorf("item %d: %v", id, r)
		}
	}
}

// Terminate asserts that a process that gets SIGTERM, as a service manager sends it to all processes, finishes begun
// items and hands back the others, and that a second SIGTERM stops it.
func Terminate(t *testing.T, spec pluginproc.Spec) {
	h := Start(t, spec, &wire.ConfigureRequest{})
	began := signs(t)
	h.Send(1, "wait", began)
	awaitSigns(t, began, 1)
	process, err := os.FindProcess(h.PID())
	must.OK(t, err)
	must.OK(t, process.Signal(syscall.SIGTERM))
	heard := false
	for id, until := int64(2), time.Now().Add(patience); !heard && time.Now().Before(until); id++ {
		h.Send(id, "nothing", "")
		heard = h.Result(id).Outcome == wire.Result_OUTCOME_RELEASED
	}
	if !heard {
		t.Fatal("it goes on with new items after SIGTERM")
	}
	if h.Session.Len() != 1 {
		t.Error("what was begun has ended:", h.tasks[1].Result)
	}
	must.OK(t, process.Signal(syscall.SIGTERM))
	if r := h.Result(1); r.Outcome != wire.Result_OUTCOME_RELEASED {
		t.Error(r)
	}
	h.ended("SIGTERM")
	if !h.State().Success() {
		t.Error(h.State())
	}
}

// HangUp asserts that a plugin ends when ledgerd does, although its item ignores every cancel.
func HangUp(t *testing.T, spec pluginproc.Spec) {
	h := Start(t, spec, &wire.ConfigureRequest{})
	began := signs(t)
	h.Send(1, "deaf", began)
	awaitSigns(t, began, 1)
	h.Proc.HangUp()
	h.ended("the end of stdin")
}
