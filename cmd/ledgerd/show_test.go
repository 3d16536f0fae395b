package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/cli/app"
	"github.com/ledgerd/ledgerd/internal/failure"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/act"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// ledger opens the machine's ledger in this process; it makes one if there is none.
func (m *machine) ledger() *ledger.Ledger {
	m.t.Helper()
	var out bytes.Buffer
	at, err := app.ParseAddress(m.db, "test")
	must.OK(m.t, err)
	l, err := testApp(&out).OpenAt(m.t.Context(), at, app.ToMake)
	must.OK(m.t, err)
	m.t.Cleanup(func() { l.Close() })
	return l.Ledger
}

// situation is an item, and the reason that show has for it: its code, a part of its text, and of its next step.
type situation struct {
	code, text, next string
	key              string
}

var situations = []situation{
	{"due", "It is due at ", "", "later"},
	{"next", "It recurs (every day); its round ", "", "daily"},
	{"paused", "Its kind held is paused by ", "ledgerd kind resume held", "stopped"},
	{"leased", "ann works on it (attempt 1) since ", "", "taken"},
	{"leased", "is not heard of since ", "ledgerd work --kind silent, or ledgerd finish -y --outcome released --where " +
		"agent:host/9/silent --force", "left"},
	{"backoff", "Attempt 1 failed (slow); it is tried again at ", "ledgerd retry ", "tried"},
	{"dead", "It is dead after 1 failure; the last error: no such page", "ledgerd retry ", "hopeless"},
	{"doubt", "Attempt 1 may or may not have taken effect (unknown); a person decides.", "ledgerd retry ", "unsure"},
	{"done", "It was done in attempt 1 at ", "", "finished"},
	{"cancelled", "It was cancelled by ", " --again", "withdrawn"},
	{"no_worker", "It is ready, but no agent works kind people now.", "ledgerd claim people --agent YOU", "page 1"},
	{"no_plugin", "its plugin vanished is not on this machine", "ledgerd plugin ls", "lost"},
	{"shard", "but no agent works its shard ", "ledgerd work --kind parts --shard ", "part"},
	{"breaker", "the plugin of kind broken crashes again and again where it is worked (host/7/b)",
		"ledgerd errors --where kind:broken", "crash"},
	{"max_running", "It is ready, but 1 item of kind few is leased and no more than 1 may be.",
		"ledgerd kind set few --max-running N", "crowded"},
	{"max_running", "but 1 item of kind desks is leased for its shard key desk-1 and no more than 1 may be.",
		"ledgerd kind set desks --max-running-per-shard-key N", "in line"},
	{"rate", "It is ready, but the rate of kind slow is 1/h; the next one may begin at ",
		"ledgerd kind set slow --rate RATE", "slowed"},
	{"rate", "the rate of kind hosts for its shard key host-1 is 1/h; the next one may begin at ",
		"ledgerd kind set hosts --rate-per-shard-key RATE", "polite"},
	{"behind", "It is ready, behind 1 other of its kind; host/7/a works this kind.", "", "second"},
}

