package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	goplugin "github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// hostile is a plugin that speaks the protocol itself, breaks it and lies.
type hostile struct {
	wire.UnimplementedPluginServer
	goplugin.NetRPCUnsupportedPlugin

	mu   sync.Mutex // of sending
	rpc  wire.Plugin_ProcessServer
	mine sync.Map // ids of the items that this process holds
}

func serveHostile() { serveRaw(&hostile{}) }

// serveRaw serves a plugin that speaks the protocol itself.
func serveRaw(p goplugin.Plugin) {
	goplugin.Serve(&goplugin.ServeConfig{
		HandshakeConfig:  goplugin.HandshakeConfig{MagicCookieKey: wire.CookieKey, MagicCookieValue: wire.CookieValue},
		VersionedPlugins: map[int]goplugin.PluginSet{wire.Version: {wire.Service: p}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			return grpc.NewServer(append(opts, grpc.MaxSendMsgSize(math.MaxInt32), grpc.MaxRecvMsgSize(wire.MaxMessage))...)
		},
	})
}

func (h *hostile) GRPCServer(_ *goplugin.GRPCBroker, s *grpc.Server) error {
	wire.RegisterPluginServer(s, h)
	return nil
}

func (h *hostile) GRPCClient(context.Context, *goplugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, errors.New("no client")
}

func (h *hostile) Describe(context.Context, *wire.DescribeRequest) (*wire.DescribeResponse, error) {
	return &wire.DescribeResponse{Name: "hostile", Version: "0.1.0", Concurrency: 8, MaxFailures: 20, TimeoutMs: 300_000,
		Emits:        []string{"note"},
		InputSchema:  []byte(`{"type":"object","properties":{"text":{"type":"string"}}}`),
		ConfigSchema: []byte(`{"type":"object"}`), OutputSchema: []byte(`{}`), Input: &wire.Input{Field: "text",
			Type: "line"}}, nil
}

func (h *hostile) Configure(context.Context, *wire.ConfigureRequest) (*wire.ConfigureResponse, error) {
	return &wire.ConfigureResponse{}, nil
}

func (h *hostile) CheckHealth(context.Context, *wire.CheckHealthRequest) (*wire.CheckHealthResponse, error) {
	return &wire.CheckHealthResponse{}, nil
}

// Drain returns without an error, and drains nothing.
func (h *hostile) Drain(context.Context, *wire.DrainRequest) (*wire.DrainResponse, error) {
	return &wire.DrainResponse{Unfinished: []int64{-1, math.MaxInt64}}, nil
}

func (h *hostile) send(m *wire.PluginMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_ = h.rpc.Send(m)
}

// Process ignores cancellations.
func (h *hostile) Process(rpc wire.Plugin_ProcessServer) error {
	h.rpc = rpc
	h.send(&wire.PluginMessage{Credits: 16})
	for {
		m, err := rpc.Recv()
		if err != nil {
			return err
		}
		for _, it := range m.Items {
			h.mine.Store(it.Id, true)
		}
		for _, it := range m.Items {
			go h.work(it)
		}
	}
}

// work misbehaves once, as the key of its item demands; a file in its folder records that.
func (h *hostile) work(it *wire.Item) {
	t := time.NewTimer(5 * time.Millisecond)
	<-t.C
	do, _, _ := strings.Cut(it.Key, " ")
	r := &wire.Result{Id: it.Id, Attempt: it.Attempt, LockId: it.LockId, Outcome: wire.Result_OUTCOME_DONE,
		Output: []byte(`"fine"`)}
	if misbehave := hostileActs[do]; misbehave != nil && os.Mkdir("did "+do, 0o700) == nil && !misbehave(h, it, r) {
		return
	}
	h.mine.Delete(it.Id)
	h.send(&wire.PluginMessage{Credits: 1, Results: []*wire.Result{r}})
}

const hangs = "hang"

