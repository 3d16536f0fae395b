//go:build unix

package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/sdk/redact"
	"github.com/ledgerd/ledgerd/sdk/settings"
)

func TestManyItems(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	ids := r.addMany(200, "answer")
	rep := r.drain()
	if rep.Outcomes[ledger.OutcomeDone] != 200 {
		t.Fatalf("report %+v", rep)
	}
	for _, id := range ids {
		as := r.attempts(id)
		if len(as) != 1 || string(as[0].Output) != `"yes"` || as[0].Worker != r.host.Definition() {
			t.Fatalf("item %d: %+v", id, as)
		}
	}
}

func TestOutcomes(t *testing.T) {
	type end struct {
		Outcome ledger.Outcome
		State   ledger.State
		Code    string
		Output  string
	}
	tests := map[string]end{
		"answer": {ledger.OutcomeDone, ledger.StateDone, "", `"yes"`},
		"skip":   {ledger.OutcomeSkipped, ledger.StateDone, "", ""},
		"fail":   {ledger.OutcomeFailed, ledger.StateDead, "no_way", `"half"`},
		"panic":  {ledger.OutcomeFailed, ledger.StateDead, "panic", ""},
		"snooze": {ledger.OutcomeSnoozed, ledger.StateWaiting, "", ""},
		"busy":   {ledger.OutcomeFailed, ledger.StateDead, "http_503", ""}, // every second time is a failure
		"retry":  {ledger.OutcomeFailed, ledger.StateWaiting, "", ""},
		"doubt":  {ledger.OutcomeUnknown, ledger.StateDoubt, "", ""},
		"emit":   {ledger.OutcomeDone, ledger.StateDone, "", `"ok"`},
		"log":    {ledger.OutcomeDone, ledger.StateDone, "", `"yes"`},
	}
	r := newRig(t, defaultTimes, ledger.Kind{MaxFailures: 2})
	ids := map[string]int64{}
	for do := range tests {
		ids[do] = r.add(do)[0]
	}
	r.drain()
	for do, want := range tests {
		as := r.attempts(ids[do])
		a := as[len(as)-1]
		if diff := cmp.Diff(want, end{a.Outcome, r.item(ids[do]).State, a.Code, string(a.Output)}); diff != "" {
			t.Errorf("%s (-want +got):\n%s", do, diff)
		}
	}
	child, err := r.Find(t.Context(), "child", fmt.Sprintf("actor/%d", ids["emit"]), "c")
	if err != nil || child.State != ledger.StateReady {
		t.Errorf("emitted: %+v, %v", child, err)
	}
	if as := r.attempts(ids["log"]); !strings.Contains(as[0].Log, "noted") {
		t.Errorf("log %q", as[0].Log)
	}
	if as := r.attempts(ids["panic"]); !strings.Contains(as[0].Log, "goroutine") {
		t.Errorf("a panic without its stack: %q", as[0].Log)
	}
}

// A round gets the output of the round before. While the output cannot be read, the item is released. An item whose
// output is still being read does not begin once items are handed back.
func TestPrevious(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	round := func() {
		t.Helper()
		_, err := r.Add(t.Context(), ledger.NewItem{Kind: "actor", Key: "x", Payload: ledger.JSON(in{Do: "again"}),
			Again: ledger.Again{DoneBefore: time.Now().Add(time.Hour)}})
		must.OK(t, err)
		r.drain()
	}
	round()
	r.failedReads.Store(2)
	round()
	round()
	it, err := r.Find(t.Context(), "actor", "", "x")
	must.OK(t, err)
	var ended []string
	for _, a := range r.attempts(it.ID) {
		ended = append(ended, fmt.Sprintf("%s %s", a.Outcome, a.Output))
	}
	want := []string{`done "+false"`, "released ", "released ", `done "+false+true"`, `done "+false+true+true"`}
	if diff := cmp.Diff(want, ended); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	reading, read := make(chan bool), make(chan bool)
	r.host.config.LastOutput = func(context.Context, int64) ([]byte, error) {
		close(reading)
		<-read
		return nil, nil
	}
	settled := make(chan ledger.Result, 1)
	lease := &ledger.Lease{Item: it}
	r.host.Handle(t.Context(), lease, func(res ledger.Result) { settled <- res })
	<-reading
	r.host.HandBack(time.Minute)
	close(read)
	if res := <-settled; res.Outcome != ledger.OutcomeReleased {
		t.Errorf("it began after the worker was told to stop: %+v", res)
	}
}

// In a restored ledger the numbers of attempts begin above 1. A new item still has no earlier output.
func TestPreviousAfterARestoration(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	_, _, err := r.Restored(t.Context(), "test")
	must.OK(t, err)
	r.failedReads.Store(1) // a read would fail
	id := r.add("again")[0]
	r.drain()
	if all := r.attempts(id); len(all) != 1 || string(all[0].Output) != `"+false"` {
		t.Errorf("%+v", all)
	}
}

