//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
)

// httpWorker is a worker of docs/http-workers.md, with some text replaced.
func (m *machine) httpWorker(interpreter, name, base string, replace ...string) *started {
	m.t.Helper()
	page, err := os.ReadFile("../../docs/http-workers.md")
	must.OK(m.t, err)
	found := regexp.MustCompile("(?s)```[a-z]+ " + regexp.QuoteMeta(name) + "\n(.*?)```").FindSubmatch(page)
	if found == nil || strings.Count(string(found[1]), "\n") > 30 {
		m.t.Fatalf("docs/http-workers.md has no %s, or it has more than 30 lines", name)
	}
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(string(found[1]), replace[i]) {
			m.t.Fatalf("%s has no %q", name, replace[i])
		}
	}
	script := filepath.Join(m.t.TempDir(), name)
	text := strings.NewReplacer(replace...).Replace(string(found[1]))
	must.OK(m.t, os.WriteFile(script, []byte(text), 0o600))
	cmd := exec.Command(interpreter, script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // to freeze it together with the processes that it has started
	env := m.env
	m.env = append(env, "LEDGERD_URL="+base)
	defer func() { m.env = env }()
	p := m.launch(cmd)
	m.t.Cleanup(func() { _ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) })
	return p
}

// httpWorkers are the workers of the page, with a change by which each waits for the file $GATE while it works.
var httpWorkers = []struct{ interpreter, name, lease, short, work, gated string }{
	{"python3", "worker.py", "LEASE, AGENT = 60", "LEASE, AGENT = 2", `    return {"length"`, "    open(os.environ[\"GATE\"]).read()\n    return {\"length\""},
	{"sh", "worker.sh", "lease=60", "lease=3", `work() { `, `work() { cat "$GATE"; `},
}

// The workers of docs/http-workers.md work the existing items and those that are added while they wait. A worker that
// was frozen past its lease does not end the lease of another agent, gets the name of that agent, and continues.
func TestHTTPWorkers(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "article", "--input", "line")
		server, base := m.api("--auth", "none")
		for _, w := range httpWorkers {
			m.run(failure.ExitOK, "add", "article", w.name+" one", w.name+" two")
			p := m.httpWorker(w.interpreter, w.name, base)
			m.untilDone(2, w.name)
			m.run(failure.ExitOK, "add", "article", w.name+" three")
			m.untilDone(3, w.name)
			out := m.run(failure.ExitOK, "ls", "--where", "key:"+w.name+"*", "--columns", "output", "-o", "jsonl")
			if strings.Count(out, fmt.Sprint(len(w.name+" one"))) != 2 {
				t.Errorf("%s: the outputs: %s", w.name, out)
			}
			m.drain(base, p)
			m.frozen(w.interpreter, w.name, base, w.lease, w.short, w.work, w.gated)
		}
		m.stop(server, syscall.SIGTERM, failure.ExitOK)
		m.run(failure.ExitOK, "db", "verify")
	})
}

// drain asks a waiting worker to end, and waits for its end.
func (m *machine) drain(base string, p *started) {
	m.t.Helper()
	host, err := os.Hostname()
	must.OK(m.t, err)
	body := fmt.Sprintf(`{"agent":"%s/%d","drain":true}`, host, p.Process.Pid)
	resp, err := http.Post(base+"/agents/drain", "application/json", strings.NewReader(body))
	must.OK(m.t, err)
	resp.Body.Close()
	if code := m.exit(p); resp.StatusCode != http.StatusOK || code != failure.ExitOK {
		m.t.Errorf("drained with %s, the worker ends with exit %d: %s", resp.Status, code, p.stderr.String())
	}
}

// untilDone waits until so many items of a worker are done.
func (m *machine) untilDone(n int, prefix string) {
	m.t.Helper()
	m.until(fmt.Sprintf("%d items of %s are done", n, prefix), func() bool {
		return m.count("state:done key:"+prefix+"*") == n
	})
}

// frozen freezes a worker while it works, until another agent has its item.
func (m *machine) frozen(interpreter, name, base string, replace ...string) {
	t := m.t
	gate := filepath.Join(t.TempDir(), "gate")
	must.OK(t, syscall.Mkfifo(gate, 0o600))
	m.run(failure.ExitOK, "add", "article", name+" frozen")
	env := m.env
	m.env = append(env, "GATE="+gate)
	p := m.httpWorker(interpreter, name, base, replace...)
	m.env = env
	var open *os.File
	m.until("the worker is at work", func() (at bool) {
		var err error
		open, err = os.OpenFile(gate, os.O_WRONLY|syscall.O_NONBLOCK, 0) // it fails while no handler reads
		return err == nil
	})
	must.OK(t, syscall.Kill(-p.Process.Pid, syscall.SIGSTOP))
	m.until("another agent has the item", func() bool {
		return strings.Contains(m.run(failure.ExitOK, "claim", "article", "--agent", "other", "-o", "json"), name+" frozen")
	})
	must.OK(t, syscall.Kill(-p.Process.Pid, syscall.SIGCONT))
	open.Close()
	m.until("it is told who has the item", func() bool {
		return strings.Contains(p.stdout.String(), "agent other holds item")
	})
	m.run(failure.ExitOK, "finish", name+" frozen", "--agent", "other", "--outcome", "skipped")
	shown := m.show(name + " frozen")
	n := len(shown.Attempts)
	if n < 2 || shown.Attempts[n-1].Agent != "other" || shown.Attempts[n-1].Outcome != "skipped" {
		t.Errorf("the attempts: %+v", shown.Attempts)
	}
	_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// Of four daemons the one that reads the source is killed and another one is frozen. New files of the sources are still
// found and worked, and each item is done once.
func TestServeTogether(t *testing.T) {
	onPostgres(t, func(t *testing.T, m *machine) {
		s := m.site(base + `
[[source]]
name = "orders"
type = "list"
kind = "effect"
path = "DIR/orders"
schedule = "1s"
[[source]]
name = "broken"
type = "list"
kind = "effect"
path = "DIR/missing"
schedule = "1s"
`)
		s.list("orders", 300)
		team := []*started{s.daemon(), s.daemon(), s.daemon(), s.daemon()}
		s.until("work has begun", func() bool { return s.done("effect") > 0 })
		victim := -1
		s.until("one looks", func() bool {
			for i, p := range team {
				if s.looks(p, "orders") {
					victim = i
				}
			}
			return victim >= 0
		})
		s.signal(team[victim], syscall.SIGKILL)
		<-team[victim].done
		frozen := team[(victim+1)%4]
		s.signal(frozen, syscall.SIGSTOP)
		s.list("orders", 600)
		s.until("all are done", func() bool { return s.done("effect") == 600 })
		s.signal(frozen, syscall.SIGCONT)
		for i, p := range team {
			if i == victim {
				continue
			}
			s.stop(p, syscall.SIGTERM, failure.ExitOK)
			itemLines(t, p)
		}
		if done := s.done("effect"); done != 600 {
			t.Errorf("%d are done, want 600", done)
		}
		s.run(failure.ExitOK, "db", "verify")
	})
}
