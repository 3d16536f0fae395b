package ui_test

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ui"
)

// hostile are texts that a page must not take for its own.
var hostile = []string{`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'onmouseover='alert(1)`, `{{.}}`,
	`</textarea><script>1</script>`, "line\nbreak", "\u202egnp.exe", `javascript:alert(1)`, `&lt;b&gt;`, `<!--`,
	"a b & c=d?e#f"}

// browser looks at the pages of a ledger.
type browser struct {
	t      *testing.T
	l      *ledger.Ledger
	server *httptest.Server
	client *http.Client
	login  *ui.Sessions
	token  string
	guard  *access.Guard
	traces string       // where traces are shown, with {trace_id} in it
	ahead  atomic.Int64 // of the ledger's clock, in nanoseconds
}

// newBrowser makes a browser of pages below a prefix. It has not logged in.
func newBrowser(t *testing.T, prefix string, scopes ...access.Scope) *browser {
	t.Helper()
	return newBrowserOf(t, prefix, access.Grant{Name: "ann", Scopes: scopes})
}

// newBrowserOf makes a browser of a person with a token.
func newBrowserOf(t *testing.T, prefix string, grant access.Grant) *browser {
	t.Helper()
	b := &browser{t: t, login: ui.NewSessions(), token: access.NewToken()}
	b.l = ledger.New(memory.New(memory.Options{Now: func() time.Time {
		return time.Now().Add(time.Duration(b.ahead.Load()))
	}}), ledger.Options{})
	b.server = httptest.NewUnstartedServer(nil)
	b.guard = access.NewGuard(b.server.Listener.Addr().String(), nil, []access.Token{{
		Grant: grant, Hash: access.Hash(b.token)}}, false)
	h := api.New(api.Config{Ledger: b.l, Guard: b.guard, Log: slog.New(slog.DiscardHandler),
		Version: answer.NewVersion(1)})
	b.server.Config.Handler = ui.New(ui.Options{API: h, Admit: b.guard.AdmitPage, Name: "work", Prefix: prefix,
		Sessions: b.login, Trace: func(id string) string { return strings.ReplaceAll(b.traces, "{trace_id}", id) }})
	b.server.Start()
	t.Cleanup(b.server.Close)
	jar, err := cookiejar.New(nil)
	must.OK(t, err)
	b.client = &http.Client{Jar: jar}
	return b
}

// get reads a page.
func (b *browser) get(at string) (status int, text string) {
	b.t.Helper()
	return b.read(b.client.Get(b.server.URL + at))
}

// post sends a form and follows the redirect.
func (b *browser) post(at string, fields ...string) (status int, text string) {
	b.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Add(fields[i], fields[i+1])
	}
	return b.read(b.client.PostForm(b.server.URL+at, form))
}

func (b *browser) read(r *http.Response, err error) (int, string) {
	b.t.Helper()
	must.OK(b.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	must.OK(b.t, err)
	if csp := r.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") {
		b.t.Errorf("%s: the policy is %q", r.Request.URL, csp)
	}
	return r.StatusCode, string(text)
}

// sees checks the texts of a page. Figures may be older than the last change, so it repeats the request for a minute.
func (b *browser) sees(at string, want ...string) {
	b.t.Helper()
	lacks := func(text string) func(string) bool {
		shown := oneLine(text)
		return func(w string) bool { return !strings.Contains(shown, oneLine(w)) }
	}
	status, text := b.get(at)
	for late := time.Now().Add(time.Minute); slices.ContainsFunc(want, lacks(text)) && time.Now().Before(late); {
		status, text = b.get(at)
	}
	if status != http.StatusOK {
		b.t.Errorf("%s: status %d", at, status)
	}
	for _, w := range want {
		if lacks(text)(w) {
			b.t.Errorf("%s: there is no %q in\n%s", at, w, text)
		}
	}
}