// An item that kills its process is found and becomes dead. The items beside it are done.
func TestPoisonItem(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{Backoff: ledger.Backoff{Base: time.Millisecond, Cap: time.Millisecond}})
	good := r.addMany(50, "answer")
	poison := r.add("die")[0]
	good = append(good, r.addMany(49, "answer more")...)
	rep := r.drain()
	if rep.Outcomes[ledger.OutcomeDone] != 99 || rep.Dead != 1 {
		t.Errorf("report %+v", rep)
	}
	r.want(ledger.StateDone, "", good...)
	r.want(ledger.StateDead, "crashed", poison)
	if it := r.item(poison); it.Crashes != 3 || strings.Contains(it.Error, "first words") ||
		!strings.HasSuffix(it.Error, " exited with 3 while it had this item; stderr: last words") {
		t.Errorf("%d crashes: %q", it.Crashes, it.Error)
	}
	as := r.attempts(poison)
	if last := as[len(as)-1]; len(last.Log) < 10_000 || !strings.Contains(last.Log, "last words") {
		t.Errorf("%d bytes of stderr in the log, without its end", len(last.Log))
	}
}

// When the process is killed from outside, each item in it gets one crash. The next process does them all.
func TestKilled(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	ids := r.addMany(30, "gate")
	wait := r.draining()
	r.waitBegun(4)
	before := r.host.PID()
	must.OK(t, syscall.Kill(before, syscall.SIGKILL))
	r.open()
	wait()
	r.want(ledger.StateDone, "", ids...)
	crashed := 0
	for _, id := range ids {
		for _, a := range r.attempts(id) {
			if a.Outcome == ledger.OutcomeCrashed {
				crashed++
				if !strings.Contains(a.Error, "killed by signal 9") {
					t.Errorf("item %d: %q", id, a.Error)
				}
			}
		}
	}
	if crashed < 4 || crashed > 8 { // it works four and asks for eight
		t.Errorf("%d attempts crashed", crashed)
	}
	if after := r.host.PID(); after == before || after == 0 {
		t.Errorf("process %d after %d", after, before)
	}
}

// A process that does not answer any more is killed, and counts as crashed.
func TestFrozen(t *testing.T) {
	r := newRig(t, quickly, ledger.Kind{})
	ids := r.add("first-wait")
	wait := r.draining()
	r.waitBegun(1)
	must.OK(t, syscall.Kill(r.host.PID(), syscall.SIGSTOP))
	wait()
	as := r.attempts(ids[0])
	if len(as) != 2 || as[0].Outcome != ledger.OutcomeCrashed || !strings.Contains(as[0].Error, "stopped answering") ||
		as[1].Outcome != ledger.OutcomeDone {
		t.Errorf("attempts %+v", as)
	}
}

// An item that ignores the end of its timeout ends with its process. The items beside it are released and done by the
// next process.
func TestOverrun(t *testing.T) {
	tests := []struct {
		name      string
		onLost    ledger.OnLost
		late      ledger.State
		neighbour ledger.State
		code      string
		first     ledger.Outcome // of the neighbour
	}{
		{"may be repeated", ledger.OnLostRepeat, ledger.StateDead, ledger.StateDone, "", ledger.OutcomeReleased},
		{"must not be repeated", ledger.OnLostDoubt, ledger.StateDoubt, ledger.StateDoubt, "killed", ledger.OutcomeUnknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, quickly, ledger.Kind{OnLost: tt.onLost, MaxFailures: 1, Timeout: 2 * time.Second})
			late := r.add("hang")[0]
			wait := r.draining()
			r.waitBegun(1)
			neighbour := r.addLate(time.Now().Add(1500*time.Millisecond), "first-hang")
			wait()
			r.want(tt.late, "timeout", late)
			r.want(tt.neighbour, tt.code, neighbour)
			if a := r.attempts(neighbour)[0]; a.Outcome != tt.first || a.Code != "killed" {
				t.Errorf("the neighbour's first attempt: %s, %q", a.Outcome, a.Code)
			}
			if it := r.item(neighbour); it.Failures+it.Crashes != 0 {
				t.Errorf("the neighbour has %d failures and %d crashes", it.Failures, it.Crashes)
			}
		})
	}
}

// addLate adds an item that is due at a time.
func (r *rig) addLate(due time.Time, do string) int64 {
	r.t.Helper()
	added, err := r.Add(r.t.Context(), ledger.NewItem{Kind: "actor", Key: do, Payload: ledger.JSON(in{Do: do}), Due: due})
	must.OK(r.t, err)
	return added[0].ID
}