var zoned = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [-+A-Z0-9]+`)

// Each code of a reason can be reached, has a sentence that names its subject, and has the command that helps, if there
// is one.
func TestWhyInEverySituation(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		l := m.ledger()
		m.run(failure.ExitOK, "kind", "set", "page")
		m.run(failure.ExitOK, "kind", "set", "held")
		m.run(failure.ExitOK, "kind", "set", "people")
		m.run(failure.ExitOK, "kind", "set", "gone", "--plugin", "vanished")
		add := func(kind string, keys ...string) {
			t.Helper()
			m.run(failure.ExitOK, append([]string{"add", kind, "-q"}, keys...)...)
		}
		take := func(key string) *ledger.Lease {
			t.Helper()
			add("page", key)
			leases, err := l.Claim(t.Context(), ledger.Claim{Kind: "page", Agent: "ann", Limit: 1, TTL: time.Hour})
			if err != nil || len(leases) != 1 || leases[0].Key != key {
				t.Fatalf("%v, %v", leases, err)
			}
			return leases[0]
		}
		end := func(key string, res ledger.Result) {
			t.Helper()
			if errs := l.Finish(t.Context(), ledger.Ending{Lease: take(key), Result: res}); errs[0] != nil {
				t.Fatal(errs[0])
			}
		}
		end("tried", ledger.Result{Outcome: ledger.OutcomeFailed, Code: "slow", Error: "took too long", Delay: time.Hour})
		end("hopeless", ledger.Result{Outcome: ledger.OutcomeFailed, Final: true, Code: "http_404", Error: "no such page"})
		end("unsure", ledger.Result{Outcome: ledger.OutcomeUnknown, Error: "the printer went away"})
		end("finished", ledger.Done(nil))
		add("page", "withdrawn")
		m.run(failure.ExitOK, "cancel", "withdrawn")
		add("page", "taken")
		held, err := l.Claim(t.Context(), ledger.Claim{Kind: "page", Agent: "ann", Limit: 1, TTL: time.Hour})
		if err != nil || len(held) != 1 {
			t.Fatalf("%d leases, %v", len(held), err)
		}
		m.silent("silent", "left")
		add("page", "later", "--due", "2h")
		add("page", "daily", "--every", "day", "--due", "2h")
		add("held", "stopped")
		m.run(failure.ExitOK, "kind", "pause", "held")
		add("people", "page 1")
		add("gone", "lost")
		for _, it := range []ledger.NewItem{{Kind: "parts", Key: "part"}, {Kind: "broken", Key: "crash"},
			{Kind: "busy", Key: "first"}, {Kind: "busy", Key: "second"}} {
			must.Do(t)(l.Add(t.Context(), it))
		}
		part, err := l.Find(t.Context(), "parts", "", "part")
		must.OK(t, err)
		limited := map[string]string{}
		for _, k := range []struct{ kind, limit, value, shardKey, key string }{
			{"few", "--max-running", "1", "", "crowded"}, {"desks", "--max-running-per-shard-key", "1", "desk-1", "in line"},
			{"slow", "--rate", "1/h", "", "slowed"}, {"hosts", "--rate-per-shard-key", "1/h", "host-1", "polite"},
		} {
			limited[k.kind] = "x@1+a"
			m.run(failure.ExitOK, "kind", "set", k.kind, k.limit, k.value)
			first := ledger.NewItem{Kind: k.kind, Key: k.key + " first", ShardKey: k.shardKey, Priority: -1}
			must.Do(t)(l.Add(t.Context(), first, ledger.NewItem{Kind: k.kind, Key: k.key, ShardKey: k.shardKey}))
			if leases, err := l.Claim(t.Context(), ledger.Claim{Kind: k.kind, Agent: "ann", Limit: 2,
				TTL: time.Hour}); len(leases) != 1 || err != nil {
				t.Fatalf("%s: %v, %v", k.kind, leases, err)
			}
		}
		beat(t, l, ledger.Agent{Name: "host/7/l", Kinds: limited})
		beat(t, l, ledger.Agent{Name: "host/7/a", Kinds: map[string]string{"busy": "x@1+a"}})
		beat(t, l, ledger.Agent{Name: "host/7/c", Kinds: map[string]string{"parts": "x@1+a"},
			Shard: scheduler.Shard{Index: (part.Slot + 1) % 2, Count: 2}})
		stall(t, l, "host/7/b", "broken")

		codes := map[string]bool{}
		for _, s := range situations {
			var shown struct {
				Why struct {
					Code, Text, Next string
					Acts             []act.Act
				}
			}
			must.OK(t, json.Unmarshal([]byte(m.here(failure.ExitOK, "show", s.key, "-o", "json")), &shown))
			got := shown.Why
			if got.Code != s.code || !strings.Contains(got.Text, s.text) || (got.Next == "") != (s.next == "") ||
				!strings.Contains(got.Next, s.next) {
				t.Errorf("%s: %s %q next: %q, want %s %q next: %q", s.key, got.Code, got.Text, got.Next, s.code, s.text, s.next)
			}
			if words := app.Words(got.Acts...); words != strings.ReplaceAll(got.Next, " -y ", " ") {
				t.Errorf("%s: the acts %+v are %q, and next: is %q", s.key, got.Acts, words, got.Next)
			}
			// For people times are in the zone of the machine, without parts of a second.
			timeless := func(s string) string { return zoned.ReplaceAllString(s, "TIME") }
			if out := m.run(failure.ExitOK, "show", s.key); !strings.Contains(timeless(out), "\n"+timeless(got.Text)+"\n") {
				t.Errorf("for people: %q", out)
			}
			codes[s.code] = true
			defer m.tryHint(got.Next) // it may change the next situations
		}
		explained(t, codes, m.run(failure.ExitOK, "show", "--help"))
	})
}

// tryHint runs the commands of a hint. They must be correct and allowed.
func (m *machine) tryHint(next string) {
	m.t.Helper()
	for _, line := range strings.FieldsFunc(strings.ReplaceAll(next, ", or ", ","), func(r rune) bool {
		return r == ','
	}) {
		args := strings.Fields(strings.NewReplacer("YOU", "ann", "RATE", "5/s", " N", " 3").Replace(line))
		if args[0] != "ledgerd" {
			m.t.Errorf("%q is no command", line)
			continue
		}
		code, stderr := 0, ""
		if args = append(args[1:], "-y"); args[0] == "work" {
			p := m.start(append(args, "--drain", "--max-duration", "1s")...) // it ends by itself
			code, stderr = m.exit(p), p.stderr.String()
		} else {
			code, _, stderr = inProcess(m.t.Context(), m.config, args)
		}
		if code == failure.ExitUsage && !strings.Contains(stderr, "has no plugin here") {
			m.t.Errorf("the hint %q: exit %d\n%s", line, code, stderr)
		}
	}
}

// explained checks that the help explains the codes.
func explained(t *testing.T, codes map[string]bool, help string) {
	t.Helper()
	for _, code := range slices.Sorted(maps.Keys(codes)) {
		if !strings.Contains(help, code) {
			t.Errorf("the help does not know %s", code)
		}
	}
}

func beat(t testing.TB, l *ledger.Ledger, a ledger.Agent) {
	t.Helper()
	must.OK(t, l.Beat(t.Context(), a, 10*time.Minute))
}

// stall makes an agent report that the plugin of a kind crashes again and again.
func stall(t testing.TB, l *ledger.Ledger, agent, kind string) {
	t.Helper()
	beat(t, l, ledger.Agent{Name: agent, Kinds: map[string]string{kind: "x@1+a"},
		Stalled: map[string]time.Time{kind: time.Now().Add(5 * time.Minute)}})
}

// agents and doctor name the agent whose plugin crashes again and again, and doctor names the agent whose clock is
// wrong.
func TestBreakerIsTold(t *testing.T) {
	onFile(t, func(t *testing.T, m *machine) {
		l := m.ledger()
		stall(t, l, "host/7/b", "broken")
		beat(t, l, ledger.Agent{Name: "host/7/c", Kinds: map[string]string{"broken": ""},
			Stalled: map[string]time.Time{"broken": time.Now().Add(-time.Minute)}})
		beat(t, l, ledger.Agent{Name: "late/1/d", Skew: -3500 * time.Millisecond})
		var agents []struct{ Stalled []string }
		must.OK(t, json.Unmarshal([]byte(m.run(failure.ExitOK, "agents", "-o", "json")), &agents))
		if len(agents) != 3 || !slices.Equal(agents[0].Stalled, []string{"broken"}) || len(agents[1].Stalled) != 0 {
			t.Errorf("%+v", agents)
		}
		doctor := m.start("doctor")
		m.exit(doctor) // it may fail: a Postgres for tests does not wait for its disk
		if out := doctor.stdout.String(); strings.Count(out, "crashes again and again") != 1 ||
			!strings.Contains(out, "the plugin of kind broken crashes again and again on host/7/b\n") {
			t.Error(out)
		} else if !strings.Contains(out, "late/1/d: its clock is 3.5s behind the database's") ||
			strings.Count(out, "its clock is ") != 1 {
			t.Error(out)
		}
	})
}
