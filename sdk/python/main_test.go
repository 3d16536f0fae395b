package python_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/python/pythontest"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

var update = flag.Bool("update", false, "write the descriptor of the protocol anew")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := pythontest.Find(); err != nil && !*update {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	goleak.VerifyTestMain(m)
}

const (
	patience = 5 * time.Minute // with a foreign process: far beyond every bound
	slack    = 20              // times a promised bound
	// On a slow machine Python takes seconds of processor time to start, and several start at a time.
	startTime = 45 * time.Second
)

// acts is a plugin that follows the orders of its items.
func acts(args ...string) pluginproc.Spec {
	path, err := filepath.Abs("testdata/acts")
	if err != nil {
		panic(err) // there is no working directory
	}
	return pluginproc.Spec{Path: path, Args: args, StartTimeout: startTime, Env: []string{"PYTHONDONTWRITEBYTECODE=1"}}
}

// host is a plugin's process and what came from it.
type host struct {
	*pluginproc.Proc
	t       testing.TB
	session *pluginproc.Session[struct{}]
	tasks   map[int64]*task

	mu       sync.Mutex
	progress []int64
	lines    []string
}

type task = pluginproc.Task[struct{}]

// start starts a plugin, configures it and opens the stream.
func start(t testing.TB, spec pluginproc.Spec, req *wire.ConfigureRequest) *host {
	t.Helper()
	h := &host{t: t, tasks: map[int64]*task{}}
	spec.OnLog = func(_, line string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.lines = append(h.lines, line)
	}
	var err error
	h.Proc, err = pluginproc.Start(t.Context(), spec)
	must.OK(t, err)
	t.Cleanup(h.Kill)
	if problems, err := h.Configure(t.Context(), req); err != nil || len(problems) > 0 {
		t.Fatalf("Configure: %v %v", problems, err)
	}
	h.session, err = pluginproc.OpenSession(h, pluginproc.SessionConfig[struct{}]{
		Report: func(_ *task, p *wire.Progress) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.progress = append(h.progress, p.Done)
		},
		Stray: func(r *wire.Result) { t.Errorf("a second result, or one of no item: %v", r) },
	})
	must.OK(t, err)
	return h
}

// said is what the process has written to stderr.
func (h *host) said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}

// send sends an item with an order and its subject.
func (h *host) send(id int64, do, name string) {
	h.t.Helper()
	h.sendItem(&wire.Item{Id: id, Payload: fmt.Appendf(nil, `{"do":%q,"name":%q}`, do, name)})
}

func (h *host) sendItem(items ...*wire.Item) {
	h.t.Helper()
	for _, it := range items {
		it.Attempt, it.Kind, it.Key, it.Scope = 1, "acts", fmt.Sprint("key", it.Id), "s"
		it.IdempotencyKey, it.LockId = "once", []byte("lock")
		h.tasks[it.Id] = &task{Item: it}
		h.session.Add(h.tasks[it.Id])
	}
	for _, it := range items {
		h.wait(it.Id, (*task).Sent)
	}
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
		h.t.Fatalf("item %d: %v\n%s", id, err, h.said())
	}
}

// eventually polls what another process does.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end, tick := time.After(patience), time.Tick(10*time.Millisecond); !holds(); {
		select {
		case <-tick:
		case <-end:
			t.Fatal("waited too long for ", what)
		}
	}
}

// awaitSigns waits until acts that wait have written n lines to a file, and returns it.
func awaitSigns(t testing.TB, path string, n int) (text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d lines in %s", n, path), func() bool {
		raw, _ := os.ReadFile(path) // it may not be there yet
		text = string(raw)
		return strings.Count(text, "\n") >= n
	})
	return text
}
