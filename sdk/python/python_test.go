package python_test

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/internal/pluginproc/acttest"
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
	cache, err := os.UserCacheDir() // the types of Python's own library are read once on a machine
	must.OK(t, err)
	mypy := exec.Command("mypy", "--strict", "--ignore-missing-imports", "--disable-error-code", "import", "--cache-dir",
		cache+"/mypy", "ledgerd_plugin", "../template/python/src/plugin.py")
	mypy.Env = append(os.Environ(), "MYPYPATH=.")
	if out, err := mypy.CombinedOutput(); err != nil {
		t.Errorf("mypy: %v\n%s", err, out)
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	acttest.Conformance(t, conformance.Target{Spec: acts(),
		Secrets: map[string]string{"token": "s3cret-token", "nested.token": "s3cret-two"}},
		conformance.Target{Spec: acts("batch")})
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
		{"lastcode", &wire.Result{Outcome: failed, Error: "TypeError: LastCode: no code"}, ""},
		{"longest", &wire.Result{Outcome: done}, "xä end=here\n"},
		{"sum", &wire.Result{Outcome: done, Output: []byte(`{"a":1,"total":2}`)}, ""},
		{"pause", &wire.Result{Outcome: done, Output: []byte(`"30s"`)}, ""},
		{"nested", &wire.Result{Outcome: done, Output: []byte(`{"count":3,"token":""}`)}, ""},
		{"fork", &wire.Result{Outcome: done, Output: []byte(`15`)}, ""},
		{"soon", &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED, DelayMs: 1000, Error: "not yet"}, ""},
		{"unbounded", &wire.Result{Outcome: failed, Error: "ValueError: at_most is 1 to 100, with a code"}, ""},
		{"bounded", &wire.Result{Outcome: wire.Result_OUTCOME_SNOOZED, DelayMs: 60_000, Code: "busy", Error: "not yet",
			AtMost: 3}, ""},
	}
	spec := acts()
	spec.Env = append(spec.Env, "PLUGIN_MODEL=small") // not the handshake's
	h := acttest.Start(t, spec, &wire.ConfigureRequest{Config: []byte(`{"greeting":"good day"}`),
		Secrets: map[string]string{"token": "s3cret"}})
	for i, test := range tests {
		id := int64(i + 1)
		h.Send(id, test.do, "you")
		got := h.Result(id)
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
	for id, do := range map[int64]string{101: "circle", 102: "huge", 103: "nan", 104: "half", 105: "set"} {
		h.Send(id, do, "you")
		r := h.Result(id)
		if do == "set" && r.Error != "output.a.1.b: a set is no JSON; use a list" {
			t.Error(r)
		}
		if r.Outcome != failed || !r.Final || r.Code != "output" || len(r.Error) > wire.MaxError {
			t.Errorf("%s: %v", do, r)
		}
	}
	must.Eventually(t, "what was printed", func() bool {
		return strings.Contains(h.Said(), "stdout is no longer the handshake's") && strings.Contains(h.Said(), "modules may")
	})
	if left := h.Stop(t.Context(), time.Second); len(left) > 0 || !h.State().Success() {
		t.Errorf("unfinished %v, %v", left, h.State())
	}
	must.Eventually(t, "close", func() bool { return strings.HasSuffix(h.Said(), "closed") })
}

// Mistakes of a declaration end the program with the name of what is wrong. One process tries them all.
func TestDeclarations(t *testing.T) {
	t.Parallel()
	const program = `
import sys
from dataclasses import field, make_dataclass
from types import SimpleNamespace
from ledgerd_plugin import Plugin, wire
from ledgerd_plugin.process import Process
process = Process(Plugin("p", "1.0.0"))
def late():  # items that arrive with the end of the stream
    process.end()
    yield SimpleNamespace(items=[wire.Item(id=1, attempt=1)], cancels=[])
process.read(late())
print("to begin after the end:", process.queue.qsize())
def of(**metadata): return {"input": make_dataclass("I", [("a", str, field(metadata=metadata))])}
for given in (of(mim=1), of(input="folder"), of(doc="x", input="file"), {"emits": "wordcount"}, {"match": "*.txt"},
              {"examples": {}}, {"timeout": "1m"}):
    try: print(Plugin("p", "1.0.0", **given).name)
    except TypeError as err: print(err)
sys.executable = "/opt/python"
for module in [name for name in sys.modules if name.startswith(("google", "ledgerd_plugin"))]: del sys.modules[module]
sys.modules["google.protobuf"] = None
try: import ledgerd_plugin
except ImportError as err: print(err)`
	want := `to begin after the end: 0
field a: metadata has 'mim', and takes doc, format, secret, tune, min, max, input
field a: input is file, url, line, modified, owner, not 'folder'
p
emits must be a list
match must be a list
examples must be a list
timeout must be a number of seconds
/opt/python has no protobuf: /opt/python -m pip install protobuf grpcio cryptography (packages of Debian are for /usr/bin/python3)
`
	out, err := exec.Command("python3", "-c", program).CombinedOutput()
	if diff := cmp.Diff(want, string(out)); diff != "" || err != nil {
		t.Errorf("%v: -want +got\n%s", err, diff)
	}
}

