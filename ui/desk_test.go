package ui_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledgerd/internal/answer"
	"github.com/ledgerd/ledgerd/internal/api"
	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/memory"
	"github.com/ledgerd/ledgerd/ui"
)

// editor is a person at the desk of a ledger with three articles. It works without connections, so that time can be
// that of a bubble.
type editor struct {
	t     *testing.T
	l     *ledger.Ledger
	pages http.Handler
}

func newEditor(t *testing.T, o memory.Options) *editor {
	t.Helper()
	e := &editor{t: t, l: ledger.New(memory.New(o), ledger.Options{})}
	must.OK(t, e.l.SetKind(t.Context(), "test", ledger.Kind{Name: "article"}))
	for i := range 3 {
		must.Do(t)(e.l.Add(t.Context(), ledger.NewItem{Kind: "article", Key: fmt.Sprintf("draft-%d", i+1)}))
	}
	guard := access.NewGuard("127.0.0.1:1", nil, nil, true)
	e.pages = ui.New(ui.Options{API: api.New(api.Config{Ledger: e.l, Guard: guard, Log: slog.New(slog.DiscardHandler),
		Version: answer.NewVersion(1)}), Admit: guard.AdmitPage,
		Verdicts: func(kind string) []string { return map[string][]string{"article": {"publish", "boring"}}[kind] }})
	return e
}

// asks sends a request and returns the status, the path of a redirect, and the page in one line.
func (e *editor) asks(method, at string, fields ...string) (status int, to, text string) {
	e.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	r := httptest.NewRequestWithContext(e.t.Context(), method, "http://127.0.0.1:1"+at, strings.NewReader(form.Encode()))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	e.pages.ServeHTTP(w, r)
	_, main, _ := strings.Cut(w.Body.String(), "<main")
	return w.Code, w.Header().Get("Location"), oneLine(main)
}

func (e *editor) sees(at string, want ...string) {
	e.t.Helper()
	status, _, text := e.asks(http.MethodGet, at)
	for _, w := range want {
		if status != http.StatusOK || !strings.Contains(text, w) {
			e.t.Errorf("%s: status %d, and there is no %q in\n%s", at, status, w, text)
		}
	}
}

func (e *editor) item(key string) ledger.Item {
	e.t.Helper()
	for it, err := range e.l.Walk(e.t.Context(), &ledger.Walk{}) {
		must.OK(e.t, err)
		if it.Key == key {
			return it
		}
	}
	e.t.Fatalf("there is no %s", key)
	return ledger.Item{}
}

// TestDesk: a person takes items, decides and undoes. A decision is sent after ten seconds and not before.
func TestDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEditor(t, memory.Options{})
		e.sees("/desk", "Take article", "3 wait", "Nothing waits for you")
		if status, to, text := e.asks(http.MethodPost, "/desk/take", "kind", "article"); status != 303 || to != "/desk?at=1" {
			t.Fatalf("taken: %d, %s\n%s", status, to, text)
		}
		e.sees("/desk?at=1", "1 of 3", "Yours until", `value="verdict:publish"`, `value="verdict:boring"`)
		status, to, text := e.asks(http.MethodPost, "/desk/1", "do", "verdict:publish", "note", "good", "back", "/desk?at=2")
		if status != 303 || to != "/desk?at=2" {
			t.Fatalf("decided: %d, %s\n%s", status, to, text)
		}
		e.sees("/desk?at=2", "1 of 2", `role="status"><b class="any">draft-1</b>: publish</span>, sent at`, "Undo")
		time.Sleep(9 * time.Second)
		if it := e.item("draft-1"); it.State != ledger.StateLeased {
			t.Errorf("after 9 s it is %s", it.State)
		}
		if status, to, _ := e.asks(http.MethodPost, "/desk/1/undo"); status != 303 || to != "/desk?at=1" {
			t.Errorf("undone: %d, %s", status, to)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if it := e.item("draft-1"); it.State != ledger.StateLeased {
			t.Errorf("after the undo it is %s", it.State)
		}
		e.asks(http.MethodPost, "/desk/1", "do", "verdict:boring", "note", "a note")
		e.asks(http.MethodPost, "/desk/2", "do", "failed", "note", "no such draft")
		e.asks(http.MethodPost, "/desk/3", "do", "release", "note", "not mine")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if it := e.item("draft-1"); it.State != ledger.StateDone {
			t.Errorf("it is %s", it.State)
		}
		e.sees("/items/1", "&#34;note&#34;: &#34;a note&#34;, &#34;verdict&#34;: &#34;boring&#34;")
		if it := e.item("draft-2"); it.State != ledger.StateDead || it.Error != "no such draft" {
			t.Errorf("what failed is %s with %q", it.State, it.Error)
		}
		if it := e.item("draft-3"); it.State != ledger.StateReady || it.Losses+it.Failures > 0 {
			t.Errorf("what was handed back is %s with %d losses and %d failures", it.State, it.Losses, it.Failures)
		}
		e.sees("/items/3", "attempt 1 released", `<pre class="bytes">not mine</pre>`)
		if status, _, text := e.asks(http.MethodPost, "/desk/1/undo"); status != 409 || !strings.Contains(text, "too late") {
			t.Errorf("an undo after the end: %d\n%s", status, text)
		}
	})
}

