package python_test

import (
	"bytes"
	"context"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// TestDescriptor holds the descriptor that the SDK reads to the protocol. With -update it writes it.
func TestDescriptor(t *testing.T) {
	const name = "ledgerd_plugin/plugin.binpb"
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(protodesc.ToFileDescriptorProto(wire.File_plugin_proto))
	must.OK(t, err)
	if *update {
		must.OK(t, os.WriteFile(name, want, 0o644))
	}
	if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not that of sdk/wire/plugin.proto: run make generate (%v)", name, err)
	}
}

// TestTypes: the SDK, and a plugin that uses it, pass mypy.
func TestTypes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mypy"); err != nil {
		t.Fatal("mypy is needed: apt-get install mypy")
	}
	mypy := exec.Command("mypy", "--strict", "--ignore-missing-imports", "--disable-error-code", "import", "--cache-dir",
		t.TempDir(), "ledgerd_plugin", "../template/python/src/plugin.py")
	mypy.Env = append(os.Environ(), "MYPYPATH=.")
	if out, err := mypy.CombinedOutput(); err != nil {
		t.Errorf("mypy: %v\n%s", err, out)
	}
}

// TestConformance runs what "ledgerd plugin check" runs, most of it over TLS. The bounds of the checks are wide: a busy
// machine takes ten seconds to start Python.
func TestConformance(t *testing.T) {
	t.Parallel()
	for name, target := range map[string]conformance.Target{
		"one by one": {Spec: acts(), Slack: 60,
			Secrets: map[string]string{"token": "s3cret-token", "nested.token": "s3cret-two"}},
		"batches": {Spec: acts("batch"), Slack: 60},
	} {
		for _, check := range conformance.Checks(target) {
			if name == "batches" && check.Group != conformance.GroupProcess {
				continue
			}
			t.Run(name+"/"+check.Name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				if err := check.Run(ctx, target); err != nil {
					t.Errorf("a plugin %s: %v", check.About, err)
				}
			})
		}
	}
}

