// Package acttest tests an SDK of a language other than Go: it starts a plugin that follows the orders of its items,
// and asserts what all SDKs promise of its process. Each SDK has such a plugin, testdata/acts.
package acttest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/pluginproc"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

const (
	patience = 5 * time.Minute // how long a test waits for the process: far beyond every bound
	// StartTime is for a plugin to start: a slow machine takes seconds of processor time for it, and several start at
	// a time.
	StartTime = 45 * time.Second
)

// Host is a plugin's process and what came from it.
type Host struct {
	*pluginproc.Proc
	Session  *pluginproc.Session[struct{}]
	Progress []int64 // Done of each report; read it after the end of the process

	t     testing.TB
	tasks map[int64]*task

	mu    sync.Mutex
	lines []string
}

type task = pluginproc.Task[struct{}]

// Start starts a plugin, configures it and opens the stream.
func Start(t testing.TB, spec pluginproc.Spec, req *wire.ConfigureRequest) *Host {
	t.Helper()
	h := &Host{t: t, tasks: map[int64]*task{}}
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
	h.Session, err = pluginproc.OpenSession(h, pluginproc.SessionConfig[struct{}]{
		Report: func(_ *task, p *wire.Progress) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.Progress = append(h.Progress, p.Done)
		},
		Stray: func(r *wire.Result) { t.Errorf("a second result, or one of no item: %v", r) },
	})
	must.OK(t, err)
	return h
}

// Said is what the process has written to stderr.
func (h *Host) Said() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}

// Send sends an item with an order and its subject.
func (h *Host) Send(id int64, do, name string) {
	h.t.Helper()
	h.SendItems(&wire.Item{Id: id, Payload: fmt.Appendf(nil, `{"do":%q,"name":%q}`, do, name)})
}

// SendItems sends items, and fills in what all have.
func (h *Host) SendItems(items ...*wire.Item) {
	h.t.Helper()
	for _, it := range items {
		it.Attempt, it.Kind, it.Key, it.Scope = 1, "acts", fmt.Sprint("key", it.Id), "s"
		it.IdempotencyKey, it.LockId = "once", []byte("lock")
		h.tasks[it.Id] = &task{Item: it}
		h.Session.Add(h.tasks[it.Id])
	}
	for _, it := range items {
		h.wait(it.Id, (*task).Sent)
	}
}

// Result waits for the result of an item.
func (h *Host) Result(id int64) *wire.Result {
	h.t.Helper()
	h.wait(id, (*task).Over)
	return h.tasks[id].Result
}

func (h *Host) wait(id int64, state func(*task) bool) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(h.t.Context(), patience)
	defer cancel()
	if _, err := h.Session.Wait(ctx, state, h.tasks[id]); err != nil {
		h.t.Fatalf("item %d: %v\n%s", id, err, h.Said())
	}
}

// ended waits for the end of the process.
func (h *Host) ended(after string) {
	h.t.Helper()
	select {
	case <-h.Done():
	case <-time.After(patience):
		h.t.Fatal("it lives on after", after)
	}
}

// signs is a file to which acts that wait write a line when they have begun.
func signs(t testing.TB) string { return filepath.Join(t.TempDir(), "signs") }

// awaitSigns waits until there are n lines in that file.
func awaitSigns(t testing.TB, path string, n int) {
	t.Helper()
	must.Eventually(t, fmt.Sprintf("%d lines in %s", n, path), func() bool {
		text, _ := os.ReadFile(path) // it may not be there yet
		return strings.Count(string(text), "\n") >= n
	})
}