// TestDeskTakesMore: a person can take up to five items that are not decided. Decided items do not count, and an item
// that is not decided is shown.
func TestDeskTakesMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEditor(t, memory.Options{})
		for i := range 4 {
			must.Do(t)(e.l.Add(t.Context(), ledger.NewItem{Kind: "article", Key: fmt.Sprintf("draft-%d", i+4)}))
		}
		e.asks(http.MethodPost, "/desk/take", "kind", "article")
		for id := 1; id <= 5; id++ {
			e.asks(http.MethodPost, fmt.Sprintf("/desk/%d", id), "do", "done")
		}
		if status, to, text := e.asks(http.MethodPost, "/desk/take", "kind", "article"); status != 303 || to != "/desk?at=6" {
			t.Errorf("taken: %d, %s\n%s", status, to, text)
		}
		e.sees("/desk?at=6", "1 of 2")
		e.asks(http.MethodPost, "/desk/6", "do", "done")
		e.asks(http.MethodPost, "/desk/7", "do", "done")
		if status, _, text := e.asks(http.MethodPost, "/desk/take", "kind", "article"); status != http.StatusConflict ||
			!strings.Contains(text, "Nothing was taken") {
			t.Errorf("taken where nothing is left: %d\n%s", status, text)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
	})
}

// TestDeskPaused: items of a paused kind are not offered.
func TestDeskPaused(t *testing.T) {
	e := newEditor(t, memory.Options{})
	must.OK(t, e.l.SetKind(t.Context(), "test", ledger.Kind{Name: "article", Paused: true}))
	if _, _, text := e.asks(http.MethodGet, "/desk"); strings.Contains(text, "/desk/take") {
		t.Errorf("they are:\n%s", text)
	}
}

// TestDeskNote: ten more minutes keep the item, its note and its place, also if the clock of the database is behind.
func TestDeskNote(t *testing.T) {
	e := newEditor(t, memory.Options{Now: func() time.Time { return time.Now().Add(-time.Hour) }})
	e.asks(http.MethodPost, "/desk/take", "kind", "article")
	note := strings.Repeat("й", 12_000)
	status, to, text := e.asks(http.MethodPost, "/desk/1", "do", "keep", "note", note, "back", "/desk?at=2")
	if status != 303 || to != "/desk?at=1" {
		t.Errorf("kept: %d, %s\n%s", status, to, text)
	}
	e.sees("/desk?at=1", "1 of 3", ">"+note+"</textarea>")
	status, _, text = e.asks(http.MethodPost, "/desk/1", "do", "keep", "note", strings.Repeat("x", 1<<20))
	if status != http.StatusRequestEntityTooLarge || !strings.Contains(text, "1,048,576 bytes") {
		t.Errorf("a note that is too long: %d\n%s", status, text)
	}
	for _, at := range []string{"/desk/1", "/desk/1/hand"} { // as an error, the note would be cut
		status, _, text := e.asks(http.MethodPost, at, "do", "failed", "to", "bob", "note", note)
		if status != http.StatusUnprocessableEntity || !strings.Contains(text, "24,000 bytes") {
			t.Errorf("%s with a note that is too long for an error: %d\n%s", at, status, text)
		}
	}
	e.sees("/desk?at=1", "1 of 3", ">"+note+"</textarea>")
}