// oneLine replaces white space by single spaces, as HTML shows it.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// fail adds an item and lets it fail for good.
func (b *browser) fail(key, code, text string) int64 {
	b.t.Helper()
	ctx := b.t.Context()
	must.OK(b.t, b.l.SetKind(ctx, "test", ledger.Kind{Name: "k", MaxFailures: 1}))
	added, err := b.l.Add(ctx, ledger.NewItem{Kind: "k", Key: key, Payload: fmt.Appendf(nil, "%q", text)})
	must.OK(b.t, err)
	got, err := b.l.Claim(ctx, ledger.Claim{Kind: "k", Agent: "w", Limit: 1})
	if err != nil || len(got) != 1 {
		b.t.Fatal(len(got), err)
	}
	r := ledger.Result{Outcome: ledger.OutcomeFailed, Code: code, Error: text, Log: text, Final: true}
	for _, err := range b.l.Finish(ctx, ledger.Ending{Lease: got[0], Result: r}) {
		must.OK(b.t, err)
	}
	return added[0].ID
}

func (b *browser) state(id int64) ledger.State {
	b.t.Helper()
	it, err := b.l.Get(b.t.Context(), id)
	must.OK(b.t, err)
	return it.State
}

// TestLogin: a link logs in once, a token any time, and nothing is shown before.
func TestLogin(t *testing.T) {
	b := newBrowser(t, "", access.Admin)
	b.fail("secret-key", "x", "boom")
	for _, at := range []string{"/", "/items", "/items/1", "/causes", "/journal", "/items/1/attempts/1/output"} {
		if _, text := b.get(at); strings.Contains(text, "secret-key") || !strings.Contains(text, "Log in") {
			t.Errorf("%s is shown to anyone:\n%s", at, text)
		}
	}
	b.post("/acts", "act", "retry", "where", "state:dead")
	if status, text := b.post("/login", "token", "ldg_wrong"); status != http.StatusUnauthorized || !strings.Contains(text,
		"not known") {
		t.Errorf("a wrong token: %d\n%s", status, text)
	}
	link := "/login?code=" + b.login.Code(b.token) + "&to=" + url.QueryEscape("/items?where=state:dead")
	b.sees(link, "secret-key")
	if _, text := b.post("/logout"); !strings.Contains(text, "Log in") {
		t.Errorf("logged out:\n%s", text)
	}
	if status, text := b.get(link); status != http.StatusForbidden || !strings.Contains(text, "used or too old") {
		t.Errorf("the link works twice: %d\n%s", status, text)
	}
	if _, text := b.post("/login", "token", b.token, "to", "//elsewhere.example/"); !strings.Contains(text,
		"<h1>Today</h1>") {
		t.Errorf("logged in by a token:\n%s", text)
	}
}

// TestTokenRevoked: if a token is removed from the config, the next request of its browser ends the session.
func TestTokenRevoked(t *testing.T) {
	b := newBrowser(t, "", access.Admin)
	b.get("/login?code=" + b.login.Code(b.token))
	b.guard.Set(nil, nil)
	for range 10 { // more than wrong tokens of an address are answered
		if status, text := b.get("/items"); status != http.StatusOK || !strings.Contains(text, "Log in") {
			t.Fatalf("status %d\n%s", status, text)
		}
	}
	if status, text := b.post("/login", "token", b.token); status != http.StatusUnauthorized {
		t.Errorf("the address is locked: %d\n%s", status, text)
	}
}

// TestFromOtherSite: a request from a link of another site has no strict cookie, so it first gets a page that goes on.
func TestFromOtherSite(t *testing.T) {
	b := newBrowser(t, "/x", access.Admin)
	at := b.server.URL + "/x/items?where=key:%22%3Cb%3E%22"
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	must.OK(t, err)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	status, text := b.read(b.client.Do(r))
	const next = "/x/login?to=%2Fitems%3Fwhere%3Dkey%253A%2522%253Cb%253E%2522"
	if status != http.StatusOK || !strings.Contains(text, `http-equiv="refresh" content="0; url=`+next+`"`) {
		t.Errorf("status %d\n%s", status, text)
	}
	b.sees(next, "Log in")
	b.get("/x/login?code=" + b.login.Code(b.token))
	b.sees(next, "<h1>Items</h1>", "key:&#34;&lt;b&gt;&#34;")
}

