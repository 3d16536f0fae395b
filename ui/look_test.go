package ui_test

import (
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ui"
)

// TestItems: the filter offers its terms, there are views, the page counts the items that match up to a bound, and the
// items are exported in each format.
func TestItems(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.add(ledger.NewItem{Key: "=1+1"})
	b.sees("/items", "<b>1 item matches</b>", `<option value="state:dead">`, `<option value="since:">it was added since then`,
		`<option value="kind:k">`, `<a href="/items?order=-ended&amp;where=state%3Adead">dead, newest first</a>`)
	for i := range 60 {
		b.add(ledger.NewItem{Key: fmt.Sprint("key-", i)})
	}
	b.sees("/items?where=kind:k&order=-id", "<b>50 of 61 items that match</b>", "ledgerd ls --where kind:k --sort -id",
		`href="/export/csv?order=-id&amp;where=kind%3Ak"`, `<a href="/items?order=-id&amp;where=kind%3Ak" data-copy>`)
	for format, want := range map[string][2]string{"csv": {"id,kind,scope,key,state,", "\n1,k,,'=1+1,ready,"},
		"excel": {"\xef\xbb\xbfid;kind;scope;key;state;", "\n1;k;;'=1+1;ready;"},
		"jsonl": {`{"id":1,"kind":"k",`, `"key":"=1+1"`}} {
		b.sees("/items?where=kind:k", `href="/export/`+format+`?where=kind%3Ak" download>`)
		r, err := b.client.Get(b.server.URL + "/export/" + format + "?where=kind:k")
		status, text := b.read(r, err)
		file := strings.Replace(format, "excel", "csv", 1)
		if name := r.Header.Get("Content-Disposition"); status != http.StatusOK || !strings.HasPrefix(text, want[0]) ||
			!strings.Contains(text, want[1]) || strings.Count(text, "key-") != 60 ||
			name != `attachment; filename="items.`+file+`"` {
			t.Errorf("%s: %d %s %.300s", format, status, name, text)
		}
	}
	if status, text := b.get("/export/csv?where=state:ded"); status != http.StatusBadRequest ||
		!strings.Contains(text, "is not a state") {
		t.Errorf("a wrong filter: %d\n%s", status, text)
	}
}

// TestExportIsBounded: an export that is not complete has "first" in its name. The list of the API never ends here.
func TestExportIsBounded(t *testing.T) {
	rows := strings.TrimSuffix(strings.Repeat(`{"id":1,"key":"a"},`, 1000), ",")
	list := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"items":[%s],"next":"more"}`, rows)
	})
	w := httptest.NewRecorder()
	ui.New(ui.Options{API: list}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/export/csv", nil))
	if name := w.Header().Get("Content-Disposition"); name != `attachment; filename="first-10000-items.csv"` {
		t.Errorf("%s with %d lines", name, strings.Count(w.Body.String(), "\n"))
	}
}

// TestNowhere: a page that is not there has the menu and a way on, below a prefix, too.
func TestNowhere(t *testing.T) {
	b := newBrowser(t, "/x", access.Read)
	if _, text := b.get("/x"); !strings.Contains(text, "<h1>Log in</h1>") {
		t.Errorf("the prefix without a slash:\n%s", text)
	}
	for _, at := range []string{"/x/nowhere", "/x/export/xls"} {
		b.get("/x/login?code=" + b.login.Code(b.token))
		if status, text := b.get(at); status != http.StatusNotFound || !strings.Contains(text, "There is no such page") ||
			!strings.Contains(text, `<a class="btn" href="/x/items">`) || !strings.Contains(text, `aria-label="Pages"`) {
			t.Errorf("%s: %d\n%s", at, status, text)
		}
	}
}

// TestActForm: the form counts the items that each act would change, and sends a reason and a limit with the act. The
// page shows who has requested it.
func TestActForm(t *testing.T) {
	b := newBrowser(t, "", access.Read, access.Operate)
	b.get("/login?code=" + b.login.Code(b.token))
	for i := range 12 {
		b.fail(fmt.Sprint("key-", i), "x", "boom")
	}
	b.sees("/causes", "Retry 10 first", "Retry 12", `<rect class="b-trend"`, "12 from ",
		`href="/act?back=%2Fcauses&amp;where=`)
	b.sees("/act?where=state:dead&back=/causes", "Retry: 12", "Mark done: 12", "Cancel: 12", "Nothing is changed yet",
		`<a class="btn" href="/causes">`)
	b.sees("/act?where=state:done", "Nothing that matches can be changed.")
	if status, text := b.post("/acts", "act", "retry", "where", "state:dead", "limit", "some"); status !=
		http.StatusUnprocessableEntity || !strings.Contains(text, "not a number from 1 on") {
		t.Errorf("a wrong limit: %d\n%s", status, text)
	}
	_, text := b.post("/acts", "act", "retry", "where", "state:dead", "limit", "10", "reason", "dns is back", "back",
		"/causes")
	if shown := oneLine(text); !strings.Contains(shown, "<b>retry</b> 10 of 12 items:") ||
		!strings.Contains(shown, "asked by api:ann") {
		t.Errorf("not held:\n%s", text)
	}
	// An item in work: what cannot be taken back is asked for twice.
	b.add(ledger.NewItem{Key: "in work"})
	b.claim("w")
	_, text = b.get("/items/13")
	if !strings.Contains(text, "Take it back …</a>") || strings.Contains(text, `value="release"`) {
		t.Errorf("it is taken back at once:\n%s", text)
	}
	b.sees("/act?where=id:13", `value="release"`, "Take back from its holder: 1", "is worked once more")
	reader := newBrowser(t, "", access.Read)
	reader.get("/login?code=" + reader.login.Code(reader.token))
	if status, text := reader.get("/act?where=state:dead"); status != http.StatusForbidden ||
		strings.Contains(text, `name="act"`) {
		t.Errorf("who may not act: %d\n%s", status, text)
	}
}

