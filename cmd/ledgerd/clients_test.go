//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// client is a client of the API and the interpreter that runs it.
type client struct{ interpreter, folder, ending string }

var clients = []client{
	{"python3", "python", ".py"},
	{"node", "typescript", ".mjs"},
}

// script starts a program that uses a client.
func (m *machine) script(c client, base, file string, args ...string) *started {
	m.t.Helper()
	folder, err := filepath.Abs("../../clients/" + c.folder)
	must.OK(m.t, err)
	cmd := exec.Command(c.interpreter, append([]string{file}, args...)...)
	env := m.env
	defer func() { m.env = env }()
	m.env = append(env, "LEDGERD_URL="+strings.TrimSuffix(base, "/api/v1"), "PYTHONPATH="+folder,
		"PYTHONDONTWRITEBYTECODE=1")
	return m.launch(cmd)
}

// docProgram writes a program of docs/clients.md to a file.
func docProgram(t *testing.T, name string) (file string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/clients.md")
	must.OK(t, err)
	found := regexp.MustCompile("(?s)```[a-z]+ " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatalf("docs/clients.md has no %s", name)
	}
	file = filepath.Join(t.TempDir(), name)
	must.OK(t, os.WriteFile(file, found[1], 0o600))
	installed := filepath.Join(filepath.Dir(file), "node_modules", "ledgerd") // a link, as npm makes it
	folder, err := filepath.Abs("../../clients/typescript")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(installed), 0o700)
	}
	if err == nil {
		err = os.Symlink(folder, installed)
	}
	must.OK(t, err)
	return file
}

// TestClientsAsDocumented runs the programs of docs/clients.md.
func TestClientsAsDocumented(t *testing.T) {
	onClients(t, func(t *testing.T, m *machine, c client, base string) {
		m.run(failure.ExitOK, "kind", "set", "article", "--input", "line")
		look := m.script(c, base, docProgram(t, "look"+c.ending))
		if code, out := m.exit(look), look.stdout.String(); code != 0 || !strings.Contains(out, " two It is ready") ||
			!strings.Contains(out, "bad_filter column 1 did you mean state:?") {
			t.Errorf("exit %d\n%s%s", code, out, look.stderr.String())
		}
		work := m.script(c, base, docProgram(t, "work"+c.ending))
		m.until("both are done", func() bool { return m.count("kind:article state:done") == 2 })
		m.stop(work, syscall.SIGTERM, 0)
	})
}

// onClients runs a test with each client and a running ledgerd api; the ledger has the kind page.
func onClients(t *testing.T, test func(t *testing.T, m *machine, c client, base string)) {
	for _, c := range clients {
		t.Run(c.folder, func(t *testing.T) {
			onFile(t, func(t *testing.T, m *machine) {
				m.run(failure.ExitOK, "db", "migrate")
				m.run(failure.ExitOK, "kind", "set", "page", "--input", "line")
				_, base := m.api("--auth", "none", "--prefix", "/x/y")
				test(t, m, c, base)
				m.run(failure.ExitOK, "db", "verify")
			})
		})
	}
}

// Each client calls every route, and reports refusals with their code and place.
func TestClientRoutes(t *testing.T) {
	onClients(t, func(t *testing.T, m *machine, c client, base string) {
		p := m.script(c, base, "testdata/clients/routes"+c.ending)
		if code := m.exit(p); code != 0 || !strings.Contains(p.stdout.String(), " routes\n") {
			t.Errorf("exit %d\n%s%s", code, p.stdout.String(), p.stderr.String())
		}
	})
}

// clientWorker is a running worker of a client, with the files of its handler: gate is a FIFO. The handler of an item
// whose key begins with "gated" reads gate, and so waits until it is closed. effects lists what the handler has done.
type clientWorker struct {
	*started
	m             *machine
	gate, effects string
}

