//go:build unix

package pluginproc_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// The test binary is the plugin's process as well: its first argument chooses the behaviour.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if act, ok := acts[os.Args[1]]; ok {
			act()
			return
		}
	}
	goleak.VerifyTestMain(m)
}

// patience is how long a test waits for a process: far beyond every bound.
const patience = 5 * time.Minute

// self is the spec of the test binary in a role, with a place for its sockets.
func self(t testing.TB, act string) pluginproc.Spec {
	t.Helper()
	path, err := os.Executable()
	must.OK(t, err)
	return pluginproc.Spec{Path: path, Args: []string{act}, SocketDir: shortDir(t)}
}

// shortDir is a directory whose path is short enough for sockets, as t.TempDir's is not. It
// must be empty in the end.
func shortDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "lt")
	must.OK(t, err)
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
	t       testing.TB
	session *session
	stream  *pluginproc.Stream // of session
	tasks   map[int64]*task

	mu      sync.Mutex
	changed chan struct{} // closed and replaced at each line
	lines   []string
}

// start starts a plugin, configures it and opens the stream.
func start(t testing.TB, spec pluginproc.Spec, config string) *host {
	t.Helper()
	h := &host{t: t, changed: make(chan struct{}), tasks: map[int64]*task{}}
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
	h.session, err = pluginproc.OpenSession(h, pluginproc.SessionConfig[string]{
		Stray: func(r *wire.Result) { t.Errorf("a second result, or one of no item: %v", r) }})
	must.OK(t, err)
	h.stream = h.session.Stream
	return h
}

func (h *host) log(_, line string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, line)
	close(h.changed)
	h.changed = make(chan struct{})
}

// untilLine waits until the plugin has written a line.
func (h *host) untilLine(line string) {
	h.t.Helper()
	timeout := time.After(patience)
	for {
		h.mu.Lock()
		there, changed := slices.Contains(h.lines, line), h.changed
		h.mu.Unlock()
		if there {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			h.t.Fatal("waited too long for line ", line)
		}
	}
}

// send sends one script for each thing to do; ids count from first.
func (h *host) send(first int64, does ...string) {
	h.t.Helper()
	for i, do := range does {
		do, text, _ := strings.Cut(do, " ")
		id := first + int64(i)
		h.tasks[id] = &task{Item: &wire.Item{
			Id: id, Attempt: 1, Kind: "actor", Key: do, LockId: []byte("lock"),
			Payload: []byte(`{"do":"` + do + `","text":"` + text + `"}`),
		}}
		h.session.Add(h.tasks[id])
		h.wait(id, (*task).Sent)
	}
}

// result waits for the result of an item.
func (h *host) result(id int64) *wire.Result {
	h.t.Helper()
	h.wait(id, (*task).Over)
	return h.tasks[id].Result
}

func (h *host) wait(id int64, state func(*task) bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	if _, err := h.session.Wait(ctx, state, h.tasks[id]); err != nil {
		h.t.Fatalf("item %d: %v", id, err)
	}
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

// crash waits for the end of a process that was not stopped.
func (h *host) crash() *pluginproc.CrashError {
	h.t.Helper()
	var c *pluginproc.CrashError
	if err := h.ended(); !errors.As(err, &c) {
		h.t.Fatalf("Err is %v, want a CrashError", err)
	}
	return c
}

// gone waits until a process is no more, and returns how long that took.
func gone(t testing.TB, pid int) time.Duration {
	t.Helper()
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.Tick(10 * time.Millisecond)
	for alive(pid) {
		select {
		case <-tick:
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
	must.OK(t, err)
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			t.Error(err)
		}
	}
}
