package ui_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/health"
	"github.com/ledgerd/ledgerd/ledger/locks"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
	"github.com/ledgerd/ledgerd/ledger/stats"
	"github.com/ledgerd/ledgerd/ui"
)

// claim lets an agent have an item of the kind k.
func (b *browser) claim(agent string) *ledger.Lease {
	b.t.Helper()
	got, err := b.l.Claim(b.t.Context(), ledger.Claim{Kind: "k", Agent: agent, Limit: 1})
	if err != nil || len(got) != 1 {
		b.t.Fatal(len(got), err)
	}
	return got[0]
}

// add adds an item of the kind k.
func (b *browser) add(n ledger.NewItem) {
	b.t.Helper()
	n.Kind = "k"
	must.Do(b.t)(b.l.Add(b.t.Context(), n))
}

// finish ends an attempt.
func (b *browser) finish(l *ledger.Lease, r ledger.Result) {
	b.t.Helper()
	for _, err := range b.l.Finish(b.t.Context(), ledger.Ending{Lease: l, Result: r}) {
		must.OK(b.t, err)
	}
}

// TestLeases: leases that were lost and taken over are drawn and counted, beside those that are done, put back or in
// force.
func TestLeases(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.sees("/leases", "Nothing is leased now, and nothing was in the last hour.")
	b.ahead.Store(int64(-30 * time.Minute))
	b.add(ledger.NewItem{Key: "a<b"})
	b.claim("first")
	b.ahead.Add(int64(10 * time.Minute)) // longer than the lease
	if n, err := b.l.Expire(t.Context(), 10); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	b.ahead.Add(int64(10 * time.Minute)) // longer than any delay
	second := b.claim("second")
	b.sees("/leases", "No item had two holders at a time", "1 lease is in force, 1 was lost and 1 taken over",
		`<rect class="b-lost"`, `<rect class="b-open"`, `<line class="jump"`, "a&lt;b: lost by first, taken by second",
		`<a href="/items/1">a&lt;b</a>`)
	b.finish(second, ledger.Result{Outcome: ledger.OutcomeDone})
	b.add(ledger.NewItem{Key: "c"})
	b.finish(b.claim("second"), ledger.Release())
	b.sees("/leases?range=15m", "Nothing is leased now", `<rect class="b-done"`, "c, attempt 1: released")
	// In the key of the chart, positions are no percentages.
	if _, text := b.get("/leases?range=15m"); !regexp.MustCompile(`"b-other" x="[0-9.]+%"`).MatchString(text) {
		t.Errorf("no bar shows the lease that was put back:\n%s", text)
	}
	b.sees("/leases?range=never", "1 was lost")
}

// TestWork: a kind whose items wait far longer than the work takes gets the advice more workers. If the work takes far
// longer, it is a faster plugin; without a program it is a program; without a plugin it is the desk.
func TestWork(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	empty := newBrowser(t, "", access.Read) // another one: counts are kept for a moment
	empty.get("/login?code=" + empty.login.Code(empty.token))
	empty.sees("/work", "This ledger is empty")
	for _, kind := range []string{"busy", "slow", "quick", "late", "alone"} {
		must.Do(t)(b.l.Add(t.Context(), ledger.NewItem{Kind: kind, Key: "a"}))
	}
	must.OK(t, b.l.SetKind(t.Context(), "test", ledger.Kind{Name: "stopped", Plugin: "exec"}))
	must.Do(t)(b.l.Add(t.Context(), ledger.NewItem{Kind: "stopped", Key: "a"}))
	w := ledger.Agent{Name: "w", Kinds: map[string]string{"busy": "", "slow": "", "quick": "", "late": ""}}
	must.OK(t, b.l.Beat(t.Context(), w, time.Minute))
	for kind, d := range map[string][2]time.Duration{"busy": {time.Hour, time.Second},
		"slow": {time.Millisecond, time.Minute}, "quick": {time.Millisecond, time.Millisecond},
		"late": {5 * time.Hour, time.Second}} {
		m := stats.Minute{At: time.Now().Truncate(time.Minute), Kind: kind, Agent: "w", Done: 1}
		m.Waits.Count(d[0])
		m.Works.Count(d[1])
		must.OK(t, b.l.AddTallies(t.Context(), m))
	}
	b.sees("/", "<b>alone</b> 1 item waits for people.", "<b>stopped</b> 1 item waits, and no program works this kind.")
	b.sees("/work", "stopped waits, and no program works it.",
		`alone waits for people: <a href="/desk">decide at the Desk</a>`, "or by ledgerd claim alone",
		"busy, late want more workers.", "&gt; 4 h 39 min</td>",
		"slow wants a faster plugin.",
		"<b>Fine.</b>", "≤ 4 ms</td>")
	b.sees("/work?kind=busy", `<a href="/work?kind=busy" aria-current="true">busy</a>`, "<b>How long busy waited</b>",
		": 1 attempt, &lt; 1 h 09 min</title>", "As a table")
	if _, text := empty.get("/work?kind=busy"); strings.Contains(text, "<h2>Waits") {
		t.Errorf("nothing waited, and yet it is shown:\n%s", text)
	}
}