// TestPrefix: a prefix that is also the first part of a path is refused. A prefix that is also a page shows that page,
// as behind a proxy that removes the prefix.
func TestPrefix(t *testing.T) {
	for prefix, want := range map[string]bool{"": true, "/": true, "/ledger": true, "/ledger/desk": true, "/work": true,
		"/desk": false, "/desk/": false, "/items": false, "/acts": false, "/login": false, "/assets": false} {
		err := ui.CheckPrefix(prefix)
		func() {
			defer func() {
				if r := recover(); (err == nil) != want || (r == nil) != want {
					t.Errorf("%q: %v, %v", prefix, err, r)
				}
			}()
			ui.New(ui.Options{Prefix: prefix})
		}()
	}
	b := newBrowser(t, "/work", access.Read)
	b.get("/work/login?code=" + b.login.Code(b.token))
	b.sees("/work", "<h1>Work</h1>")
}

// TestTwoPorts: to log in to the pages of a second program on the same host leaves the login to the first one.
func TestTwoPorts(t *testing.T) {
	one, two := newBrowser(t, "", access.Read), newBrowser(t, "", access.Read)
	two.client = one.client // the jar ignores ports, as browsers do
	for _, b := range []*browser{one, two} {
		b.get("/login?code=" + b.login.Code(b.token))
	}
	one.sees("/", "<h1>Today</h1>")
	two.post("/logout")
	one.sees("/", "<h1>Today</h1>")
}

// TestBoundToKinds: a token that is bound to kinds has all pages but two that are of the whole ledger.
func TestBoundToKinds(t *testing.T) {
	b := newBrowserOf(t, "", access.Grant{Name: "ann", Scopes: []access.Scope{access.Read}, Kinds: []string{"k"}})
	b.get("/login?code=" + b.login.Code(b.token))
	b.fail("a", "x", "boom")
	b.sees("/", "1 item needs you", "Why items failed")
	b.sees("/limits", "Locks are not shown to a token that is bound to kinds.")
	for _, at := range []string{"/desk", "/items", "/causes", "/leases", "/work", "/rounds"} {
		b.sees(at, "</h1>")
	}
	for at, claim := range map[string]string{"/machines": "No program works", "/journal": "Nothing has been changed"} {
		if status, text := b.get(at); status != http.StatusForbidden || strings.Contains(text, claim) {
			t.Errorf("%s: status %d\n%s", at, status, text)
		}
	}
}

// TestUnavailable: a page whose data could not be read does not show that there is nothing.
func TestUnavailable(t *testing.T) {
	list := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/me" {
			fmt.Fprint(w, `{"scopes":["admin"]}`)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		fmt.Fprint(w, `{"status":503,"code":"unavailable","title":"The ledger is away"}`)
	})
	for _, at := range []string{"/", "/desk", "/items", "/causes", "/leases", "/work", "/rounds", "/limits", "/machines",
		"/journal", "/items/1", "/act?where=state:dead"} {
		w := httptest.NewRecorder()
		ui.New(ui.Options{API: list}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, at, nil))
		_, main, _ := strings.Cut(w.Body.String(), "<main")
		claims := regexp.MustCompile(`\b(No|Nothing|nothing|nobody|empty)\b`).FindString(main)
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(main, "The ledger is away") || claims != "" {
			t.Errorf("%s: status %d, %q in\n%s", at, w.Code, claims, main)
		}
	}
}

// TestCounting: pages do not wait for the first count of a large ledger, and load again until it has ended.
func TestCounting(t *testing.T) {
	busy := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/stats" && r.URL.Query().Get("wait") == "false" {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"status":503,"code":"too_slow","hint":"a narrower filter"}`)
			return
		}
		fmt.Fprint(w, `{"scopes":["read","operate","work"]}`)
	})
	for _, at := range []string{"/", "/desk", "/work", "/limits"} {
		w := httptest.NewRecorder()
		ui.New(ui.Options{API: busy}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, at, nil))
		if text := w.Body.String(); w.Header().Get("Refresh") != "1" || !strings.Contains(text, "are being counted") ||
			strings.Contains(text, "filter</p>") {
			t.Errorf("%s: %d, %v\n%s", at, w.Code, w.Header(), text)
		}
	}
}

