package node_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/conformance"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// TestUnits runs the SDK's own tests: they need no ledgerd. Some are about the package for npm and its types.
func TestUnits(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command("node", "--test").CombinedOutput(); err != nil {
		t.Errorf("node --test: %v\n%s", err, out)
	}
}

// TestConformance runs what "ledgerd plugin check" runs, most of it over TLS. The bounds of the checks are wide: a busy
// machine takes ten seconds to start Node.
func TestConformance(t *testing.T) {
	t.Parallel()
	one := filepath.Join(t.TempDir(), "acts")
	if out, err := exec.Command("node", "bundle.js", "testdata/acts", one).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, spec := range map[string]pluginproc.Spec{"one by one": acts(),
		"batches, in one file": {Path: one, Args: []string{"batch"}, StartTimeout: startTime}} {
		target := conformance.Target{Spec: spec, Slack: 60}
		for _, check := range conformance.Checks(target) {
			if name != "one by one" && check.Group != conformance.GroupProcess {
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

func TestExample(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs("../../examples/plugin-node/ledgerd-plugin-jsonl")
	must.OK(t, err)
	h := start(t, pluginproc.Spec{Path: path, StartTimeout: startTime}, &wire.ConfigureRequest{Config: []byte(`{"max_bad":1}`)})
	for id, test := range []struct{ lines, code, error, output string }{
		{"{\"a\":1}\n\n{\"a\":2,\"b\":3}\n", "", "", `{"lines":3,"fields":{"a":2,"b":1}}`},
		{"{\"b\":1}\n", "bad_line", "1 of 1 lines: line 1 has no a", `{"lines":1,"bad":1}`},
		{"{\n{\n{\n", "bad_line", "2 of 2 lines: line 1: ", `{"lines":2,"bad":2}`},
	} {
		file := filepath.Join(t.TempDir(), "a.jsonl")
		must.OK(t, os.WriteFile(file, []byte(test.lines), 0o600))
		h.sendItem(&wire.Item{Id: int64(id), Payload: []byte(`{"path":"` + file + `","required":["a"]}`)})
		r := h.result(int64(id))
		if r.Code != test.code || !strings.HasPrefix(r.Error, test.error) || string(r.Output) != test.output ||
			r.Final != (test.code != "") {
			t.Errorf("%q: %v", test.lines, r)
		}
	}
	h.sendItem(&wire.Item{Id: 99, Payload: []byte(`{"path":"/no/such/file"}`)})
	if r := h.result(99); r.Code != "enoent" || r.Final {
		t.Error(r)
	}
}

// TestActs is what becomes of what a function returns and throws.
func TestActs(t *testing.T) {
	t.Parallel()
	child := &wire.Child{Kind: "entry", Scope: "acts/10", Key: "one", Fingerprint: "f", Payload: []byte(`{"n":1}`),
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
		{"greet", &wire.Result{Outcome: done, Output: []byte(`"good day you s3cret"`)}, ""},
		{"nothing", &wire.Result{Outcome: done}, ""},
		{"fail", &wire.Result{Outcome: failed, Code: "busy_", Error: "come back"}, ""},
		{"partly", &wire.Result{Outcome: failed, Error: "half", Output: []byte(`{"done":1}`)}, ""},
		{"failed", &wire.Result{Outcome: failed, Code: "enoent", Error: "no file"}, ""},
		{"permanent", &wire.Result{Outcome: failed, Final: true, Error: "never"}, ""},
		{"later", &wire.Result{Outcome: failed, DelayMs: 1501, Error: "busy"}, ""},
		{"snooze", &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED, DelayMs: 60_000, Error: "not yet"}, ""},
		{"skip", &wire.Result{Outcome: wire.Result_OUTCOME_SKIPPED, Error: "nothing to do",
			Emit: []*wire.Child{{Kind: "entry", Scope: "acts/9", Key: "skipped"}}}, ""},
		{"emit", &wire.Result{Outcome: done, Emit: []*wire.Child{child}},
			`must not hold half a letter|due is no time|emit entry "x": priority 3 is not between -2 and 2`},
		{"emitThenFail", &wire.Result{Outcome: failed, Error: "no"}, ""},
		{"doubt", &wire.Result{Outcome: wire.Result_OUTCOME_UNKNOWN, Error: "the line broke"}, ""},
		{"bug", &wire.Result{Outcome: failed, Error: "Cannot read properties of undefined (reading 'x')"}, ""},
		{"text", &wire.Result{Outcome: failed, Error: "only text"}, ""},
		{"noText", &wire.Result{Outcome: failed, Error: "object"}, ""},
		{"env", &wire.Result{Outcome: done, Output: []byte(`["PLUGIN_MODEL"]`)}, ""},
		{"log", &wire.Result{Outcome: done}, "line i=2999\n"},
	}
	spec := acts()
	spec.Env = []string{"PLUGIN_MODEL=small"} // not the handshake's
	h := start(t, spec, &wire.ConfigureRequest{Config: []byte(`{"greeting":"good day"}`),
		Secrets: map[string]string{"token": "s3cret"}})
	for i, test := range tests {
		id := int64(i + 1)
		h.send(id, test.do, "you")
		got := h.result(id)
		for said := range strings.SplitSeq(test.log, "|") {
			if !strings.Contains(got.Log, said) || len(got.Log) > wire.MaxLog {
				t.Errorf("%s: its log, of %d bytes, is %q", test.do, len(got.Log), got.Log)
			}
		}
		got.Log = ""
		test.want.Id, test.want.Attempt, test.want.LockId = id, 1, []byte("lock")
		if diff := cmp.Diff(test.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: -want +got\n%s", test.do, diff)
		}
	}
	for id, do := range map[int64]string{101: "circle", 102: "huge", 103: "noMessage"} {
		h.send(id, do, "you")
		if r := h.result(id); r.Outcome != failed || !r.Final || r.Code != "output" || len(r.Error) > wire.MaxError {
			t.Errorf("%s: %v", do, r)
		}
	}
	h.until("a line on stderr", func() bool {
		said := strings.Join(h.lines, "\n")
		return strings.Contains(said, "stdout is no longer the handshake's") && strings.Contains(said, "modules may speak")
	})
	if left := h.Stop(t.Context(), time.Second); len(left) > 0 || !h.State().Success() {
		t.Errorf("unfinished %v, %v", left, h.State())
	}
	h.until("close", func() bool { return len(h.lines) > 0 && h.lines[len(h.lines)-1] == "closed" })
}

// An exception of unknown time is no report where effects must not be repeated.
func TestDoubtful(t *testing.T) {
	t.Parallel()
	h := start(t, acts("doubt"), &wire.ConfigureRequest{Concurrency: 3})
	if d, err := h.Describe(t.Context(), &wire.DescribeRequest{}); err != nil || d.Concurrency != 4 {
		t.Error("Describe is about the plugin, not about this process:", d, err)
	}
	for id, test := range []struct {
		do     string
		ending wire.Result_Ending
	}{{"bug", wire.Result_ENDING_PANICKED}, {"fail", wire.Result_ENDING_PANICKED}, {"failed",
		wire.Result_ENDING_RETURNED}} {
		h.send(int64(id), test.do, "you")
		if r := h.result(int64(id)); r.Outcome != wire.Result_OUTCOME_FAILED || r.Ending != test.ending {
			t.Errorf("%s: %v", test.do, r)
		}
	}
	if n := h.session.Stream.Credits(); n > 3 {
		t.Errorf("%d credits, with a concurrency of 3 and nothing that may lie in a queue", n)
	}
}

// The item arrives as it was sent; fields of a newer ledgerd are ignored.
func TestItem(t *testing.T) {
	t.Parallel()
	h := start(t, acts(), &wire.ConfigureRequest{})
	const id = 1<<62 + 1 // JavaScript's numbers are not made for it
	it := &wire.Item{Id: id, Payload: []byte(`{"do":"echo","name":"you"}`), Previous: []byte(`{"seen":3}`)}
	it.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType),
		"from the future"))
	h.sendItem(it)
	want := `{"id":"4611686018427387905","kind":"acts","scope":"s","key":"key4611686018427387905","attempt":1,` +
		`"idempotencyKey":"once","payload":{"do":"echo","name":"you"},"previous":{"seen":3}}`
	if got := string(h.result(id).Output); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	p, err := pluginproc.Start(t.Context(), acts())
	must.OK(t, err)
	defer p.Kill()
	for config, want := range map[string]string{
		`{}`:                           "",
		`{"greeting":""}`:              "greeting: must NOT have fewer than 1 characters",
		`{"greting":"x","greeting":1}`: "greting: there is no such field; greeting: must be string",
		`{"nested":{"count":"1"}}`:     "nested.count: must be integer",
		`{"nested":{"cuont":1}}`:       "nested.cuont: there is no such field",
		`{`:                            ": not JSON",
		`{"greeting":"boo"}`:           ": nobody is greeted with boo",
	} {
		problems, err := p.Configure(t.Context(), &wire.ConfigureRequest{Config: []byte(config), ValidateOnly: true})
		var texts []string
		for _, p := range problems {
			texts = append(texts, p.Field+": "+p.Message)
		}
		if got := strings.Join(texts, "; "); err != nil || !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q (%v)", config, got, want, err)
		}
	}
	if _, err := p.CheckHealth(t.Context()); err == nil {
		t.Error("health before Configure")
	}
	if problems, err := p.Configure(t.Context(),
		&wire.ConfigureRequest{Config: []byte(`{"greeting":"ill"}`)}); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if problem, err := p.CheckHealth(t.Context()); problem != "not well" || err != nil {
		t.Error(problem, err)
	}
	if _, err := p.Configure(t.Context(), &wire.ConfigureRequest{}); err == nil {
		t.Error("a second config was accepted")
	}
}