// TestToday: attempts of the last hour are drawn, programs that are gone and plugins that do not run are named, and the
// page does not change while nothing happens.
func TestToday(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.ahead.Store(int64(time.Until(time.Now().Truncate(time.Minute)))) // no minute ends soon
	b.add(ledger.NewItem{Key: "a"})
	m := stats.Minute{At: time.Now().Add(-10 * time.Minute).Truncate(time.Minute), Kind: "k", Agent: "w",
		Done: 40, Failed: 2} // one is left
	must.OK(t, b.l.AddTallies(t.Context(), m))
	until := time.Now().Add(time.Hour)
	w := ledger.Agent{Name: "w", Host: "east", Kinds: map[string]string{"k": "", "p": ""},
		Stalled: map[string]time.Time{"k": until, "p": until},
		Plugins: map[string]health.Plugin{"k": {State: "crashing"},
			"p": {State: "absent", Code: "not_started", Error: "no such program"}}}
	must.OK(t, b.l.Beat(t.Context(), w, time.Minute))
	b.sees("/", "Nothing needs you.", "40 done, 2 failed", ": 41 left</title>", ": 1 left</title>",
		`<rect class="b-done"`, `<rect class="b-failed"`,
		"crashes again and again on east", "does not start on east", "no such program")
	_, before := b.get("/")
	if _, after := b.get("/"); after != before {
		t.Errorf("the page has changed:\n%s\n%s", before, after)
	}
	b.claim("w")
	b.ahead.Add(int64(30 * time.Minute)) // longer than the sign of life
	b.sees("/", "<b>w</b> was last heard of at", "holds 1 item.")
}

// TestMachines: the page lists programs, also those that are gone, people, and plugins, those that do not run first.
func TestMachines(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.sees("/machines", "No program works this ledger now")
	b.add(ledger.NewItem{Key: "a"})
	b.add(ledger.NewItem{Key: "b"})
	at := time.Now()
	for name, kind := range map[string]string{"east-1": "k", "west-1": "p"} {
		w := ledger.Agent{Name: name, Host: name[:4], PID: 7, Kinds: map[string]string{kind: ""},
			Plugins: map[string]health.Plugin{"k": {State: "running", Version: "1.2", RSS: 5 << 20}}}
		if kind == "p" {
			w.Stalled = map[string]time.Time{"p": at.Add(time.Hour)}
			w.Plugins = map[string]health.Plugin{"p": {State: "crashing", Restarts: 4, Code: "crashed",
				Error: "plugin process 7 exited with <1>", ErrorAt: at}}
		}
		must.OK(t, b.l.Beat(t.Context(), w, time.Hour))
	}
	b.claim("bob")
	b.sees("/machines", `<a href="/items?where=agent%3A%22bob%22">1</a>`, "2 programs are at work, 1 person holds items; 1 plugin does not run.", "a person", "5 MiB",
		"crashing</span>", "<code>crashed</code>", "exited with &lt;1&gt;", `<td class="n">4</td>`, `<td class="n opt2">0 ms</td>`)
	if _, text := b.get("/machines"); strings.Index(text, "crashing</span>") > strings.Index(text, "running</span>") {
		t.Errorf("what runs comes first:\n%s", text)
	}
	b.claim("east-1")
	b.ahead.Add(int64(2 * time.Hour))
	b.sees("/machines", "0 programs are at work, 1 person holds items; 2 programs are gone, with 1 lease.")
}

// TestLimits: the page has the limits of kinds, the items that use them, and the holders of locks.
func TestLimits(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.sees("/limits", "No lock is held.", "No kind has a limit.", "No kind is known to wait for its limit.")
	k := ledger.Kind{Name: "k", Limits: scheduler.Limits{MaxRunning: 1, MaxRunningPerShardKey: 1}}
	must.OK(t, b.l.SetKind(t.Context(), "test", k))
	b.add(ledger.NewItem{Key: "a", ShardKey: "acme & co"})
	b.add(ledger.NewItem{Key: "b\"1\""})
	b.claim("w")
	manager := locks.New(b.l)
	_, held, err := manager.Acquire(t.Context(), "deploy<1>", locks.Options{Holder: "ann"})
	must.OK(t, err)
	b.sees("/limits", "k waits for a limit", "as many run as may", "when one that is leased has ended",
		`href="/items?where=shard_key%3A%22acme&#43;%26&#43;co%22">acme &amp; co</a>`, "ready, by shard key", `<td class="k">b&#34;1&#34;</td>`,
		"1 lock is held.", "deploy&lt;1&gt;", "<td>ann</td>")
	b.sees(`/items?where=shard_key:"acme+%26+co"`, "<b>1 item matches</b>")
	must.OK(t, manager.Release(t.Context(), held))
	b.sees("/limits", "No lock is held.")
}