// TestForeign: pages of other sites and foreign names of this machine are refused.
func TestForeign(t *testing.T) {
	b := newBrowser(t, "", access.Admin)
	b.get("/login?code=" + b.login.Code(b.token))
	for name, change := range map[string]func(*http.Request){
		"name":      func(r *http.Request) { r.Host = "rebound.example" },
		"site":      func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
		"an origin": func(r *http.Request) { r.Header.Set("Origin", "https://elsewhere.example") },
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, b.server.URL+"/acts",
			strings.NewReader("act=retry&where=state:dead"))
		must.OK(t, err)
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		change(r)
		if status, _ := b.read(b.client.Do(r)); status != http.StatusMisdirectedRequest {
			t.Errorf("%s: status %d", name, status)
		}
	}
}

// TestPages: each page of an empty ledger and of one with hostile texts, below a prefix. Text stays text.
func TestPages(t *testing.T) {
	b := newBrowser(t, "/x/y", access.Admin)
	b.get("/x/y/login?code=" + b.login.Code(b.token))
	b.sees("/x/y/", "This ledger is empty")
	pages := []string{"/", "/items", "/items?where=state:dead", "/causes", "/leases", "/work",
		"/rounds", "/limits", "/machines",
		"/journal"}
	for _, at := range pages {
		b.sees("/x/y" + at)
	}
	for i, text := range hostile {
		id := b.fail(text, fmt.Sprintf("code_%d", i), text)
		pages = append(pages, fmt.Sprintf("/items/%d", id), "/items?where="+url.QueryEscape(text))
	}
	own := regexp.MustCompile(`(?s)<script src="/x/y/assets/[0-9a-f]{12}/script.js" defer></script>`)
	for _, at := range pages {
		_, text := b.get("/x/y" + at)
		for _, bad := range []string{"<script", "<img", `href="javascript:`, "<!--", "onmouseover='"} {
			if strings.Contains(own.ReplaceAllString(text, ""), bad) {
				t.Errorf("%s: %s in\n%s", at, bad, text)
			}
		}
		if strings.Contains(text, `href="/items`) || strings.Contains(text, `action="/acts`) {
			t.Errorf("%s: a link that leaves the prefix in\n%s", at, text)
		}
	}
	b.sees("/x/y/", fmt.Sprintf("%d items need you</a>", len(hostile)), "code_1")
	if status, text := b.get("/x/y/items?where=state:ded"); status != http.StatusBadRequest ||
		!strings.Contains(text, "dead") {
		t.Errorf("a wrong filter: %d\n%s", status, text)
	}
	if status, _ := b.get("/x/y/items/4711"); status != http.StatusNotFound {
		t.Errorf("no such item: %d", status)
	}
}

var undoForm = regexp.MustCompile(`action="/acts/([0-9a-f-]{36})"`)

// TestActs: an act that is requested on a page is held, and if it is undone, it has changed nothing.
func TestActs(t *testing.T) {
	b := newBrowser(t, "", access.Read, access.Operate)
	b.get("/login?code=" + b.login.Code(b.token))
	id := b.fail("a", "x", "boom")
	_, text := b.post("/acts", "act", "retry", "where", "state:dead", "back", "/items?where=state:dead")
	for _, at := range []string{"/items/1", "/items?where=state:dead", "/causes"} {
		if _, text := b.get(at); !strings.Contains(text, `name="act"`) {
			t.Errorf("%s has no button:\n%s", at, text)
		}
	}
	found := undoForm.FindStringSubmatch(text)
	if found == nil || !strings.Contains(text, "1 item") || !strings.Contains(text, "Undo") ||
		!strings.Contains(text, "<h1>Items</h1>") {
		t.Fatalf("nothing to undo in\n%s", text)
	}
	if _, text = b.post("/acts/"+found[1], "back", "/items/1"); !strings.Contains(text, "undone, nothing was changed") {
		t.Errorf("undone:\n%s", text)
	}
	if s := b.state(id); s != ledger.StateDead {
		t.Errorf("the item is %s", s)
	}
	// An act that is held can be undone on every page, also if another one was asked for after it.
	b.post("/acts", "act", "retry", "where", "state:dead", "back", "/causes")
	b.post("/acts", "act", "decide done", "where", "id:1", "back", "/causes")
	_, text = b.get("/journal")
	if held := undoForm.FindAllStringSubmatch(text, -1); len(held) != 2 || !strings.Contains(text, "<b>decide</b>") {
		t.Errorf("%d acts to undo in\n%s", len(held), text)
	}
	status, text := b.post("/acts", "act", "retry", "where", "state:ded", "back", "/causes")
	if status != http.StatusBadRequest || !strings.Contains(text, "Back") {
		t.Errorf("a wrong filter: %d\n%s", status, text)
	}
}

