package node_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

func TestMain(m *testing.M) {
	if _, err := exec.LookPath("node"); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need Node 18 or later: install it, then run make node-packages")
		os.Exit(1)
	}
	if _, err := os.Stat("node_modules/.package-lock.json"); err != nil {
		fmt.Fprintln(os.Stderr, "these tests need the packages of package-lock.json: run make node-packages")
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

const (
	patience = 5 * time.Minute // with a foreign process: far beyond every bound
	// On a slow machine Node takes seconds of processor time to start, and several start at a time.
	startTime = 45 * time.Second
)

// acts is a plugin that follows the orders of its items; doubtful is one whose effects must not be
// repeated.
func acts(args ...string) pluginproc.Spec {
	path, err := filepath.Abs("testdata/acts")
	if err != nil {
		panic(err) // there is no working directory
	}
	return pluginproc.Spec{Path: path, Args: args, StartTimeout: startTime}
}

// host is a plugin's process and what came from it.
type host struct {
	*pluginproc.Proc
	t       testing.TB
	session *pluginproc.Session[struct{}]
	tasks   map[int64]*task

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	progress []*wire.Progress
	lines    []string
}

type task = pluginproc.Task[struct{}]

// start starts a plugin, configures it and opens the stream.
func start(t testing.TB, spec pluginproc.Spec, req *wire.ConfigureRequest) *host {
	t.Helper()
	h := &host{t: t, changed: make(chan struct{}), tasks: map[int64]*task{}}
	spec.OnLog = h.log
	var err error
	if h.Proc, err = pluginproc.Start(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Kill)
	if problems, err := h.Configure(t.Context(), req); err != nil || len(problems) > 0 {
		t.Fatalf("Configure: %v %v", problems, err)
	}
	h.session, err = pluginproc.OpenSession(h, pluginproc.SessionConfig[struct{}]{
		Report: func(_ *task, p *wire.Progress) { h.change(func() { h.progress = append(h.progress, p) }) },
		Stray:  func(r *wire.Result) { t.Errorf("a second result, or one of no item: %v", r) },
	})
	must.OK(t, err)
	return h
}

func (h *host) change(what func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	what()
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *host) log(_, line string) { h.change(func() { h.lines = append(h.lines, line) }) }

// until waits until what is asked for is so. ok is called with mu held.
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

// send sends an item with an order and its subject.
func (h *host) send(id int64, do, name string) {
	h.t.Helper()
	h.sendItem(&wire.Item{Id: id, Payload: fmt.Appendf(nil, `{"do":%q,"name":%q}`, do, name)})
}

func (h *host) sendItem(it *wire.Item) {
	h.t.Helper()
	it.Attempt, it.Kind, it.Key, it.Scope = 1, "acts", fmt.Sprint("key", it.Id), "s"
	it.IdempotencyKey, it.LockId = "once", []byte("lock")
	h.tasks[it.Id] = &task{Item: it}
	h.session.Add(h.tasks[it.Id])
	h.wait(it.Id, (*task).Sent)
}

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

// signs is a file to which acts that wait write a line when they have begun.
func signs(t testing.TB) string { return filepath.Join(t.TempDir(), "signs") }

// awaitSigns waits for n lines and returns the file. It is another process that writes it.
func awaitSigns(t testing.TB, path string, n int) string {
	t.Helper()
	for end, tick := time.After(patience), time.Tick(10*time.Millisecond); ; {
		text, _ := os.ReadFile(path) // it may not be there yet
		lines := 0
		for _, b := range text {
			if b == '\n' {
				lines++
			}
		}
		if lines >= n {
			return string(text)
		}
		select {
		case <-tick:
		case <-end:
			t.Fatalf("%s has %d lines, want %d", path, lines, n)
		}
	}
}