// TestRounds: each round of a recurring item is drawn, and those that failed are listed.
func TestRounds(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.sees("/rounds", "No round of a recurring item ended in the last 7 days.")
	must.OK(t, b.l.SetKind(t.Context(), "test", ledger.Kind{Name: "k", MaxFailures: 1}))
	b.ahead.Store(int64(-50 * time.Hour))
	b.add(ledger.NewItem{Key: "a<b", Every: "day", Zone: "UTC"})
	for _, r := range []ledger.Result{{Outcome: ledger.OutcomeDone},
		{Outcome: ledger.OutcomeFailed, Code: "bad", Error: "bad", Final: true}} {
		must.Do(t)(b.l.Promote(t.Context(), 10))
		b.finish(b.claim("w"), r)
		b.ahead.Add(int64(24 * time.Hour))
	}
	b.sees("/rounds", "1 round failed.", "1 round was done, of 1 item.", `<rect class="b-done"`, `<rect class="b-failed"`,
		"every day: a&lt;b", "<code>bad</code>")
	b.sees("/rounds?range=30d", "1 round failed.")
	b.sees("/rounds?range=24h", "No round of a recurring item ended in the last 24 hours.")
}

// TestLastRounds: a user without any right to act sees the counts of the last round of each kind and scope, and the
// changes since the round before. A number is a link to its items.
func TestLastRounds(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	must.OK(t, b.l.SetKind(t.Context(), "test", ledger.Kind{Name: "k", MaxFailures: 1}))
	done, failed := ledger.Result{Outcome: ledger.OutcomeDone},
		ledger.Result{Outcome: ledger.OutcomeFailed, Code: "bad", Error: "bad", Final: true}
	days := map[string][2]ledger.Result{"always": {failed, failed}, "broken": {done, failed}, "mended": {failed, done},
		"open": {done, {}}, "well": {done, done}}
	b.ahead.Store(int64(-26 * time.Hour))
	for key := range days {
		n := ledger.NewItem{Key: key, Every: "day", Zone: "UTC"}
		switch key {
		case "open":
			n.Scope = "s & t"
		case "well":
			n.Scope = `a,"b`
		}
		b.add(n)
	}
	for day := range 2 {
		must.Do(t)(b.l.Promote(t.Context(), 10))
		for range days {
			if ls := b.claim("w"); days[ls.Key][day].Outcome != "" {
				b.finish(ls, days[ls.Key][day])
			}
		}
		b.ahead.Store(int64(-2 * time.Hour))
	}
	b.sees("/rounds", "1 item newly failed and 1 recovered since the round before.",
		`<td class="n" data-name="done">1</td> <td class="n" data-name="failed">0</td>`, // no link: no filter for its scope
		`data-name="still open"><a href="/items?where=kind%3Ak&#43;scope%3A%22s&#43;%26&#43;t%22&#43;`+
			`round%3Aopen%2Cput_off%2Cdoubt">1</a>`,
		`<td class="any" data-name="scope">a,&#34;b</td>`, "ledgerd stats --by round --since 7d")
	_, text := b.get("/rounds")
	for name, keys := range map[string][]string{"done": {"mended"}, "failed": {"always", "broken"},
		"newly failed": {"broken"}, "recovered": {"mended"}} {
		found := regexp.MustCompile(`data-name="` + name + `"><a href="([^"]*scope%3A%22%22&#43;[^"]*)">(\d)</a>`).
			FindStringSubmatch(text)
		if found == nil || found[2] != fmt.Sprint(len(keys)) {
			t.Errorf("%s: %q in\n%s", name, found, text)
			continue
		}
		_, list := b.get(html.UnescapeString(found[1]))
		for key := range days {
			if strings.Contains(list, ">"+key+"</a>") != slices.Contains(keys, key) {
				t.Errorf("%s: %s in\n%s", name, key, list)
			}
		}
	}
	if strings.Contains(text, "<button name") {
		t.Errorf("somebody who may not act has a button:\n%s", text)
	}
}

// TestLeaseEnds: a lease that ends between the requests for leases in force and for ended leases is counted once.
func TestLeaseEnds(t *testing.T) {
	const lease = `{"item":1,"attempt":1,"kind":"k","key":"a","agent":"w","leased_at":"2026-11-20T10:00:00Z"`
	list := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end := "}"
		if r.URL.Query().Get("from") != "" {
			end = `,"outcome":"done","ended_at":"2026-11-20T10:00:01Z"}`
		}
		fmt.Fprintf(w, `{"items":[%s%s],"next":null}`, lease, end)
	})
	w := httptest.NewRecorder()
	ui.New(ui.Options{API: list}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/leases", nil))
	if text := oneLine(w.Body.String()); !strings.Contains(text, "No item had two holders at a time") ||
		strings.Contains(text, ": goes on from") {
		t.Errorf("it is two leases:\n%s", text)
	}
}