// If the function ends with its context, the timeout ends only the item, and not the process.
func TestTimeout(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{MaxFailures: 1, Timeout: 100 * time.Millisecond})
	before := r.host.PID()
	id := r.add("wait")[0]
	r.drain()
	r.want(ledger.StateDead, "timeout", id)
	if after := r.host.PID(); after != before {
		t.Errorf("process %d after %d", after, before)
	}
}

// If the context of an item ends in this process, it ends in the plugin, too.
func TestCancel(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	id := r.add("wait")[0]
	wait := r.draining()
	r.waitBegun(1)
	asked := time.Now()
	must.Do(t)(r.Cancel(t.Context(), "ann", ledger.IDs(id)))
	wait()
	r.want(ledger.StateCancelled, "", id)
	if took := time.Since(asked); took > 10*time.Second { // promised: 2 s
		t.Errorf("took %s", took)
	}
}

// An item that ignores its cancellation ends with its process.
func TestCancelOfDeafItem(t *testing.T) {
	r := newRig(t, quickly, ledger.Kind{})
	id := r.add("hang")[0]
	wait := r.draining()
	r.waitBegun(1)
	must.Do(t)(r.Cancel(t.Context(), "ann", ledger.IDs(id)))
	wait()
	r.want(ledger.StateCancelled, "killed", id)
}

// A worker that stops hands back what its plugin has in hand; the process ends with the host.
func TestStop(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	ids := r.addMany(20, "wait")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.worker().Run(ctx) }()
	r.waitBegun(4)
	pid := r.host.PID()
	cancel()
	must.OK(t, <-ended)
	for _, id := range ids {
		if it := r.item(id); it.State != ledger.StateReady || it.Failures+it.Crashes != 0 {
			t.Errorf("item %d is %s with %d failures and %d crashes: %s", id, it.State, it.Failures, it.Crashes, it.Error)
		}
	}
	r.host.Close(time.Second)
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is still there: %v", err)
	}
}

// With on_lost = doubt, the process has only as many items as can begin. They are in doubt when it dies.
func TestDoubt(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{OnLost: ledger.OnLostDoubt})
	ids := r.addMany(12, "first-wait")
	wait := r.draining()
	r.waitBegun(4)
	if n, _ := r.host.Limit(); n != 4 {
		t.Errorf("limit %d, want 4", n)
	}
	must.OK(t, syscall.Kill(r.host.PID(), syscall.SIGKILL))
	r.waitBegun(8) // of the next process
	var doubt int
	for _, id := range ids {
		if r.item(id).State == ledger.StateDoubt {
			doubt++
		}
	}
	if doubt != 4 {
		t.Errorf("%d items in doubt, want the 4 that had begun", doubt)
	}
	must.Do(t)(r.Cancel(t.Context(), "test", ledger.Filter{Kinds: []string{"actor"}}))
	wait()
}

// After too many crashes nothing is claimed; then one item is tried.
func TestBreakerOpens(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{Backoff: ledger.Backoff{Base: time.Millisecond, Cap: time.Millisecond}})
	ids := r.addMany(10, "first-wait")
	now := time.Now()
	r.host.mu.Lock()
	r.host.breaker.crashes = []time.Time{now, now, now, now}
	r.host.mu.Unlock()
	wait := r.draining()
	r.waitBegun(4)
	must.OK(t, syscall.Kill(r.host.PID(), syscall.SIGKILL))
	wait() // though there are items left
	n, until := r.host.Limit()
	if pause := time.Until(until); n != 0 || pause < 4*time.Minute || pause > 5*time.Minute {
		t.Errorf("limit %d for %s", n, pause)
	}
	if stalled := r.host.Stalled(); !stalled.Equal(until) {
		t.Errorf("stalled until %s, want %s", stalled, until)
	}
	for _, id := range ids {
		if it := r.item(id); it.State != ledger.StateReady || it.Failures != 0 {
			t.Errorf("item %d is %s with %d failures", id, it.State, it.Failures)
		}
	}

	r.host.mu.Lock()
	r.host.breaker.next = time.Now()
	r.host.mu.Unlock()
	must.Eventually(t, "a process for the probe", func() bool { n, _ := r.host.Limit(); return n > 0 })
	if n, _ := r.host.Limit(); n != 1 {
		t.Errorf("limit %d for the probe, want 1", n)
	}
	if stalled := r.host.Stalled(); !stalled.IsZero() {
		t.Errorf("stalled until %s while a probe may be made", stalled)
	}
	must.Do(t)(r.Cancel(t.Context(), "test", ledger.IDs(ids...)))
	fine := r.addMany(5, "answer")
	r.drain()
	r.want(ledger.StateDone, "", fine...)
	if n, _ := r.host.Limit(); n < 4 {
		t.Errorf("limit %d after the probe", n)
	}
}