// TestCausesOfADay: a filter without a time is about the failures of a day, and so are the acts on their causes.
func TestCausesOfADay(t *testing.T) {
	b := newBrowser(t, "", access.Read, access.Operate)
	b.get("/login?code=" + b.login.Code(b.token))
	b.ahead.Store(int64(-48 * time.Hour))
	b.fail("old", "x", "boom")
	b.ahead.Store(0)
	b.fail("a", "x", "boom")
	b.fail("b", "x", "boom")
	b.sees("/causes?where=kind:k", "Retry 2")
	_, text := b.get("/causes?where=kind:k")
	where := regexp.MustCompile(`name="where" value="(kind:k [^"]*)"`).FindStringSubmatch(text)
	if where == nil {
		t.Fatalf("there is no act in\n%s", text)
	}
	_, text = b.post("/acts", "act", "retry", "where", html.UnescapeString(where[1]), "back", "/causes")
	if !strings.Contains(oneLine(text), "<b>retry</b> 2 items:") {
		t.Errorf("retry of %s is not about 2 items:\n%s", where[1], text)
	}
	b.ahead.Store(int64(-240 * time.Hour))
	b.fail("older", "old_one", "boom")
	b.ahead.Store(0)
	_, text = b.get("/")
	to := regexp.MustCompile(`<a href="(/causes[^"]*)">\s*2 causes</a>`).FindStringSubmatch(oneLine(text))
	if to == nil {
		t.Fatalf("two causes have no link in\n%s", text)
	}
	b.sees(html.UnescapeString(to[1]), "old_one")
}

// TestWaiting: a waiting item has the acts that change it. An item that is due later and has not failed has neither
// Retry nor Do it again. Sentences have the zone of their times.
func TestWaiting(t *testing.T) {
	was := time.Local
	time.Local = time.FixedZone("X", 7200)
	t.Cleanup(func() { time.Local = was })
	b := newBrowser(t, "", access.Read, access.Operate)
	b.get("/login?code=" + b.login.Code(b.token))
	b.add(ledger.NewItem{Key: "round is done", Every: "day", Zone: "UTC"})
	b.finish(b.claim("w"), ledger.Result{Outcome: ledger.OutcomeDone})
	b.add(ledger.NewItem{Key: "failed"})
	b.finish(b.claim("w"), ledger.Result{Outcome: ledger.OutcomeFailed, Error: "boom"})
	b.add(ledger.NewItem{Key: "later", Due: time.Now().Add(time.Hour)})
	for id, want := range map[int]string{1: "reopen cancel", 2: "retry cancel", 3: "cancel"} {
		_, text := b.get(fmt.Sprint("/items/", id))
		var acts []string
		for _, found := range regexp.MustCompile(`name="act" value="(\w+)"`).FindAllStringSubmatch(text, -1) {
			acts = append(acts, found[1])
		}
		if got := strings.Join(acts, " "); got != want {
			t.Errorf("item %d has the acts %s", id, got)
		}
	}
	b.sees("/act?where=kind:k", "Do again: 1", "Cancel: 3")
	b.sees("/items/3", time.Now().Add(time.Hour).UTC().Format("It is due at 2006-01-02 15:"), " UTC.")
}

// TestTicked: an act is for the ticked items; without them for those of the filter, and never for all items.
func TestTicked(t *testing.T) {
	b := newBrowser(t, "", access.Read, access.Operate)
	b.get("/login?code=" + b.login.Code(b.token))
	for i := range 4 {
		b.fail(fmt.Sprint("key-", i), "x", "boom")
	}
	b.sees("/items", "Those that are ticked:", `name="id" value="1"`, `aria-label="tick key-0"`)
	b.sees("/items?where=state:dead", "All that match, or those that are ticked:")
	b.sees("/act?where=state:dead&id=1&id=3&back=/items", "Retry: 2", "id:1,3")
	_, text := b.post("/acts", "act", "retry", "where", "state:dead", "id", "1", "id", "3", "back", "/items")
	if !strings.Contains(oneLine(text), "<b>retry</b> 2 items:") {
		t.Errorf("it is not about two items:\n%s", text)
	}
	for _, ask := range []func() (int, string){
		func() (int, string) { return b.post("/acts", "act", "retry", "where", "", "back", "/items") },
		func() (int, string) { return b.get("/act?where=&back=/items") }} {
		if status, text := ask(); status != http.StatusUnprocessableEntity || !strings.Contains(text, "No item is chosen") {
			t.Errorf("without a choice: %d\n%s", status, text)
		}
	}
	reader := newBrowser(t, "", access.Read)
	reader.get("/login?code=" + reader.login.Code(reader.token))
	reader.add(ledger.NewItem{Key: "a"})
	if _, text := reader.get("/items"); strings.Contains(text, `type="checkbox"`) {
		t.Errorf("somebody who may not act can tick:\n%s", text)
	}
}