// Reports leave at once, and then the newest when it is time. A busy machine may give time for some between.
func TestProgress(t *testing.T) {
	t.Parallel()
	for every, want := range map[int64][]int64{-1: {1, 2, 3, 4, 5}, 10: {1, 5}, 3_600_000: {1}} {
		h := start(t, acts(), &wire.ConfigureRequest{ProgressMs: every})
		h.send(1, "count", "")
		h.result(1)
		h.Stop(t.Context(), time.Second)
		var got []int64
		for _, p := range h.progress {
			got = append(got, p.Done)
		}
		if every == 10 && len(got) > 2 && slices.IsSorted(got) {
			got = []int64{got[0], got[len(got)-1]}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("every %d ms: -want +got\n%s", every, diff)
		}
	}
}

// Work that is asked to end gives its reason, whether it has begun or not.
func TestCancel(t *testing.T) {
	t.Parallel()
	h := start(t, acts(), &wire.ConfigureRequest{})
	began := signs(t)
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
	began := signs(t)
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
	began := signs(t)
	h.send(1, "wait", began)
	awaitSigns(t, began, 1)
	terminate := func() {
		must.OK(t, syscall.Kill(h.PID(), syscall.SIGTERM))
	}
	terminate()
	for id := int64(2); ; id++ { // until it has heard of it
		h.send(id, "nothing", "")
		if h.result(id).Outcome == wire.Result_OUTCOME_RELEASED {
			break
		}
	}
	if h.session.Len() != 1 {
		t.Error("what was begun has ended:", h.tasks[1].Result)
	}
	terminate()
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

// A plugin ends with ledgerd, also one that is at work and does not listen.
func TestHangUp(t *testing.T) {
	t.Parallel()
	h := start(t, acts(), &wire.ConfigureRequest{})
	began := signs(t)
	h.send(1, "deaf", began)
	awaitSigns(t, began, 1)
	h.HangUp()
	select {
	case <-h.Done():
	case <-time.After(patience):
		t.Fatal("it lives on after the end of stdin")
	}
}