// TestDeskUndo: the key u undoes the newest act or decision.
func TestDeskUndo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEditor(t, memory.Options{})
		e.asks(http.MethodPost, "/desk/take", "kind", "article")
		for i, do := range []struct{ at, name, value, undo string }{{"/desk/1", "do", "done", "/desk/1/undo"},
			{"/desk/2", "do", "done", "/desk/2/undo"}, {"/acts", "act", "cancel", "/acts/"},
			{"/acts", "act", "release", "/acts/"}} {
			time.Sleep(time.Second)
			e.asks(http.MethodPost, do.at, do.name, do.value, "where", "id:3")
			_, _, text := e.asks(http.MethodGet, "/desk")
			before, _, _ := strings.Cut(text, `data-key="u"`)
			form := before[strings.LastIndex(before, `action="`)+len(`action="`):]
			if n := strings.Count(text, `data-key="u"`); n != 1 || !strings.HasPrefix(form, do.undo) ||
				i > 1 && !strings.Contains(form, "<b>"+do.value) {
				t.Errorf("after %s %s: %d keys, the first of %.200s", do.at, do.value, n, form)
			}
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
	})
}

// TestDeskLease: the page shows that a lease has ended, and that a decision came too late.
func TestDeskLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEditor(t, memory.Options{})
		e.asks(http.MethodPost, "/desk/take", "kind", "article")
		time.Sleep(9 * time.Minute)
		if status, _, text := e.asks(http.MethodPost, "/desk/1", "do", "keep"); status != 303 {
			t.Fatalf("kept: %d\n%s", status, text)
		}
		time.Sleep(2 * time.Minute)
		must.Do(t)(e.l.Expire(t.Context(), 100))
		e.sees("/desk", "1 of 1", "draft-1")
		status, _, text := e.asks(http.MethodPost, "/desk/2", "do", "done")
		if status != http.StatusConflict || !strings.Contains(text, "lease") {
			t.Errorf("decided without a lease: %d\n%s", status, text)
		}
		if it := e.item("draft-2"); it.State == ledger.StateDone {
			t.Error("it is done")
		}
		e.asks(http.MethodPost, "/desk/1", "do", "done")
		if _, err := e.l.ForceRelease(t.Context(), "test", ledger.IDs(1)); err != nil { // an operator takes it back
			t.Fatal(err)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		look := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:1/desk", nil)
		look.Header.Set("Ledgerd-Look", "1")
		e.pages.ServeHTTP(httptest.NewRecorder(), look) // script.js may not show it
		for _, done := range []bool{false, true} {
			e.asks(http.MethodPost, "/desk/take", "kind", "article")
			_, _, text := e.asks(http.MethodGet, "/desk")
			if strings.Contains(text, "draft-1 was not recorded as done:") == done {
				t.Errorf("the refusal was shown before: %t\n%s", done, text)
			}
		}
	})
}

// TestDeskScopes: without the scope work nothing can be taken, without operate nothing is decided.
func TestDeskScopes(t *testing.T) {
	b := newBrowser(t, "/x", access.Read, access.Payload)
	b.fail("broken", "boom", "why")
	if status, _ := b.get("/x/login?code=" + b.login.Code(b.token)); status != http.StatusOK {
		t.Fatalf("the login has status %d", status)
	}
	b.sees("/x/desk", "Dead, by cause", "why")
	_, text := b.get("/x/desk")
	for _, button := range []string{`value="retry"`, "/desk/take"} {
		if strings.Contains(text, button) {
			t.Errorf("a reader has %s", button)
		}
	}
	if status, text := b.post("/x/desk/take", "kind", "k"); status != http.StatusForbidden ||
		!strings.Contains(text, "no scope work") {
		t.Errorf("a reader takes items: %d\n%s", status, text)
	}
}