// hostileActs are run before the result r is sent; after false it is not sent.
var hostileActs = map[string]func(h *hostile, it *wire.Item, r *wire.Result) bool{
	"crash": func(*hostile, *wire.Item, *wire.Result) bool { os.Exit(3); return false },
	hangs:   func(*hostile, *wire.Item, *wire.Result) bool { return false }, // and ignores its timeout
	"flood-stderr": func(*hostile, *wire.Item, *wire.Result) bool {
		line := append(bytes.Repeat([]byte("x"), 1<<10), '\n')
		for range 10_000 {
			os.Stderr.Write(line)
		}
		return true
	},
	"flood-stdout": func(*hostile, *wire.Item, *wire.Result) bool {
		_, err := syscall.Write(1, bytes.Repeat([]byte("y"), 4<<20)) // one line
		return err == nil
	},
	"flood-progress": func(h *hostile, it *wire.Item, _ *wire.Result) bool {
		m := &wire.PluginMessage{Progress: make([]*wire.Progress, 10_000)}
		for i := range m.Progress {
			m.Progress[i] = &wire.Progress{Id: it.Id + int64(i%3), Attempt: it.Attempt, Done: int64(-i), Total: math.MinInt64,
				Unit: "\x1b[31m"}
		}
		for range 20 {
			h.send(m)
		}
		return true
	},
	// Results for items that were never given, that other processes have or have done, and for other attempts. A plugin
	// can report anything about the items that it holds; the item that it has not read yet is among the newest.
	"lie-others": func(h *hostile, it *wire.Item, _ *wire.Result) bool {
		m := &wire.PluginMessage{}
		steal := func(id, attempt int64) {
			if _, mine := h.mine.Load(id); !mine {
				m.Results = append(m.Results, &wire.Result{Id: id, Attempt: attempt, LockId: it.LockId,
					Outcome: wire.Result_OUTCOME_DONE, Output: []byte(`"stolen"`)})
			}
		}
		for id := int64(-5); id < it.Id+2000; id++ {
			steal(id, 77)
			if id < it.Id-60 {
				steal(id, 1)
			}
			steal(1_000_000+id, 1)
		}
		m.Results = append(m.Results, &wire.Result{Id: it.Id, Attempt: it.Attempt + 1, Outcome: wire.Result_OUTCOME_DONE,
			Output: []byte(`"stolen"`)},
			&wire.Result{Id: it.Id, Attempt: -1, Outcome: wire.Result_OUTCOME_DONE, Output: []byte(`"stolen"`)})
		h.send(m)
		return true
	},
	"lie-twice": func(h *hostile, it *wire.Item, r *wire.Result) bool {
		second := &wire.Result{Id: it.Id, Attempt: it.Attempt, LockId: it.LockId, Outcome: wire.Result_OUTCOME_FAILED,
			Final: true, Code: "second", Output: []byte(`"second"`)}
		h.send(&wire.PluginMessage{Results: []*wire.Result{r, second, second}})
		r.Id = 1 << 40
		return true
	},
	"credits": func(h *hostile, _ *wire.Item, _ *wire.Result) bool {
		for range 3 {
			h.send(&wire.PluginMessage{Credits: math.MaxInt32})
		}
		return true
	},
	"huge-output": func(_ *hostile, _ *wire.Item, r *wire.Result) bool {
		r.Output, r.Log, r.Error = bytes.Repeat([]byte("7"), 2<<20), strings.Repeat("log\x00\n", 1<<18), strings.Repeat("e",
			1<<20)
		return true
	},
	"huge-message": func(_ *hostile, _ *wire.Item, r *wire.Result) bool { r.Output = make([]byte, 17<<20); return true },
	"outcome":      func(_ *hostile, _ *wire.Item, r *wire.Result) bool { r.Outcome = 99; return true },
	"code": func(_ *hostile, _ *wire.Item, r *wire.Result) bool {
		r.Outcome, r.Code, r.Output = wire.Result_OUTCOME_FAILED, "NO\nGOOD", []byte{0xff, 0}
		return true
	},
	"emit": func(_ *hostile, _ *wire.Item, r *wire.Result) bool {
		r.Emit = []*wire.Child{{Kind: "hostile", Key: "stolen"}}
		return true
	},
	"no-json": func(_ *hostile, _ *wire.Item, r *wire.Result) bool { r.Output = []byte("{\"a\":"); return true },
	"no-utf8": func(_ *hostile, _ *wire.Item, r *wire.Result) bool { r.Output = []byte("\"\xff\""); return true },
	"text-no-utf8": func(_ *hostile, _ *wire.Item, r *wire.Result) bool {
		unchecked(r, "error", "a bad \xff byte")
		return true
	},
	"emit-no-utf8": func(_ *hostile, _ *wire.Item, r *wire.Result) bool {
		c := &wire.Child{Kind: "note"}
		unchecked(c, "key", "st\xffolen")
		r.Emit = []*wire.Child{c}
		return true
	},
	"emit-bad": func(_ *hostile, _ *wire.Item, r *wire.Result) bool {
		r.Emit = []*wire.Child{{Kind: "note", Key: "", Priority: math.MaxInt32, DueUs: math.MinInt64}}
		return true
	},
	"fork": func(*hostile, *wire.Item, *wire.Result) bool {
		for range 60 {
			_ = exec.Command("sleep", "600").Start()
		}
		return false
	},
	"grow": func(*hostile, *wire.Item, *wire.Result) bool {
		for {
			hoard = append(hoard, bytes.Repeat([]byte("z"), 16<<20))
		}
	},
	"leak": func(_ *hostile, _ *wire.Item, r *wire.Result) bool {
		for {
			f, err := os.Open(os.DevNull)
			if err != nil {
				r.Outcome, r.Code, r.Error = wire.Result_OUTCOME_FAILED, "leak", err.Error()
				return true
			}
			defer f.Close() // the others must be able to misbehave in this process, too
		}
	},
}