// TestOtherCauses: the entry for the rest of too many causes has a count, but no link and no act.
func TestOtherCauses(t *testing.T) {
	list := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/me":
			fmt.Fprint(w, `{"scopes":["read","operate"]}`)
		case "/api/v1/causes":
			fmt.Fprint(w, `{"whole":true,"items":[{"cause":"","message":"other causes","count":7},`+
				`{"cause":"x/boom","message":"boom","count":1}]}`)
		case "/api/v1/stats":
			fmt.Fprint(w, `{"kinds":[{"kind":"k","dead":8}]}`)
		default:
			fmt.Fprint(w, `{"items":[],"next":null}`)
		}
	})
	for at, want := range map[string]string{"/": "other causes", "/causes": "other causes", "/desk": "boom"} {
		w := httptest.NewRecorder()
		ui.New(ui.Options{API: list}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, at, nil))
		text := w.Body.String()
		if empty := regexp.MustCompile(`( |&#43;)cause(:|%3A)["&]`).FindString(text); empty != "" || !strings.Contains(text, want) ||
			!strings.Contains(text, "x%2Fboom") && !strings.Contains(text, "cause:x/boom") {
			t.Errorf("%s has %q in\n%s", at, empty, text)
		}
	}
}

// TestCutCauses: counts of causes that were not read to the end are lower bounds.
func TestCutCauses(t *testing.T) {
	list := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api/v1/me":
			fmt.Fprint(w, `{"scopes":["read","operate"]}`)
		case "/api/v1/causes":
			fmt.Fprint(w, `{"whole":false,"items":[{"cause":"x/boom","message":"boom","count":7}]}`)
		case "/api/v1/stats":
			fmt.Fprint(w, `{"kinds":[{"kind":"k","dead":8}]}`)
		default:
			fmt.Fprint(w, `{"items":[],"next":null}`)
		}
	})
	exact := regexp.MustCompile(`.{12}\b7( item|</td>| <| done).{9}`)
	for _, at := range []string{"/", "/causes", "/desk"} {
		w := httptest.NewRecorder()
		ui.New(ui.Options{API: list}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, at, nil))
		all := exact.FindAllString(oneLine(w.Body.String()), -1)
		if len(all) == 0 || slices.ContainsFunc(all, func(s string) bool { return !strings.Contains(s, "at least 7") }) {
			t.Errorf("%s: %q", at, all)
		}
	}
}

// TestMoreLeases: the next part of the leases has the same range, and does not count itself as all.
func TestMoreLeases(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	for i := range 101 {
		b.add(ledger.NewItem{Key: fmt.Sprint(i)})
		b.claim("w")
	}
	_, text := b.get("/leases?range=24h")
	more := regexp.MustCompile(`<a class="btn" href="(/leases[^"]*)" rel="next">`).FindStringSubmatch(text)
	if more == nil {
		t.Fatalf("there is no next part in\n%s", text)
	}
	b.sees(html.UnescapeString(more[1]), "More than 1 lease is in force", `aria-current="true">24 hours</a>`)
}

// TestPartsAreBounded: a page with a chart of a long list stops reading when its time is over, and shows that the chart
// is not of the whole list.
func TestPartsAreBounded(t *testing.T) {
	lease := `{"item":1,"kind":"k","key":"a","agent":"w","outcome":"done","leased_at":"2026-11-20T10:00:00Z",` +
		`"ended_at":"2026-11-20T10:00:01Z"}`
	for path, c := range map[string]struct{ items, want string }{
		"/rounds": {"", "No round is among the attempts that ended last"},
		"/leases": {lease, "There is more than one chart shows: it begins at 10:00:01 UTC"}} {
		synctest.Test(t, func(t *testing.T) {
			const part = 200 * time.Millisecond
			asked := 0
			list := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Query().Get("from") == "" { // of those in force
					fmt.Fprint(w, `{"items":[],"next":null}`)
					return
				}
				asked++
				time.Sleep(part)
				fmt.Fprintf(w, `{"items":[%s],"next":"more"}`, c.items)
			})
			w := httptest.NewRecorder()
			began := time.Now()
			ui.New(ui.Options{API: list}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if took := time.Since(began); took > part || asked != 1 {
				t.Errorf("%s: %d parts, %v", path, asked, took)
			}
			if text := w.Body.String(); !strings.Contains(text, c.want) {
				t.Errorf("%s: %s", path, text)
			}
		})
	}
}