// TestActs is what becomes of what a function returns and raises.
func TestActs(t *testing.T) {
	t.Parallel()
	child := &wire.Child{Kind: "entry", Scope: "acts/9", Key: "one", Fingerprint: "f", Payload: []byte(`{"n":1}`),
		DueUs: 1795132800000000, Priority: -1}
	const (
		done   = wire.Result_OUTCOME_DONE
		failed = wire.Result_OUTCOME_FAILED
	)
	tests := []struct {
		do   string
		want *wire.Result // without the item's identity
		log  string
	}{
		{"greet", &wire.Result{Outcome: done, Output: []byte(`"good day you"`)}, ""},
		{"nothing", &wire.Result{Outcome: done}, ""},
		{"failed", &wire.Result{Outcome: failed, Code: "bad_one_", Error: "no file", Output: []byte(`{"done":1}`)}, ""},
		{"permanent", &wire.Result{Outcome: failed, Final: true, Error: "never"}, ""},
		{"later", &wire.Result{Outcome: failed, DelayMs: 1501, Error: "busy"}, ""},
		{"snooze", &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED, DelayMs: 60_000, Error: "not yet"}, ""},
		{"doubt", &wire.Result{Outcome: wire.Result_OUTCOME_UNKNOWN, Error: "the line broke"}, ""},
		{"skip", &wire.Result{Outcome: wire.Result_OUTCOME_SKIPPED, Error: "nothing to do",
			Emit: []*wire.Child{{Kind: "entry", Scope: "acts/8", Key: "skipped"}}}, ""},
		{"emit", &wire.Result{Outcome: done, Emit: []*wire.Child{child}}, `emit other 'x': |emit entry '': |priority is -2`},
		{"lost", &wire.Result{Outcome: failed, Error: "KeyError: 'x'"}, "Traceback"},
		{"bug", &wire.Result{Outcome: failed, Error: "KeyError: 'x'"}, `{}["x"]`},
		{"leak", &wire.Result{Outcome: failed, Error: "ValueError: it was ***"}, "it was ***"},
		{"oserror", &wire.Result{Outcome: failed, Code: "enoent",
			Error: "FileNotFoundError: [Errno 2] No such file or directory: '/no/such/file'"}, ""},
		{"mute", &wire.Result{Outcome: failed, Error: "Mute: Mute"}, ""},
		{"stdin", &wire.Result{Outcome: done, Output: []byte(`""`)}, ""},
		{"exit", &wire.Result{Outcome: failed, Error: "SystemExit: 3"}, ""},
		{"env", &wire.Result{Outcome: done, Output: []byte(`["PLUGIN_MODEL"]`)}, ""},
		{"log", &wire.Result{Outcome: done}, "line i=2999\n|the token is ***"},
		{"echo", &wire.Result{Outcome: done, Output: []byte(`[19,"acts","s","key19",1,"once",null]`)}, ""},
		{"delta", &wire.Result{Outcome: failed,
			Error: "TypeError: float() argument must be a string or a real number, not 'datetime.timedelta'"}, ""},
		{"code", &wire.Result{Outcome: failed, Error: "TypeError: OddCode: no code"}, ""},
		{"sum", &wire.Result{Outcome: done, Output: []byte(`{"a":1,"total":2}`)}, ""},
		{"pause", &wire.Result{Outcome: done, Output: []byte(`"30s"`)}, ""},
		{"nested", &wire.Result{Outcome: done, Output: []byte(`{"count":3,"token":""}`)}, ""},
	}
	spec := acts()
	spec.Env = append(spec.Env, "PLUGIN_MODEL=small") // not the handshake's
	h := start(t, spec, &wire.ConfigureRequest{Config: []byte(`{"greeting":"good day"}`),
		Secrets: map[string]string{"token": "s3cret"}})
	for i, test := range tests {
		id := int64(i + 1)
		h.send(id, test.do, "you")
		got := h.result(id)
		for said := range strings.SplitSeq(test.log, "|") {
			if !strings.Contains(got.Log, said) || len(got.Log) > wire.MaxLog || strings.Contains(got.Log, "s3cret") {
				t.Errorf("%s: its log, of %d bytes, is %q", test.do, len(got.Log), got.Log)
			}
		}
		got.Log = ""
		test.want.Id, test.want.Attempt, test.want.LockId = id, 1, []byte("lock")
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: -want +got\n%s", test.do, diff)
		}
	}
	for id, do := range map[int64]string{101: "circle", 102: "huge", 103: "nan", 104: "half"} {
		h.send(id, do, "you")
		if r := h.result(id); r.Outcome != failed || !r.Final || r.Code != "output" || len(r.Error) > wire.MaxError {
			t.Errorf("%s: %v", do, r)
		}
	}
	eventually(t, "what was printed", func() bool {
		return strings.Contains(h.said(), "stdout is no longer the handshake's") && strings.Contains(h.said(), "modules may")
	})
	if left := h.Stop(t.Context(), time.Second); len(left) > 0 || !h.State().Success() {
		t.Errorf("unfinished %v, %v", left, h.State())
	}
	eventually(t, "close", func() bool { return strings.HasSuffix(h.said(), "closed") })
}