// unchecked puts a text into a message that no encoder of protocol buffers would accept.
func unchecked(m proto.Message, field, text string) {
	d := m.ProtoReflect().Descriptor().Fields().ByName(protoreflect.Name(field))
	raw := protowire.AppendTag(m.ProtoReflect().GetUnknown(), d.Number(), protowire.BytesType)
	m.ProtoReflect().SetUnknown(protowire.AppendString(raw, text))
}

var hoard [][]byte

// fate is what the ledger must show for an item that misbehaved once: outcome and code of its first attempt, and words
// of its error. "" means done at the first attempt.
type fate struct{ outcome, code, text string }

var fates = map[string]fate{
	"crash":          {"crashed", "crashed", "exited with 3"},
	hangs:            {"failed", "timeout", "did not end within"},
	"flood-stderr":   {"done", "", ""},
	"flood-stdout":   {"done", "", ""},
	"flood-progress": {"done", "", ""},
	"lie-others":     {"done", "", ""},
	"lie-twice":      {"done", "", ""},
	"credits":        {"done", "", ""},
	"huge-output":    {"failed", "", "output"},
	"huge-message":   {"crashed", "crashed", "result too large"},
	"outcome":        {"failed", "bad_result", "outcome 99"},
	"code":           {"failed", "", ""},
	"emit":           {"failed", "emit_refused", `kind "hostile", which it does not declare`},
	"emit-bad":       {"failed", "", ""},
	"no-json":        {"failed", "bad_output", "is no JSON"},
	"no-utf8":        {"failed", "bad_output", "is no JSON"},
	"text-no-utf8":   {"done", "", "a bad \uFFFD byte"},
	"emit-no-utf8":   {"failed", "emit_refused", "is no UTF-8"},
	"fork":           {"crashed", "crashed", "40 are allowed"},
	"grow":           {"crashed", "crashed", "300 MiB are allowed"},
	"leak":           {"failed", "leak", "too many open files"},
}

