package pluginproc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// The test binary is the plugin's process as well: its first argument says how it behaves.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if act, ok := acts[os.Args[1]]; ok {
			act()
			return
		}
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for a foreign process: far beyond every bound.
const patience = time.Minute

// self is the spec of the test binary in a role, with a place for its sockets.
func self(t testing.TB, act string) pluginproc.Spec {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return pluginproc.Spec{Path: path, Args: []string{act}, SocketDir: shortDir(t)}
}

// shortDir is a directory whose path is short enough for sockets, as t.TempDir's is not. It
// must be empty in the end.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "lt")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(dir); err != nil {
			t.Error("left behind:", err)
		}
	})
	return dir
}

// host is a process under test and what came from it.
type host struct {
	*pluginproc.Proc
	t      testing.TB
	stream *pluginproc.Stream

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each change
	results map[int64]*wire.Result
	lines   []string
}

// newHost is a host of a plugin that is not started yet.
func newHost(t testing.TB) *host {
	return &host{t: t, changed: make(chan struct{}), results: map[int64]*wire.Result{}}
}

// start starts a plugin, configures it and opens the stream.
func start(t testing.TB, spec pluginproc.Spec, config string) *host {
	t.Helper()
	h := newHost(t)
	spec.OnLog = h.log
	var err error
	if h.Proc, err = pluginproc.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Kill)
	if config != "" {
		problems, err := h.Configure(t.Context(), &wire.ConfigureRequest{Config: []byte(config)})
		if err != nil || len(problems) > 0 {
			t.Fatalf("Configure: %v %v", problems, err)
		}
	}
	if h.stream, err = h.Open(pluginproc.Events{Results: h.settle}); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) log(_, line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *host) settle(results []*wire.Result) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range results {
		if h.results[r.Id] != nil {
			h.t.Errorf("item %d has a second result", r.Id)
		}
		h.results[r.Id] = r
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// until waits until what is asked for is so.
func (h *host) until(what string, ok func() bool) {
	h.t.Helper()
	timeout := time.After(patience)
	for {
		h.mu.Lock()
		if ok() {
			h.mu.Unlock()
			return
		}
		changed := h.changed
		h.mu.Unlock()
		select {
		case <-changed:
		case <-timeout:
			h.t.Fatal("waited too long for ", what)
		}
	}
}

func (h *host) untilLine(line string) {
	h.t.Helper()
	h.until("line "+line, func() bool {
		for _, l := range h.lines {
			if l == line {
				return true
			}
		}
		return false
	})
}

// send sends one script for each thing to do; ids count from first.
func (h *host) send(first int64, does ...string) {
	h.t.Helper()
	for i, do := range does {
		do, text, _ := strings.Cut(do, " ")
		if _, err := h.stream.WaitCredits(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
		err := h.stream.Send([]*wire.Item{{
			Id: first + int64(i), Attempt: 1, Kind: "actor", Key: do, LockId: []byte("lock"),
			Payload: []byte(`{"do":"` + do + `","text":"` + text + `"}`),
		}})
		if err != nil {
			h.t.Fatal(err)
		}
	}
}

// result waits for the result of an item.
func (h *host) result(id int64) *wire.Result {
	h.t.Helper()
	var r *wire.Result
	h.until("a result", func() bool { r = h.results[id]; return r != nil })
	return r
}

// ended waits for the end of the process.
func (h *host) ended() error {
	h.t.Helper()
	select {
	case <-h.Done():
		return h.Err()
	case <-time.After(patience):
		h.t.Fatal("the process does not end")
		return nil
	}
}

// crash waits for the end of a process that nobody stopped.
func (h *host) crash() *pluginproc.CrashError {
	h.t.Helper()
	var c *pluginproc.CrashError
	if err := h.ended(); !errors.As(err, &c) {
		h.t.Fatalf("Err is %v, want a CrashError", err)
	}
	return c
}

// gone waits until a process is no more, and says how long that took.
func gone(t testing.TB, pid int) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for alive(pid) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d lives on", pid)
		}
	}
	return time.Since(began)
}

// removeAll empties a directory that a killed host has left things in.
func removeAll(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Error(err)
		}
	}
}
