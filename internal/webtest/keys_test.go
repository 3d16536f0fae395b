package webtest

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
)

// keys presses keys, and waits for the page to which the last one leads.
func (b *tab) keys(keys string) {
	b.t.Helper()
	ctx, done := context.WithTimeout(b.ctx, deadline)
	defer done()
	if _, err := chromedp.RunResponse(ctx, chromedp.KeyEvent(keys)); err != nil {
		b.t.Fatalf("keys %q: %v", keys, err)
	}
}

// TestKeyboard: Tab goes through the whole page and shows where it is; keys alone find an item, retry it and undo that.
func TestKeyboard(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t, 5, 5)
	b := newTab(t, s.base)
	b.looks(1280, "light")
	b.open(s.link)
	all := eval[int](b, `[...document.querySelectorAll("a, button, input, summary")].filter((e) => e.checkVisibility()).length`)
	visited := map[string]bool{}
	for i := range all {
		must(t, chromedp.Do(b.ctx, chromedp.KeyEvent("\t")))
		at := eval[string](b, "document.activeElement.outerHTML.slice(0, 160)")
		if i == 0 && !strings.Contains(at, "Skip to content") {
			t.Errorf("Tab goes to %s first", at)
		}
		if !eval[bool](b, `getComputedStyle(document.activeElement).outlineStyle === "solid"`) {
			t.Errorf("where Tab is cannot be seen: %s", at)
		}
		visited[eval[string](b, `String([...document.querySelectorAll("*")].indexOf(document.activeElement))`)] = true
	}
	if len(visited) != all {
		t.Errorf("Tab goes to %d of %d controls", len(visited), all)
	}
	must(t, chromedp.Do(b.ctx, chromedp.Evaluate[chromedp.Void]("document.activeElement.blur()")))
	b.keys("gi")
	if at := eval[string](b, "location.pathname"); at != "/items" {
		t.Fatalf("g i goes to %s", at)
	}
	b.keys("jjo")
	b.reads("key-002", "no answer")
	b.keys("r")
	b.reads("1 item", "Undo")
	b.keys("u")
	b.reads("undone, nothing was changed")
	must(t, chromedp.Do(b.ctx, chromedp.KeyEvent("gi"), chromedp.WaitVisible("#w")))
	// One event, as of a keyboard: the page keeps it from typing.
	_, err := chromedp.Call(b.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: "keyDown", Key: "/", Text: "/"})
	must(t, err)
	if at := eval[string](b, "document.activeElement.id"); at != "w" {
		t.Errorf("/ goes to %q", at)
	}
	b.key("kind:page ")
	b.comes("terms are offered behind those that are typed",
		"[...document.getElementById('w').list.options].some((o) => o.value === 'kind:page state:dead')")
	b.keys("state:done\r")
	b.reads("No item matches")
	if n := l.count(t, "state:dead"); n != 5 {
		t.Errorf("%d of 5 items are dead", n)
	}
}

// TestTicked: rows are ticked by keys or all at once, stay ticked when the page is brought up to date, and keys then act
// on these alone. A page on which a ticked row would be missing is not shown.
func TestTicked(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t, 4, 4)
	b := newTab(t, s.base)
	b.open(s.link)
	b.open("/items?where=state:dead")
	b.ready()
	b.key("jxjjx")
	b.comes("two rows are ticked", `document.getElementById("which").textContent === "2 ticked:"`)
	eval[bool](b, `tag = "of an older page", document.getElementById("main").dataset.old = "", true`)
	b.comes("the page is brought up to date", `!("old" in document.getElementById("main").dataset)`)
	if n := eval[int](b, `ticked().length`); n != 2 {
		t.Errorf("%d rows are ticked after an update", n)
	}
	eval[bool](b, `document.getElementById("every").click(), true`)
	b.comes("all are ticked", `ticked().length === 4`)
	eval[bool](b, `document.getElementById("every").click(), true`)
	b.comes("none is ticked", `ticked().length === 0 && document.getElementById("which").textContent.startsWith("All that match")`)
	b.key("x")
	_, err := l.do(nil, "retry", "--where", "id:"+eval[string](b, `ticked()[0].value`))
	must(t, err)
	b.update()
	if live := eval[string](b, `document.getElementById("live").textContent`); live != "not up to date" {
		t.Errorf("the page without the ticked row is %q", live)
	}
	b.keys("c")
	b.reads("1 item", "Undo")
}

// TestAwayAndBack: a page shows that its server does not answer, and asks for the login when it is back. Eight tabs of
// one person are open meanwhile.
func TestAwayAndBack(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t, 3, 0)
	b := newTab(t, s.base)
	b.open(s.link)
	for range 7 {
		ctx, end := chromedp.NewContext(b.ctx)
		t.Cleanup(end)
		if status := watch(t, ctx, s.base).open("/items"); status != 200 {
			t.Fatalf("one more tab has status %d", status)
		}
	}
	shows := func(want string) {
		t.Helper()
		must(t, eventually(want+" is shown", func() (bool, error) {
			text, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("document.body.innerText"))
			return err == nil && strings.Contains(text, want), nil // while a page loads there is none
		}))
	}
	shows("live")
	must(t, s.stop())
	shows("the server does not answer")
	again, err := l.serve(strings.TrimPrefix(s.base, "http://"))
	must(t, err)
	shows("Token of the API")
	b.open(again.link)
	b.reads("3 items are ready")
	must(t, again.stop())
}