func TestDoubtful(t *testing.T) {
	t.Parallel()
	acttest.Doubtful(t, acts("doubt"), map[string]wire.Result_Ending{"bug": wire.Result_ENDING_PANICKED,
		"failed": wire.Result_ENDING_RETURNED})
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
		`{"greeting":"exit now"}`:                     "not this one",
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
	if problems, err := p.Configure(t.Context(), &wire.ConfigureRequest{
		Config: []byte(`{"greeting":"exit"}`)}); err != nil || wire.ProblemText(problems) != "no way to open" {
		t.Error(problems, err)
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

// TestRefused: a definition that would not work, or not as its author means, is refused by the constructor.
func TestRefused(t *testing.T) {
	t.Parallel()
	python := exec.Command("python3", "-c", `
from dataclasses import dataclass, field
from typing import Dict, List
from ledgerd_plugin import Plugin

@dataclass
class Server:
    token: str = field(default="", metadata={"secret": True})

@dataclass
class Fine:
    server: Server = field(default_factory=Server)
    names: Dict[str, List[int]] = field(default_factory=dict)

@dataclass
class Tree:
    below: Dict[str, "Tree"] = field(default_factory=dict)

@dataclass
class Lost:
    of: "Nowhere"

def in_a(kind):
    return dataclass(type("Config", (), {"__annotations__": {"servers": kind}}))

for given in (dict(config=Fine), dict(config=Tree), dict(output=Dict[str, Lost]), dict(on_lost="doubt", concurrency=1),
              dict(config=in_a(List[Server])), dict(config=in_a(Dict[str, Server])), dict(config=in_a(Dict[str, List[Server]])),
              dict(on_lost="DOUBT"), dict(concurrency=0)):
    try:
        Plugin("p", "1.0.0", **given)
        print("fine")
    except (TypeError, ValueError) as err:
        print(err)
`)
	python.Env = append(os.Environ(), "PYTHONPATH=.")
	out, err := python.CombinedOutput()
	const secret, values = "a secret is no part of a list or dict: its name would be that of several values",
		"on_lost is repeat or doubt, concurrency 1 or more"
	want := strings.Join([]string{"fine", "fine", "fine", "fine", secret, secret, secret, values, values, ""}, "\n")
	if diff := cmp.Diff(want, string(out)); diff != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}

// Reports leave at once, and then the newest when it is time.
func TestProgress(t *testing.T) {
	t.Parallel()
	for every, most := range map[int64]int{-1: 5, 10: 5, 3_600_000: 1} {
		h := acttest.Start(t, acts(), &wire.ConfigureRequest{ProgressMs: every})
		h.Send(1, "count", "")
		h.Result(1)
		h.Stop(t.Context(), time.Second)
		got := h.Progress
		if len(got) == 0 || len(got) > most || !slices.IsSorted(got) || every < 0 && len(got) != most ||
			every == 10 && got[len(got)-1] != 5 {
			t.Errorf("every %d ms: %v", every, got)
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

// An item of a batch is settled by itself; those that are not share the exception, or have failed.
func TestBatch(t *testing.T) {
	t.Parallel()
	h := acttest.Start(t, acts("batch"), &wire.ConfigureRequest{Concurrency: 1})
	work := func(first int64, dos ...string) map[string]string {
		var items []*wire.Item
		for i, do := range dos {
			items = append(items, &wire.Item{Id: first + int64(i), Payload: []byte(`{"do":"` + do + `"}`)})
		}
		h.SendItems(items...)
		got := map[string]string{}
		for i, do := range dos {
			r := h.Result(first + int64(i))
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