// Two daemons work a hostile plugin under load. The daemons survive, the ledger is sound, each item that misbehaves
// ends as expected, and the other items are done.
func TestHostile(t *testing.T) {
	onBoth(t, func(t *testing.T, m *machine) {
		s := m.site("lease = \"60s\"\nlisten = \"\"\n[kinds.hostile]\nbackoff_base = \"10ms\"\nbackoff_cap = " +
			"\"10ms\"\nmax_crashes = 10\n" +
			// The other acts are of a kind without a timeout, since the machine may be slow.
			"[kinds.hanging]\nplugin = \"hostile\"\ntimeout = \"2s\"\n" +
			"[plugins.hostile]\ncommand = [\"DIR/hostile\"]\ndir = \"DIR\"\nmemory = \"300MiB\"\nprocesses = 40\nopen_files = 128\n")
		link(t, filepath.Join(s.dir, "hostile"))
		team := []*started{s.daemon(), s.daemon()}
		var together, alone []string // items that end their process would also end others in it
		for mode := range hostileActs {
			switch {
			case mode == hangs:
			case fates[mode].outcome == "crashed":
				alone = append(alone, mode)
			default:
				together = append(together, mode)
			}
		}
		added := s.addHostile("hostile", 600, together...)
		for _, mode := range alone {
			s.untilEnded()
			added += s.addHostile("hostile", 60, mode)
		}
		s.untilEnded()
		added += s.addHostile("hanging", 60, hangs)
		s.untilEnded()
		for _, p := range team {
			s.signal(p, syscall.SIGTERM)
		}
		for _, p := range team {
			s.ends(p, failure.ExitOK)
			// Plugins write 20 MiB in all. How much of it is passed on depends on their speed.
			if n := len(p.stderr.String()); n > 32<<20 {
				t.Errorf("%d bytes of log", n)
			}
		}
		for _, mode := range slices.Concat(together, alone, []string{hangs}) {
			hadFate(t, s, mode)
		}
		if n := s.count("state:done key:neighbour*"); n != added {
			t.Errorf("%d of %d neighbours are done", n, added)
		}
		if all := s.run(failure.ExitOK, "ls", "--all", "-o", "jsonl"); strings.Contains(all, "stolen") ||
			strings.Contains(all, `"second"`) {
			t.Error("a lie is in the ledger")
		}
		s.run(failure.ExitOK, "db", "verify")
	})
}

// addHostile adds items that misbehave among so many that do not.
func (s *site) addHostile(kind string, neighbours int, modes ...string) int {
	var list strings.Builder
	wave := modes[0]
	for i := range neighbours {
		if i%30 == 10 && len(modes) > 0 {
			fmt.Fprintln(&list, modes[0])
			modes = modes[1:]
		}
		fmt.Fprintln(&list, "neighbour of", wave, i)
	}
	if len(modes) > 0 {
		s.t.Fatal("more neighbours are needed")
	}
	s.write("list", list.String())
	s.run(failure.ExitOK, "--config", s.config, "add", kind, "--from", filepath.Join(s.dir, "list"))
	return neighbours
}

// untilEnded waits until every item has ended.
func (s *site) untilEnded() {
	s.t.Helper()
	s.until("all have ended", func() bool {
		return s.run(failure.ExitOK, "ls", "--state", "ready,waiting,leased", "--limit", "1", "-o", "jsonl", "-q") == ""
	})
}

// hadFate checks how an item that misbehaved has ended.
func hadFate(t *testing.T, s *site, mode string) {
	t.Helper()
	shown := s.show(mode)
	want := fates[mode]
	if want.outcome != "failed" && shown.Item.State != "done" {
		t.Errorf("%s is %s", mode, shown.Item.State)
	}
	if !slices.ContainsFunc(shown.Attempts, func(a attempt) bool {
		return a.Outcome == want.outcome && (want.code == "" || a.Code == want.code) && strings.Contains(a.Error, want.text)
	}) {
		t.Errorf("%s: attempts %.2000s, want %+v", mode, fmt.Sprint(shown.Attempts), want)
	}
}