// An exception of unknown origin is no report where effects must not be repeated.
func TestDoubtful(t *testing.T) {
	t.Parallel()
	h := start(t, acts("doubt"), &wire.ConfigureRequest{Concurrency: 3})
	for id, test := range []struct {
		do     string
		ending wire.Result_Ending
	}{{"bug", wire.Result_ENDING_PANICKED}, {"failed", wire.Result_ENDING_RETURNED}} {
		h.send(int64(id), test.do, "you")
		if r := h.result(int64(id)); r.Outcome != wire.Result_OUTCOME_FAILED || r.Ending != test.ending {
			t.Errorf("%s: %v", test.do, r)
		}
	}
	if n := h.session.Stream.Credits(); n > 3 {
		t.Errorf("%d credits, with a concurrency of 3 and nothing that may lie in a queue", n)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	p, err := pluginproc.Start(t.Context(), acts())
	must.OK(t, err)
	defer p.Kill()
	for config, want := range map[string]string{
		`{}`:                                          "",
		`{"share":0.5,"names":["a"]}`:                 "",
		`{"greeting":""}`:                             "greeting: minLength is 1",
		`{"greting":"x","greeting":1}`:                "greting: there is no such field; greeting: must be string",
		`{"nested":{"count":"1"}}`:                    "nested.count: must be integer",
		`{"nested":{"count":true}}`:                   "nested.count: must be integer",
		`{"nested":{"cuont":1}}`:                      "nested.cuont: there is no such field",
		`{"size":"middle"}`:                           "size: must be one of small, large",
		`{"share":2}`:                                 "share: minimum is 0, maximum is 1",
		`{"share":null}`:                              "share: must be number",
		`{"share":1e999}`:                             "share: must be number",
		`{"share":1` + strings.Repeat("0", 400) + `}`: "share: ",
		`{"names":["a",1]}`:                           "names.1: must be string",
		`{"names":["a","b","c"]}`:                     "names: minItems is none, maxItems is 2",
		`[]`:                                          "must be object",
		`{`:                                           "not JSON",
		`{"greeting":"boo"}`:                          "no one is greeted with boo and ***",
	} {
		problems, err := p.Configure(t.Context(), &wire.ConfigureRequest{Config: []byte(config), ValidateOnly: true,
			Secrets: map[string]string{"token": "s3cret"}})
		if got := wire.ProblemText(problems); err != nil || !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q (%v)", config, got, want, err)
		}
	}
	if _, err := p.CheckHealth(t.Context()); err == nil {
		t.Error("health before Configure")
	}
	if problems, err := p.Configure(t.Context(), &wire.ConfigureRequest{Config: []byte(`{"greeting":"ill"}`),
		Secrets: map[string]string{"token": "s3cret"}}); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if problem, err := p.CheckHealth(t.Context()); problem != "not well: ***" || err != nil {
		t.Error(problem, err)
	}
	if _, err := p.Configure(t.Context(), &wire.ConfigureRequest{}); err == nil {
		t.Error("a second config was accepted")
	}
}

// Reports leave at once, and then the newest when it is time.
func TestProgress(t *testing.T) {
	t.Parallel()
	for every, most := range map[int64]int{-1: 5, 10: 5, 3_600_000: 1} {
		h := start(t, acts(), &wire.ConfigureRequest{ProgressMs: every})
		h.send(1, "count", "")
		h.result(1)
		h.Stop(t.Context(), time.Second)
		got := h.progress
		if len(got) == 0 || len(got) > most || !slices.IsSorted(got) || every < 0 && len(got) != most ||
			every == 10 && got[len(got)-1] != 5 {
			t.Errorf("every %d ms: %v", every, got)
		}
	}
}

