package main

import (
	"encoding/json"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/work"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/internal/report"
	"github.com/ledgerd/ledgerd/internal/runner"
	"github.com/ledgerd/ledgerd/ledger"
)

// silent makes a program of another machine claim an item and then send no heartbeat.
func (m *machine) silent(kind, key string) {
	m.t.Helper()
	l := m.ledger()
	must.Do(m.t)(l.Add(m.t.Context(), ledger.NewItem{Kind: kind, Key: key}))
	held, err := l.Claim(m.t.Context(), ledger.Claim{Kind: kind, Agent: "host/9/silent", Limit: 1, TTL: time.Hour})
	if err != nil || len(held) != 1 {
		m.t.Fatalf("%v, %v", held, err)
	}
	must.OK(m.t, l.Beat(m.t.Context(), ledger.Agent{Name: "host/9/silent", Host: "elsewhere"}, time.Millisecond))
	m.until("its heartbeat has run out", func() bool {
		agents, err := l.Agents(m.t.Context())
		return err == nil && len(agents) == 0
	})
}

// A command that waits without work of its own prints what it waits for, meanwhile and at its end, with advice.
func TestWaitsAreTold(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "add", "effect", "a")
		m.silent("effect", "a")
		const free = "ledgerd finish -y --outcome released --where agent:host/9/silent --force"
		if out := m.run(failure.ExitOK, "agents", "-o", "csv", "--columns", "agent,host,held"); !strings.Contains(out,
			"host/9/silent,elsewhere,1\n") {
			t.Errorf("a program that is gone keeps its host: %s", out)
		}
		p := m.start("run", "effect", "a", "--wait", "5s", "--progress", "json")
		m.ends(p, failure.ExitUnfinished)
		for _, want := range []string{"waits for 1 item that host/9/silent holds until ", "(not heard of since ",
			"free them: " + free} {
			if out := p.stdout.String(); !strings.Contains(out, want) {
				t.Errorf("%q is not in %s", want, out)
			}
			if out := p.stderr.String(); !strings.Contains(out, want) {
				t.Errorf("%q is not in the progress %s", want, out)
			}
		}
		drain := m.start("work", "--kind", "effect", "--drain", "--max-duration", "4s", "--progress", "json")
		m.exit(drain)
		if out := drain.stderr.String(); !strings.Contains(out, "free them: "+free) {
			t.Errorf("the progress of work: %s", out)
		}
		if out := drain.stdout.String(); !strings.Contains(out, "free them: "+free) {
			t.Errorf("the end of work: %s", out)
		}
		m.run(failure.ExitOK, append(strings.Fields(free)[1:], "-y")...)
		m.run(failure.ExitOK, "run", "effect", "a")
	})
}

// If all open items are put off, the progress shows until when and why.
func TestPutOffIsTold(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		l := m.ledger()
		must.Do(t)(l.Add(t.Context(), ledger.NewItem{Kind: "k", Key: "a"}))
		line := func() string {
			w := &runner.Waits{Ledger: l, Kinds: []string{"k"}, Take: func(ledger.Item) bool {
				return true
			}, Mine: func(agent string) bool { return agent == "me" }}
			return (&work.WaitsLine{Waits: w}).Text()
		}
		if got := line(); got != "" {
			t.Errorf("an item is ready: %s", got)
		}
		held, err := l.Claim(t.Context(), ledger.Claim{Kind: "k", Agent: "me", Limit: 1})
		if err != nil || len(held) != 1 {
			t.Fatalf("%v, %v", held, err)
		}
		if got := line(); got != "" {
			t.Errorf("it works itself: %s", got)
		}
		must.OK(t, l.Finish(t.Context(), ledger.Ending{Lease: held[0], Result: ledger.RetryAfter(time.Hour,
			errors.New("the host is busy"))})[0])
		if got := line(); !strings.HasPrefix(got, "the next is due ") ||
			!strings.HasSuffix(got, "; the last that was put off: the host is busy") {
			t.Errorf("put off: %s", got)
		}
	})
}

// A run that leaves items waiting prints why they failed, when they are due and which command tries them sooner.
func TestWaitingFailuresAreTold(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		m.run(failure.ExitOK, "db", "migrate")
		m.run(failure.ExitOK, "kind", "set", "effect", "--backoff-base", "2h", "--backoff-cap", "2h")
		run := []string{"run", "effect", "one thing", "two things", "--set", "how=error", "--wait", "0s"}
		out := m.run(failure.ExitUnfinished, run...)
		for _, want := range []string{"waiting 2", "failed, and tried again later, the first at ", "2 ×  odd",
			"ledgerd retry -y --where 'kind:effect state:waiting'"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in %s", want, out)
			}
		}
		m.run(failure.ExitOK, "retry", "--where", "kind:effect state:waiting", "-y")
		if n := m.count("state:ready"); n != 2 {
			t.Errorf("%d are ready", n)
		}
		var sum struct{ Failing, Failures []report.Failure }
		must.OK(t, json.Unmarshal([]byte(m.run(failure.ExitUnfinished, append(run, "-o", "json")...)), &sum))
		if len(sum.Failing) != 1 || sum.Failing[0].Code != "odd" || sum.Failing[0].Count != 2 || len(sum.Failures) != 0 {
			t.Errorf("failing %+v, failures %+v", sum.Failing, sum.Failures)
		}
	})
}

// A worker that has no work at its start prints what it waits for.
func TestIdleWorkerSaysSo(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		idle := func(want string, args ...string) {
			t.Helper()
			p := m.start(append([]string{"work"}, args...)...)
			m.until("it prints what it waits for", func() bool { return strings.Contains(p.stderr.String(), want) })
			must.OK(t, p.Process.Signal(syscall.SIGTERM))
			m.exit(p)
		}
		const ends = " (Ctrl-C ends it; --drain ends by itself)\n"
		idle("no kinds to work yet; waits for kinds" + ends)
		m.run(failure.ExitOK, "run", "effect", "a")
		idle("working kinds effect: nothing to do now; waits for new items" + ends)
		m.run(failure.ExitOK, "add", "effect", "later", "--due", "2h")
		idle("working kinds effect: nothing to do now, the next is due ", "--kind", "effect")
	})
}