// worker starts testdata/clients/worker: concurrency is its number of handlers, ahead the number of items that it
// claims ahead, lease the time to live of its leases in seconds.
func (m *machine) worker(c client, base string, concurrency, ahead, lease int) *clientWorker {
	m.t.Helper()
	dir := m.t.TempDir()
	w := &clientWorker{m: m, gate: filepath.Join(dir, "gate"), effects: filepath.Join(dir, "effects")}
	must.OK(m.t, syscall.Mkfifo(w.gate, 0o600))
	env := m.env
	defer func() { m.env = env }()
	m.env = append(env, "GATE="+w.gate, "EFFECTS="+w.effects)
	w.started = m.script(c, base, "testdata/clients/worker"+c.ending, fmt.Sprint(concurrency), fmt.Sprint(ahead),
		fmt.Sprint(lease))
	return w
}

// atWork waits until the handler of a gated item reads gate, and returns the other end of it. Close it to let the
// handler continue.
func (w *clientWorker) atWork() *os.File {
	w.m.t.Helper()
	var open *os.File
	w.m.until("the worker is at work", func() bool {
		var err error
		open, err = os.OpenFile(w.gate, os.O_WRONLY|syscall.O_NONBLOCK, 0) // it fails while no handler reads
		return err == nil
	})
	return open
}

func (w *clientWorker) signal(s syscall.Signal) {
	w.m.t.Helper()
	must.OK(w.m.t, w.Process.Signal(s))
}

// endsWell waits for the end of a worker that was asked to end.
func (w *clientWorker) endsWell() {
	w.m.t.Helper()
	if code := w.m.exit(w.started); code != 0 || !strings.Contains(w.stdout.String(), "ended\n") {
		w.m.t.Errorf("exit %d\n%s%s", code, w.stdout.String(), w.stderr.String())
	}
}

// A worker ends attempts with the result of its handler, and works items that are added while it waits. At SIGTERM it
// finishes running items and hands back those that have not begun.
func TestClientWorker(t *testing.T) {
	onClients(t, func(t *testing.T, m *machine, c client, base string) {
		m.run(failure.ExitOK, "add", "page", "one", "fails", "snoozed", "odd", "exits 1", "exits 2")
		w := m.worker(c, base, 2, 4, 3600)
		m.until("all were tried", func() bool { return m.count("state:waiting") == 5 && m.count("state:done") == 1 })
		for key, want := range map[string]string{"one": `"output":{"length":3}`, "fails": `"error":"asitwastold"`,
			"snoozed": `"outcome":"snoozed"`, "odd": `"code":"bad_result"`, "exits 2": `"code":"system_exit"`} {
			out := strings.Join(strings.Fields(m.run(failure.ExitOK, "show", key, "-o", "json")), "")
			if !strings.Contains(out, want) {
				t.Errorf("%s has no %s: %s", key, want, out)
			}
		}
		m.run(failure.ExitOK, "add", "page", "gated 1", "gated 2", "more 1", "more 2", "more 3", "more 4", "more 5")
		open := w.atWork()
		m.until("it has claimed ahead", func() bool { return m.count("state:leased") == 6 })
		w.signal(syscall.SIGTERM)
		m.until("what is not begun is handed back", func() bool { return m.count("state:leased") == 2 })
		open.Close()
		m.until("what ran is done", func() bool {
			if again, err := os.OpenFile(w.gate, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				again.Close() // the second gated item had not reached the gate
			}
			return m.count("key:gated* state:done") == 2
		})
		w.endsWell()
		if n := m.count("key:more* state:ready"); n != 5 {
			t.Errorf("%d items are handed back", n)
		}
		for effect, n := range lines(t, w.effects, "done") {
			if n != 1 || strings.HasPrefix(effect, "more") {
				t.Errorf("%s: %d times", effect, n)
			}
		}
	})
}

