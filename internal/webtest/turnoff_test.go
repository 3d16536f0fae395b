package webtest

import (
	"context"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// key presses keys, and does not wait for a page.
func (b *tab) key(keys string) {
	b.t.Helper()
	ctx, done := context.WithTimeout(b.ctx, deadline)
	defer done()
	_, err := chromedp.Run(ctx, chromedp.KeyEvent(keys))
	must(b.t, err)
}

// comes waits until an expression is true in the page. A script does not wait for its next look.
func (b *tab) comes(what, expression string) {
	b.t.Helper()
	must(b.t, eventually(what, func() (bool, error) { return eval[bool](b, "typeof due === 'undefined' || (due = 0);"+expression), nil }))
}

// ready waits until the script of a page listens.
func (b *tab) ready() {
	b.t.Helper()
	b.comes("the script runs", "document.getElementById('pause')?.hidden === false")
}

// update makes the script ask for a newer page at once. Without a tag it gets one in any case.
func (b *tab) update() {
	b.t.Helper()
	b.comes("the page is asked for", `looking ? false : (tag = "", due = 0, look().then(() => true))`)
}

// TestRest: after a page that costs the server much the script waits before it asks again.
func TestRest(t *testing.T) {
	t.Parallel()
	_, s := newLedger(t, 1, 0)
	b := newTab(t, s.base)
	b.open(s.link)
	b.ready()
	asked := eval[int](b, `(async () => {
		const get = fetch;
		let asked = 0;
		fetch = async () => {
			asked++;
			return new Response(null, { status: 304, headers: { "Server-Timing": "page;dur=1000" } });
		};
		while (looking) await new Promise((done) => setTimeout(done, 10));
		due = 0;
		await look();
		await look();
		fetch = get;
		return asked;
	})()`)
	if asked != 1 {
		t.Errorf("the page is asked for %d times", asked)
	}
}

// TestMarkStays: the mark and the focus stay at their cause when an update puts another cause before it.
func TestMarkStays(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t, 7, 3)
	b := newTab(t, s.base)
	b.open(s.link)
	b.open("/causes")
	b.ready()
	b.key("j")
	eval[bool](b, `document.querySelector(".cause button[value=cancel]").focus(), true`)
	tokens, err := l.claim("page", 4)
	must(t, err)
	must(t, l.finish(tokens, "--outcome", "permanent", "--code", "other", "--error", "another cause"))
	b.update()
	for what, at := range map[string]string{"focus": "document.activeElement.closest('.cause')",
		"mark": "document.querySelector('.here')"} {
		text := eval[string](b, at+"?.innerText ?? ''")
		first := eval[string](b, "document.querySelector('.cause').innerText")
		if !strings.Contains(text, "no answer") || !strings.Contains(first, "another cause") {
			t.Errorf("the %s is at %q, below %q", what, text, first)
		}
	}
}

// TestKeys: a person can list the keys, and while the list is shown, keys do nothing else. A key is about the marked
// row, and does nothing if the row has no such button. The page can be paused, and keys can be turned off.
func TestKeys(t *testing.T) {
	t.Parallel()
	_, s := newLedger(t, 3, 3)
	b := newTab(t, s.base)
	b.open(s.link)
	b.ready()
	b.key("?")
	b.comes("the keys are shown", "document.getElementById('keys').open")
	b.key("p")
	b.key("\x1b")
	b.comes("the list is closed, and nothing is paused",
		"!document.getElementById('keys').open && document.getElementById('live').textContent !== 'not updated'")
	b.open("/items?where=state:dead")
	b.ready()
	eval[bool](b, `navigator.clipboard.writeText = async (t) => { globalThis.copied = t };
		document.querySelector('[data-copy]').click(), true`)
	b.comes("the link is copied", "copied === document.querySelector('[data-copy]').href")
	b.key("j")
	b.comes("the first row is marked", "document.querySelector('.list tbody tr').classList.contains('here')")
	b.key("r")
	b.key("o")
	b.comes("o opens the row, and r was not about all rows",
		"/^\\/items\\/\\d+$/.test(location.pathname) && !location.search")
	b.ready()
	b.key("p")
	b.comes("p stops the updates", "document.getElementById('live').textContent === 'not updated'")
	eval[bool](b, "document.getElementById('turn').click(), true")
	b.key("p")
	b.key("?")
	b.comes("keys are off",
		"document.getElementById('live').textContent === 'not updated' && !document.getElementById('keys').open")
	if found := b.complaints(); len(found) > 0 {
		t.Errorf("%q", found)
	}
}