// TestEmitted: an item links to the one that emitted it, and lists what it emitted itself.
func TestEmitted(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.add(ledger.NewItem{Key: "parent"})
	b.finish(b.claim("w"), ledger.Result{Outcome: ledger.OutcomeDone, Emit: []ledger.NewItem{{Kind: "k", Key: "child"}}})
	no := []string{"folder/1", "shards/0", "list/-5"}
	for _, source := range no {
		b.add(ledger.NewItem{Key: source, Source: source})
	}
	b.sees("/items/1", "Emitted", `<a href="/items/2">child</a>`, `href="/items?where=source%3Ak%2F1"`)
	b.sees("/items/2", `emitted by <a class="k" href="/items/1">parent</a> (k/1)`)
	for i, source := range no {
		status, text := b.get(fmt.Sprintf("/items/%d", 3+i))
		if status != http.StatusOK || strings.Contains(text, "mitted") {
			t.Errorf("%s: status %d, and it has a parent or a child:\n%s", source, status, text)
		}
	}
}

// TestOlderAttempts: items that the newest completed attempt emitted are not shown on a page of older attempts.
func TestOlderAttempts(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.add(ledger.NewItem{Key: "parent"})
	for range 21 {
		must.Do(t)(b.l.Reopen(t.Context(), "test", ledger.IDs(1)))
		b.finish(b.claim("w"), ledger.Result{Outcome: ledger.OutcomeDone, Emit: []ledger.NewItem{{Kind: "c", Key: "child"}}})
	}
	b.sees("/items/1", "Emitted", "Older attempts")
	_, text := b.get("/items/1")
	older := regexp.MustCompile(`href="(/items/1[?]cursor=[^"]*)"`).FindStringSubmatch(text)
	if _, text = b.get(html.UnescapeString(older[1])); !strings.Contains(text, "attempt 1 done") ||
		strings.Contains(text, "Emitted") {
		t.Errorf("older attempts:\n%s", text)
	}
}

// TestTrace: the page of an item links to its trace, if the pages know where traces are shown.
func TestTrace(t *testing.T) {
	const id = "4bf92f3577b34da6a3ce929d0e0e4736"
	for address, want := range map[string]string{
		"":                                    "<code>" + id + "</code>",
		"https://jaeger.example/t/{trace_id}": `<a class="k" href="https://jaeger.example/t/` + id + `">` + id + "</a>"} {
		b := newBrowser(t, "", access.Read)
		b.traces = address
		b.get("/login?code=" + b.login.Code(b.token))
		b.add(ledger.NewItem{Key: "traced", Trace: "00-" + id + "-00f067aa0ba902b7-01"})
		b.add(ledger.NewItem{Key: "not traced"})
		b.sees("/items/1", "<dt>trace</dt>", want)
		if _, text := b.get("/items/2"); strings.Contains(text, "<dt>trace") {
			t.Errorf("a trace that is not there:\n%s", text)
		}
	}
}

// TestHistory: attempts of a recurring item are listed by round, and counts of failures that are 0 are not shown.
func TestHistory(t *testing.T) {
	b := newBrowser(t, "", access.Read)
	b.get("/login?code=" + b.login.Code(b.token))
	b.ahead.Store(int64(-50 * time.Hour))
	b.add(ledger.NewItem{Key: "a", Every: "day", Zone: "UTC"})
	for range 2 {
		must.Do(t)(b.l.Promote(t.Context(), 10))
		b.finish(b.claim("w"), ledger.Result{Outcome: ledger.OutcomeDone})
		b.ahead.Add(int64(24 * time.Hour))
	}
	_, text := b.get("/items/1")
	for back, want := range map[time.Duration]int{50 * time.Hour: 1, 26 * time.Hour: 1} {
		round := "Round " + time.Now().UTC().Add(-back).Format(time.DateOnly)
		if strings.Count(text, round) != want {
			t.Errorf("%q is not there once:\n%s", round, text)
		}
	}
	if strings.Contains(text, "crash") || strings.Contains(text, "in this round") {
		t.Errorf("it counts what never happened:\n%s", text)
	}
	b.add(ledger.NewItem{Key: "b"})
	b.finish(b.claim("w"), ledger.Result{Outcome: ledger.OutcomeFailed, Code: "x", Error: "boom"})
	b.sees("/items/2", "<dd>1 failure</dd>")
}