// After a claim without an answer, a worker gets the items that were leased by it.
func TestClientLostClaim(t *testing.T) {
	onClients(t, func(t *testing.T, m *machine, c client, base string) {
		m.run(failure.ExitOK, "add", "page", "gated 1", "gated 2")
		at, err := url.Parse(strings.TrimSuffix(base, "/x/y/api/v1"))
		must.OK(t, err)
		var loses atomic.Bool
		lossy := httputil.NewSingleHostReverseProxy(at)
		lossy.ModifyResponse = func(res *http.Response) error {
			text, err := io.ReadAll(res.Body)
			if strings.HasSuffix(res.Request.URL.Path, "/claims") && strings.Contains(string(text), `"token"`) &&
				loses.CompareAndSwap(true, false) {
				err = errors.New("lost")
			}
			res.Body = io.NopCloser(bytes.NewReader(text))
			return err
		}
		lossy.ErrorLog = log.New(io.Discard, "", 0)
		server := httptest.NewServer(lossy)
		defer server.Close()
		w := m.worker(c, server.URL+"/x/y/api/v1", 3, 0, 3600)
		m.until("both are leased", func() bool { return m.count("state:leased") == 2 })
		open := w.atWork()
		loses.Store(true)
		m.run(failure.ExitOK, "add", "page", "lost")
		m.until("it is worked", func() bool { return m.count("key:lost state:done") == 1 })
		w.signal(syscall.SIGTERM)
		open.Close()
		m.until("what ran is done", func() bool {
			if again, err := os.OpenFile(w.gate, os.O_WRONLY|syscall.O_NONBLOCK, 0); err == nil {
				again.Close()
			}
			return m.count("state:done") == 3
		})
		w.endsWell()
	})
}

// A worker that was frozen past its lease stops its work on the item, does not end the lease of another agent, and
// continues.
func TestClientFrozen(t *testing.T) {
	onClients(t, func(t *testing.T, m *machine, c client, base string) {
		w := m.worker(c, base, 1, 0, 3)
		m.run(failure.ExitOK, "add", "page", "gated")
		open := w.atWork()
		w.signal(syscall.SIGSTOP)
		m.until("another agent has the item", func() bool {
			return strings.Contains(m.run(failure.ExitOK, "claim", "page", "--agent", "other", "-o", "json"), "gated")
		})
		w.signal(syscall.SIGCONT)
		open.Close()
		m.until("it stops its work", func() bool { return strings.Contains(w.stdout.String(), "stopped gated") })
		m.run(failure.ExitOK, "add", "page", "next")
		m.until("it goes on", func() bool { return m.count("key:next state:done") == 1 })
		m.run(failure.ExitOK, "finish", "gated", "--agent", "other", "--outcome", "skipped")
		w.signal(syscall.SIGTERM)
		w.endsWell()
		if done := lines(t, w.effects, "done"); !maps.Equal(done, map[string]int{"next": 1}) {
			t.Errorf("effects: %v", done)
		}
	})
}

// A worker is killed, and then the server is killed under a second worker: no item is lost, and none is done twice.
func TestClientKilled(t *testing.T) {
	onClients(t, func(t *testing.T, m *machine, c client, _ string) {
		server, base := m.api("--auth", "none", "--prefix", "/x/y")
		var keys []string
		for i := range 40 {
			keys = append(keys, fmt.Sprintf("item %02d", i))
		}
		m.run(failure.ExitOK, append([]string{"add", "page", "gated"}, keys...)...)
		killed := m.worker(c, base, 1, 8, 3)
		killed.atWork()
		killed.signal(syscall.SIGKILL)
		<-killed.done
		w := m.worker(c, base, 4, 8, 60)
		open := w.atWork()
		must.OK(t, server.Process.Kill())
		<-server.done
		open.Close() // the handler finishes, but the server cannot answer
		address := strings.TrimSuffix(strings.TrimPrefix(base, "http://"), "/x/y/api/v1")
		m.api("--auth", "none", "--prefix", "/x/y", "--listen", address)
		m.until("all are done", func() bool { return m.count("state:done") == len(keys)+1 })
		w.signal(syscall.SIGTERM)
		w.endsWell()
		done := lines(t, w.effects, "done")
		for _, key := range append(slices.Clone(keys), "gated") {
			if done[key] != 1 {
				t.Errorf("%s: done %d times", key, done[key])
			}
		}
	})
}
