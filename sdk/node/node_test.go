package node_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/acttest"
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

// TestConformance puts the plugin that works batches into one file.
func TestConformance(t *testing.T) {
	t.Parallel()
	one := filepath.Join(t.TempDir(), "acts")
	if out, err := exec.Command("node", "bundle.js", "testdata/acts", one).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	acttest.Conformance(t, conformance.Target{Spec: acts()}, conformance.Target{Spec: pluginproc.Spec{Path: one,
		Args: []string{"batch"}, StartTimeout: acttest.StartTime}})
}

func TestExample(t *testing.T) {
	t.Parallel()
	path, err := filepath.Abs("../../examples/plugin-node/ledgerd-plugin-jsonl")
	must.OK(t, err)
	h := acttest.Start(t, pluginproc.Spec{Path: path, StartTimeout: acttest.StartTime},
		&wire.ConfigureRequest{Config: []byte(`{"max_bad":1}`)})
	for id, test := range []struct{ lines, code, error, output string }{
		{"{\"a\":1}\n\n{\"a\":2,\"b\":3}\n", "", "", `{"lines":3,"fields":{"a":2,"b":1}}`},
		{"{\"b\":1}\n", "bad_line", "1 of 1 lines: line 1 has no a", `{"lines":1,"bad":1}`},
		{"{\n{\n{\n", "bad_line", "2 of 2 lines: line 1: ", `{"lines":2,"bad":2}`},
	} {
		file := filepath.Join(t.TempDir(), "a.jsonl")
		must.OK(t, os.WriteFile(file, []byte(test.lines), 0o600))
		h.SendItems(&wire.Item{Id: int64(id), Payload: []byte(`{"path":"` + file + `","required":["a"]}`)})
		r := h.Result(int64(id))
		if r.Code != test.code || !strings.HasPrefix(r.Error, test.error) || string(r.Output) != test.output ||
			r.Final != (test.code != "") {
			t.Errorf("%q: %v", test.lines, r)
		}
	}
	h.SendItems(&wire.Item{Id: 99, Payload: []byte(`{"path":"/no/such/file"}`)})
	if r := h.Result(99); r.Code != "enoent" || r.Final {
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
			`must not hold half a letter|due is not a time|emit entry "x": priority 3 is not between -2 and 2`},
		{"emitThenFail", &wire.Result{Outcome: failed, Error: "no"}, ""},
		{"doubt", &wire.Result{Outcome: wire.Result_OUTCOME_UNKNOWN, Error: "the line broke"}, ""},
		{"bug", &wire.Result{Outcome: failed, Error: "Cannot read properties of undefined (reading 'x')"}, "    at "},
		{"text", &wire.Result{Outcome: failed, Error: "only text"}, ""},
		{"noText", &wire.Result{Outcome: failed, Error: "object"}, ""},
		{"env", &wire.Result{Outcome: done, Output: []byte(`["PLUGIN_MODEL"]`)}, ""},
		{"log", &wire.Result{Outcome: done}, "line i=2999\n"},
		{"longest", &wire.Result{Outcome: done}, "xä end=here\n"},
		{"bounded", &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED, DelayMs: 60_000, Code: "busy", Error: "not yet",
			AtMost: 3}, ""},
	}
	spec := acts()
	spec.Env = []string{"PLUGIN_MODEL=small"} // not the handshake's
	h := acttest.Start(t, spec, &wire.ConfigureRequest{Config: []byte(`{"greeting":"good day"}`),
		Secrets: map[string]string{"token": "s3cret"}})
	for i, test := range tests {
		id := int64(i + 1)
		h.Send(id, test.do, "you")
		got := h.Result(id)
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
		h.Send(id, do, "you")
		if r := h.Result(id); r.Outcome != failed || !r.Final || r.Code != "output" || len(r.Error) > wire.MaxError {
			t.Errorf("%s: %v", do, r)
		}
	}
	must.Eventually(t, "what was printed", func() bool {
		return strings.Contains(h.Said(), "stdout is no longer the handshake's") &&
			strings.Contains(h.Said(), "modules may speak")
	})
	if left := h.Stop(t.Context(), time.Second); len(left) > 0 || !h.State().Success() {
		t.Errorf("unfinished %v, %v", left, h.State())
	}
	must.Eventually(t, "close", func() bool { return strings.HasSuffix(h.Said(), "closed") })
}

func TestDoubtful(t *testing.T) {
	t.Parallel()
	h := acttest.Doubtful(t, acts("doubt"), map[string]wire.Result_Ending{"bug": wire.Result_ENDING_PANICKED,
		"fail": wire.Result_ENDING_PANICKED, "failed": wire.Result_ENDING_RETURNED})
	if d, err := h.Describe(t.Context(), &wire.DescribeRequest{}); err != nil || d.Concurrency != 4 {
		t.Error("Describe is about the plugin, not about this process:", d, err)
	}
}

// The item arrives as it was sent; fields of a newer ledgerd are ignored.
func TestItem(t *testing.T) {
	t.Parallel()
	h := acttest.Start(t, acts(), &wire.ConfigureRequest{})
	const id = 1<<62 + 1 // JavaScript's numbers are not made for it
	it := &wire.Item{Id: id, Payload: []byte(`{"do":"echo","name":"you"}`), Previous: []byte(`{"seen":3}`)}
	it.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType),
		"from the future"))
	h.SendItems(it)
	want := `{"id":"4611686018427387905","kind":"acts","scope":"s","key":"key4611686018427387905","attempt":1,` +
		`"idempotencyKey":"once","payload":{"do":"echo","name":"you"},"previous":{"seen":3}}`
	if got := string(h.Result(id).Output); got != want {
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
		h := acttest.Start(t, acts(), &wire.ConfigureRequest{ProgressMs: every})
		h.Send(1, "count", "")
		h.Result(1)
		h.Stop(t.Context(), time.Second)
		got := h.Progress
		if every == 10 && len(got) > 2 && slices.IsSorted(got) {
			got = []int64{got[0], got[len(got)-1]}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("every %d ms: -want +got\n%s", every, diff)
		}
	}
}

func TestCancel(t *testing.T) {
	t.Parallel()
	acttest.Cancel(t, acts())
}

func TestDrain(t *testing.T) {
	t.Parallel()
	acttest.Drain(t, acts())
}

func TestTerminate(t *testing.T) {
	t.Parallel()
	acttest.Terminate(t, acts())
}

func TestHangUp(t *testing.T) {
	t.Parallel()
	acttest.HangUp(t, acts())
}
