package webtest

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// formsLedger has what each act is about: mails in doubt, dead pages of one cause, articles for people, and a lease.
func formsLedger(t *testing.T) (ledgerURL, *server) {
	t.Helper()
	l := ledgerAt(t.Name())
	for _, args := range [][]string{{"db", "migrate"}, {"kind", "set", "page", "--input", "line"},
		{"kind", "set", "mail", "--input", "line", "--on-lost", "doubt"}, {"kind", "set", "article", "--input", "line"}} {
		_, err := l.do(nil, args...)
		must(t, err)
	}
	must(t, l.add("mail", "reader-%d", 2))
	_, err := l.claim("mail", 2, "--lease", "1s")
	must(t, err)
	must(t, l.add("article", "draft-%d", 12))
	must(t, l.add("page", "key-%d", 4))
	tokens, err := l.claim("page", 4)
	must(t, err)
	must(t, l.finish(tokens[:3], "--outcome", "permanent", "--code", "http_503", "--error", "no answer"))
	s, err := l.serve("127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = s.stop() })
	must(t, eventually("the mails are in doubt", func() (bool, error) {
		_, err := l.do(nil, "finish", "--outcome", "released", "--expired")
		return err == nil && l.count(t, "state:doubt") == 2, err
	}))
	return l, s
}

// undoes checks that an act on so many items is held, and undoes it.
func (b *tab) undoes(act, items string) {
	b.t.Helper()
	b.reads(act+" "+items, "begins at", "Undo")
	b.press(`form.undo button`)
	b.reads("undone, nothing was changed")
}

// formActs are the acts of the pages. Each one that is held is undone.
var formActs = []struct {
	what string
	do   func(b *tab, l ledgerURL)
}{
	{"pause and resume a kind", func(b *tab, l ledgerURL) {
		const button = `form[action$="/kinds/article/paused"] button`
		b.open("/work")
		for _, then := range []struct{ said, paused string }{{"article waits for the end of a pause.", "true"},
			{"Decide at the Desk.", "false"}} {
			b.press(button)
			b.reads(then.said)
			out, err := l.do(nil, "kind", "show", "article", "--output", "json")
			must(b.t, err)
			if !strings.Contains(strings.ReplaceAll(out, " ", ""), `"paused":`+then.paused) {
				b.t.Errorf("it is not paused = %s: %s", then.paused, out)
			}
		}
	}},
	{"take back a lease", func(b *tab, _ ledgerURL) {
		b.open("/leases")
		b.press(`.list a[href*="/items/"]`)
		b.reads("Take it back …")
		b.press(`.acts a.btn`)
		b.reads("Nothing is changed yet", "is worked once more")
		b.press(`button[value="release"]`)
		b.undoes("release", "1 item")
	}},
	{"decide what is in doubt: it took effect", func(b *tab, _ ledgerURL) {
		b.open("/desk")
		b.press(`.queue a:has(.doubt)`)
		b.reads("reader-1", "It took effect")
		b.press(`article button[value="decide done"]`)
		b.undoes("decide", "1 item")
	}},
	{"decide what is in doubt: it did not", func(b *tab, _ ledgerURL) {
		b.open("/desk")
		b.press(`.queue a:has(.doubt)`)
		b.press(`article button[value="retry"]`)
		b.undoes("retry", "1 item")
	}},
	{"decide dead items by their cause", func(b *tab, _ ledgerURL) {
		b.open("/desk")
		b.press(`.queue a:has(.dead)`)
		b.reads("no answer", "Retry 3")
		b.press(`article button[value="cancel"]`)
		b.undoes("cancel", "3 items")
	}},
	{"take, keep, finish and undo on the desk", func(b *tab, l ledgerURL) {
		b.open("/desk")
		b.press(`form[action$="/desk/take"] button`)
		b.reads("draft-", "Yours until")
		b.press(`button[value="keep"]`)
		b.reads("Yours until")
		b.press(`button[value="done"]`)
		b.reads("done, sent at")
		b.press(`form.undo button`)
		b.press(`button[value="release"]`)
		b.reads("handed back, sent at")
		b.press(`form.undo button`)
		if text := b.text(); strings.Contains(text, "sent at") {
			b.t.Errorf("it is not undone:\n%s", text)
		}
		if n := l.count(b.t, "kind:article state:leased"); n < 5 {
			b.t.Errorf("%d articles are taken", n)
		}
	}},
	{"retry what is ticked, counted first", func(b *tab, _ ledgerURL) {
		b.open("/items?where=state:dead")
		must(b.t, chromedp.Do(b.ctx, chromedp.Click(`.list input[name="id"]`)))
		b.press(`button[formaction$="/act"]`)
		b.reads("Retry: 1")
		b.press(`button[value="retry"]`)
		b.undoes("retry", "1 item")
	}},
	{"filter", func(b *tab, _ ledgerURL) {
		b.open("/items?where=state:dead")
		must(b.t, chromedp.Do(b.ctx, chromedp.SetValue("#w", "kind:mail")))
		b.press(`form[role="search"] button`)
		b.reads("2 items match", "reader-2")
	}},
}

// TestForms: each act of the pages without JavaScript.
func TestForms(t *testing.T) {
	t.Parallel()
	l, s := formsLedger(t)
	b := newTab(t, s.base)
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled,
		emulation.SetScriptExecutionDisabledParams{Value: true})
	must(t, err)
	b.open(s.link)
	for _, act := range formActs {
		t.Run(act.what, func(t *testing.T) {
			b.t = t
			act.do(b, l)
			if eval[string](b, "document.getElementById('live').textContent") != "" {
				t.Error("the script runs")
			}
			if found := b.complaints(); found != nil {
				t.Errorf("%q", found)
			}
		})
	}
}
