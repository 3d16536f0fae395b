package webtest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/chromedp"
)

// newLedger makes a ledger of one kind with items of which some are dead, and serves it until the test ends.
func newLedger(t *testing.T, items, dead int) (ledgerURL, *server) {
	t.Helper()
	l := ledgerAt(t.Name())
	_, err := l.do(nil, "db", "migrate")
	must(t, err)
	_, err = l.do(nil, "kind", "set", "page", "--input", "line")
	must(t, err)
	must(t, l.add("page", "key-%03d", items))
	if dead > 0 {
		tokens, err := l.claim("page", dead)
		must(t, err)
		must(t, l.finish(tokens, "--outcome", "permanent", "--code", "http_503", "--error", "no answer"))
	}
	s, err := l.serve("127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = s.stop() }) // a test may have stopped it
	return l, s
}

// count counts the items that match a filter.
func (l ledgerURL) count(t *testing.T, where string) int {
	t.Helper()
	out, err := l.do(nil, "ls", "--where", where, "--output", "jsonl")
	must(t, err)
	return strings.Count(out, "\n")
}

// press clicks the element of a selector and waits for the next page. It is one call of click(), since the script may
// update the page between the two events of a click with a mouse.
func (b *tab) press(selector string) {
	b.t.Helper()
	ctx, done := context.WithTimeout(b.ctx, deadline)
	defer done()
	if _, err := chromedp.RunResponse(ctx, chromedp.WaitVisible(selector),
		chromedp.Evaluate[chromedp.Void](fmt.Sprintf("document.querySelector(%q).click()", selector))); err != nil {
		b.t.Fatalf("click %s: %v", selector, err)
	}
}

// text returns the text of the page's main part.
func (b *tab) text() string {
	b.t.Helper()
	return eval[string](b, "document.getElementById('main').innerText")
}

// reads checks that the page has texts.
func (b *tab) reads(want ...string) {
	b.t.Helper()
	text := b.text()
	for _, w := range want {
		if !strings.Contains(text, w) {
			b.t.Errorf("there is no %q in\n%s", w, text)
		}
	}
}

// TestTwoPeople: two people act on the same items. The second act finds what the first act left, and reports it.
func TestTwoPeople(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t, 30, 30)
	one := newTab(t, s.base)
	one.open(s.link)
	token, err := chromedp.Run(one.ctx, cookies())
	must(t, err)
	two := newTab(t, s.base)
	_, err = chromedp.Call(two.ctx, network.SetCookie, *token)
	must(t, err)
	for _, b := range []*tab{one, two} {
		b.open("/items?where=state:dead")
		b.reads("key-001")
	}
	one.press(`form.acts button[value="retry"]`)
	two.press(`form.acts button[value="cancel"]`)
	one.press(`form.undo button`)
	one.reads("undone, nothing was changed")
	two.press(`form.undo button`)
	two.reads("undone, nothing was changed")
	if n := l.count(t, "state:dead"); n != 30 {
		t.Errorf("%d of 30 items are dead after both undid", n)
	}
	one.open("/items?where=state:dead")
	one.press(`form.acts button[value="retry"]`)
	_, err = l.do(nil, "retry", "--where", "state:dead") // another program was quicker
	must(t, err)
	must(t, eventually("the act has ended", func() (bool, error) {
		one.open(eval[string](one, "location.pathname + location.search"))
		return strings.Contains(one.text(), "0 changed"), nil
	}))
	if n := l.count(t, "state:ready"); n != 30 {
		all, _ := l.do(nil, "stats")
		t.Errorf("%d of 30 items are ready; %s\n%s", n, one.text(), all)
	}
}

// cookies returns the cookie of the login, for another window of the same person.
func cookies() chromedp.Action[*network.SetCookieParams] {
	return func(ctx context.Context, target *chromedp.Target) (*network.SetCookieParams, error) {
		all, err := cdp.Call(ctx, target, network.GetCookies, network.GetCookiesParams{})
		if err != nil || len(all.Cookies) != 1 {
			return nil, fmt.Errorf("%d cookies: %w", len(all.Cookies), err)
		}
		c := all.Cookies[0]
		return &network.SetCookieParams{Name: c.Name, Value: c.Value, Domain: c.Domain, Path: c.Path}, nil
	}
}