// Work that is asked to end gives its reason, whether it has begun or not.
func TestCancel(t *testing.T) {
	t.Parallel()
	h := start(t, acts(), &wire.ConfigureRequest{})
	began := filepath.Join(t.TempDir(), "signs")
	reasons := map[wire.Cancel_Reason]*wire.Result{
		wire.Cancel_REASON_CANCELLED:  {Outcome: wire.Result_OUTCOME_CANCELLED},
		wire.Cancel_REASON_LEASE_LOST: {Outcome: wire.Result_OUTCOME_RELEASED},
		wire.Cancel_REASON_STOPPING:   {Outcome: wire.Result_OUTCOME_RELEASED},
		wire.Cancel_REASON_TIMEOUT: {Outcome: wire.Result_OUTCOME_FAILED, Code: "timeout",
			Ending: wire.Result_ENDING_TIMED_OUT},
	}
	for id := range int64(8) { // four begin, four lie in the queue
		h.send(id, "wait", began)
	}
	awaitSigns(t, began, 4)
	for _, first := range []int64{4, 0} {
		for reason := range reasons {
			h.session.Stream.Cancel(first+int64(reason)-1, 1, reason)
		}
	}
	for reason, want := range reasons {
		for _, id := range []int64{int64(reason) - 1, int64(reason) + 3} {
			if r := h.result(id); r.Outcome != want.Outcome || r.Code != want.Code || r.Ending != want.Ending {
				t.Errorf("item %d, %v: %v", id, reason, r)
			}
		}
	}
	h.sendItem(&wire.Item{Id: 9, TimeoutMs: 1, Payload: []byte(`{"do":"wait","name":"` + began + `"}`)})
	if r := h.result(9); r.Code != "timeout" || r.Ending != wire.Result_ENDING_TIMED_OUT {
		t.Error("its own timeout:", r)
	}
}

// Begun items are finished or named, others are handed back; the process ends either way.
func TestDrain(t *testing.T) {
	t.Parallel()
	h := start(t, acts(), &wire.ConfigureRequest{})
	began := filepath.Join(t.TempDir(), "signs")
	h.send(1, "wait", began)
	h.send(2, "deaf", began)
	for id := range int64(6) {
		h.send(id+3, "wait", began)
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

// A service manager sends SIGTERM to all processes: begun items are finished, the rest is handed back,
// and at a second one it is stopped.
func TestTerminate(t *testing.T) {
	t.Parallel()
	h := start(t, acts(), &wire.ConfigureRequest{})
	began := filepath.Join(t.TempDir(), "signs")
	h.send(1, "wait", began)
	awaitSigns(t, began, 1)
	must.OK(t, syscall.Kill(h.PID(), syscall.SIGTERM))
	heard := false
	for id, until := int64(2), time.Now().Add(patience); !heard && time.Now().Before(until); id++ {
		h.send(id, "nothing", "")
		heard = h.result(id).Outcome == wire.Result_OUTCOME_RELEASED
	}
	if !heard {
		t.Fatal("it goes on with new items after SIGTERM")
	}
	if h.session.Len() != 1 {
		t.Error("what was begun has ended:", h.tasks[1].Result)
	}
	must.OK(t, syscall.Kill(h.PID(), syscall.SIGTERM))
	if r := h.result(1); r.Outcome != wire.Result_OUTCOME_RELEASED {
		t.Error(r)
	}
	select {
	case <-h.Done():
	case <-time.After(patience):
		t.Fatal("it lives on after SIGTERM")
	}
	if !h.State().Success() {
		t.Error(h.State())
	}
}

// An item of a batch is settled by itself; those that are not share the exception, or have failed.
func TestBatch(t *testing.T) {
	t.Parallel()
	h := start(t, acts("batch"), &wire.ConfigureRequest{Concurrency: 1})
	work := func(first int64, dos ...string) map[string]string {
		var items []*wire.Item
		for i, do := range dos {
			items = append(items, &wire.Item{Id: first + int64(i), Payload: []byte(`{"do":"` + do + `"}`)})
		}
		h.sendItem(items...)
		got := map[string]string{}
		for i, do := range dos {
			r := h.result(first + int64(i))
			got[do] = strings.TrimPrefix(r.Outcome.String(), "OUTCOME_") + " " + r.Code + string(r.Output)
		}
		return got
	}
	want := map[string]string{"size": "DONE 2", "fail": "FAILED ", "forget": "FAILED unsettled", "": "FAILED rest"}
	got := work(1, "size", "forget")
	maps.Copy(got, work(11, "fail", "size"))
	got[""] = work(21, "boom")["boom"]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error("-want +got\n" + diff)
	}
}