// TestPause: a kind is paused and resumed by buttons, and both stand in the journal.
func TestPause(t *testing.T) {
	b := newBrowser(t, "", access.Read, access.Operate)
	b.fail("a", "x", "boom") // before the figures are read: those of the page are kept for a moment
	b.get("/login?code=" + b.login.Code(b.token))
	paused := func() bool {
		k, err := b.l.Kind(t.Context(), "k")
		must.OK(t, err)
		return k.Paused
	}
	for _, want := range []bool{true, false} { // the page knows at once, though its figures are older
		if _, text := b.post("/kinds/k/paused", "paused", fmt.Sprint(want), "back", "/work"); paused() != want ||
			!strings.Contains(text, "<h1>Work</h1>") ||
			!strings.Contains(text, fmt.Sprintf(`name="paused" value="%t"`, !want)) {
			t.Errorf("paused is %t, want %t:\n%s", paused(), want, text)
		}
	}
	b.sees("/journal", "pause", "resume")
}

// TestRights: a user who may only read sees no payload and no buttons, and acts are refused with the reason.
func TestRights(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.fail("a", "x", "a-secret-payload")
	if _, text := b.get("/items/1"); strings.Contains(text, "<h2>Payload") {
		t.Errorf("a payload:\n%s", text)
	}
	for _, at := range []string{"/items/1", "/items?where=state:dead", "/causes"} {
		if _, text := b.get(at); strings.Contains(text, `name="act"`) {
			t.Errorf("%s has a button:\n%s", at, text)
		}
	}
	if status, text := b.post("/acts", "act", "retry", "where", "state:dead"); status != http.StatusForbidden ||
		!strings.Contains(text, "no scope operate") {
		t.Errorf("an act: %d\n%s", status, text)
	}
}

// TestStyle: each variable that the style sheet uses is defined in it. Browsers report no undefined one.
func TestStyle(t *testing.T) {
	b := newBrowser(t, "")
	_, page := b.get("/login")
	_, style, _ := strings.Cut(page, "<style>")
	style, _, _ = strings.Cut(style, "</style>")
	used := regexp.MustCompile(`var\((--[a-z0-9-]+)`).FindAllStringSubmatch(style, -1)
	if len(used) < 10 {
		t.Fatalf("only %d uses in\n%s", len(used), style)
	}
	for _, u := range used {
		if !regexp.MustCompile(`[{;\s]` + u[1] + `:`).MatchString(style) {
			t.Errorf("%s is used and not defined", u[1])
		}
	}
}

// TestUnchanged: a page that has not changed is not sent again.
func TestUnchanged(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	r, err := b.client.Get(b.server.URL + "/items")
	must.OK(t, err)
	r.Body.Close()
	again, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.server.URL+"/items", nil)
	must.OK(t, err)
	for _, weak := range []string{"", "W/"} { // a proxy that compresses makes it weak
		again.Header.Set("If-None-Match", weak+r.Header.Get("ETag"))
		if status, text := b.read(b.client.Do(again)); status != http.StatusNotModified || text != "" {
			t.Errorf("%q: status %d, %d bytes", weak, status, len(text))
		}
	}
}