// TestHandOver: a person claims one item from its page and hands it over. It stays with the person if the other one may
// not have it.
func TestHandOver(t *testing.T) {
	e := newEditor(t, memory.Options{})
	e.sees("/items/2", `action="/desk/take"`, ">Claim</button>")
	if status, to, text := e.asks(http.MethodPost, "/desk/take", "kind", "article", "item", "2"); to != "/desk?at=2" {
		t.Fatalf("claimed: %d, %s\n%s", status, to, text)
	}
	e.sees("/desk", "1 of 1", `action="/desk/2/hand"`)
	mine := e.item("draft-2").Agent
	if status, _, text := e.asks(http.MethodPost, "/desk/2/hand", "to", " "); status != http.StatusUnprocessableEntity ||
		e.item("draft-2").Agent != mine {
		t.Errorf("handed over to no one: %d\n%s", status, text)
	}
	for _, paused := range []bool{true, false} { // then the desk's own name
		must.Do(t)(e.l.EditKind(t.Context(), "test", "article", func(k *ledger.Kind, _ bool) { k.Paused = paused }))
		status, _, text := e.asks(http.MethodPost, "/desk/2/hand", "to", map[bool]string{true: "bob", false: mine}[paused])
		has := e.item("draft-2").Agent
		if status != http.StatusConflict || !strings.Contains(text, "It was not handed over") || has != mine {
			t.Errorf("paused %t: %d, it belongs to %q", paused, status, has)
		}
	}
	if status, to, text := e.asks(http.MethodPost, "/desk/2/hand", "to", "bob", "note", "his house"); to != "/items/2" {
		t.Fatalf("handed over: %d, %s\n%s", status, to, text)
	}
	if it := e.item("draft-2"); it.Agent != "bob" || it.ExpiresAt.Sub(it.LeasedAt) != time.Hour {
		t.Errorf("it belongs to %q until %s", it.Agent, it.ExpiresAt)
	}
	e.sees("/items/2", "bob works on it (attempt 2)", `<pre class="bytes">his house</pre>`)
	e.sees("/desk", "Nothing waits for you")
	claim := func(agent string) []*ledger.Lease {
		leases, err := e.l.Claim(t.Context(), ledger.Claim{Kind: "article", Agent: agent, Limit: 1})
		must.OK(t, err)
		return leases
	}
	claim(mine) // handed over
	other := claim(mine + "/2")
	e.sees("/desk", "Nothing waits for you", "Take article", "1 waits")
	must.OK(t, e.l.Unclaim(t.Context(), other...))
	claim(mine)
	e.sees("/desk", "Nothing waits for you", "Take article", "2 wait")
	if status, to, text := e.asks(http.MethodPost, "/desk/take", "kind", "article"); to != "/desk?at=1" {
		t.Errorf("taken after a hand-over: %d, %s\n%s", status, to, text)
	}
	if _, _, text := e.asks(http.MethodGet, "/desk"); !strings.Contains(text, "1 of 2") || strings.Contains(text, "Take") {
		t.Errorf("what was taken is to be taken again:\n%s", text)
	}
	for _, at := range []string{"/desk/take", "/desk/2/hand"} {
		status, _, text := e.asks(http.MethodPost, at, "kind", "article", "item", "2", "to", "carol")
		if status != http.StatusConflict || at == "/desk/take" && !strings.Contains(text, "bob works on it") {
			t.Errorf("%s of what bob has: %d\n%s", at, status, text)
		}
	}

	b := newBrowserOf(t, "", access.Grant{Name: "ann", Agent: "desk-", Scopes: []access.Scope{access.Read, access.Work}})
	b.get("/login?code=" + b.login.Code(b.token))
	must.OK(t, b.l.SetKind(t.Context(), "test", ledger.Kind{Name: "article"}))
	must.Do(t)(b.l.Add(t.Context(), ledger.NewItem{Kind: "article", Key: "draft"}))
	b.post("/desk/take", "kind", "article", "item", "1")
	if status, _ := b.post("/desk/1/hand", "to", "bob"); status != http.StatusForbidden ||
		b.state(1) != ledger.StateLeased {
		t.Errorf("a token for desk-… hands over to bob: %d, and the item is %s", status, b.state(1))
	}
	b.post("/desk/1/hand", "to", "desk-bob")
	if it, err := b.l.Get(t.Context(), 1); err != nil || it.Agent != "desk-bob" {
		t.Errorf("handed over to desk-bob, it belongs to %q, %v", it.Agent, err)
	}
	r := newBrowser(t, "", access.Read)
	r.get("/login?code=" + r.login.Code(r.token))
	must.Do(t)(r.l.Add(t.Context(), ledger.NewItem{Kind: "article", Key: "draft"}))
	if status, text := r.get("/items/1"); status != http.StatusOK || strings.Contains(text, "/desk/take") {
		t.Errorf("who may only read is offered a claim: %d\n%s", status, text)
	}
}