// The reason of a crash, on pages and in the API, has nothing of the plugin's own text about an item.
func TestReasonOfCrash(t *testing.T) {
	stream := status.Error(codes.Unknown, "cannot parse: ann@example.com")
	for _, tt := range []struct {
		why  error
		want string
	}{
		{&pluginproc.CrashError{PID: 7, How: "exited with 4", Stderr: "ann@example.com"}, "plugin process 7 exited with 4"},
		{&pluginproc.CrashError{PID: 7, Err: stream}, "its stream broke: Unknown"},
		{fmt.Errorf("open: %w", status.Error(codes.Unavailable, "ann@example.com")), "its stream broke: Unavailable"},
		{errFrozen, errFrozen.Error()},
		{errors.New("its password is hunter2"), "its password is ***"},
	} {
		h := &Host{setup: &setup{hide: redact.New("hunter2")}, log: slog.New(slog.DiscardHandler)}
		if h.crashed("crashed", tt.why); h.reason != tt.want {
			t.Errorf("%q, want %q", h.reason, tt.want)
		}
	}
}

func TestProgress(t *testing.T) {
	r := newRig(t, defaultTimes, ledger.Kind{})
	id := r.add("progress")[0]
	r.drain()
	select {
	case p := <-r.progress:
		if diff := cmp.Diff(Progress{id, "progress", 3, 7, "rows"}, p); diff != "" {
			t.Errorf("progress (-want +got):\n%s", diff)
		}
	default:
		t.Error("nothing was said")
	}
}

func TestCheck(t *testing.T) {
	for answer, want := range map[string]string{"yes": "", "sick": "the service is down"} {
		c := Config{Spec: Spec{Place: place(t)}, Settings: []byte(`{"answer":"` + answer + `"}`)}
		if problem, err := Check(t.Context(), c); problem != want || err != nil {
			t.Errorf("%s: %q, %v", answer, problem, err)
		}
	}
	late := errors.New("late")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, late)
	defer cancel()
	began := time.Now()
	if _, err := Check(ctx, Config{Spec: Spec{Place: place(t)}, Settings: []byte(`{"answer":"stuck"}`)}); !errors.Is(err,
		late) || time.Since(began) > 5*time.Second {
		t.Errorf("stuck: %v after %v", err, time.Since(began))
	}
}

func TestSettings(t *testing.T) {
	tests := []struct {
		settings string
		check    func(err error) bool
		text     string
	}{
		{`{"anwser":"yes"}`, func(err error) bool { _, ok := errors.AsType[*settings.Error](err); return ok }, "anwser"},
		{`{"answer":7}`, func(err error) bool { _, ok := errors.AsType[*settings.Error](err); return ok }, "answer"},
		{`{"answer":"no"}`, func(err error) bool { _, ok := errors.AsType[*ConfigError](err); return ok }, `never say "no"`},
		{`{"answer":"quote","password":"` + password + `"}`, func(err error) bool {
			refused, ok := errors.AsType[*ConfigError](err)
			return ok && !strings.Contains(refused.Error(), password)
		}, `password: "***" is too short`},
		{`{"answer":"crash"}`, func(err error) bool { _, ok := errors.AsType[*pluginproc.CrashError](err); return ok },
			"exited with 4"},
	}
	for _, tt := range tests {
		h, err := Start(t.Context(), Config{Spec: Spec{Place: place(t)}, Settings: []byte(tt.settings)})
		if err == nil {
			h.Close(0)
		}
		if err == nil || !tt.check(err) || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: %T %v", tt.settings, err, err)
		}
	}
}

func TestDescribe(t *testing.T) {
	d, err := Describe(t.Context(), Spec{Place: place(t)})
	must.OK(t, err)
	want := ledger.Kind{Name: "actor", Input: ledger.Input{Type: "line", Field: "do"}}
	if diff := cmp.Diff(want, d.Policy("actor")); diff != "" {
		t.Errorf("policy (-want +got):\n%s", diff)
	}
	if k := d.Policy("theatre"); k.Plugin != "actor" || k.Name != "theatre" {
		t.Errorf("policy of another kind: %+v", k)
	}
	if diff := cmp.Diff([]string{"password"}, d.Config.Secrets()); diff != "" {
		t.Error(diff)
	}
	other := place(t)
	other.Name = "singer"
	if _, err := Describe(t.Context(), Spec{Place: other}); err == nil ||
		!strings.Contains(err.Error(), `calls itself "actor"`) {
		t.Errorf("under another name: %v", err)
	}
}
