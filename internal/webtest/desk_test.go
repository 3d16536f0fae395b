package webtest

import (
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestDesk: by keyboard alone a person takes items, decides an item, undoes that, and decides again. The item is done
// after ten seconds. A note can be written. Dead items are decided at the same desk. Without JavaScript the buttons do
// the same.
func TestDesk(t *testing.T) {
	t.Parallel()
	l, s := newLedger(t, 4, 1)
	b := newTab(t, s.base)
	b.looks(1280, "light")
	b.open(s.link)
	b.keys("gd")
	b.reads("3 wait", "no answer", "Retry 1")
	b.keys("t")
	b.reads("1 of 4", "Yours until")
	b.ready()
	b.comes("the time that is left is shown", "/ left\\)/.test(document.querySelector('time[data-left]').textContent)")
	b.keys("j")
	b.reads("2 of 4")
	b.keys("a")
	b.reads("sent at", "Undo", "of 3")
	b.keys("u")
	b.reads("of 4")
	if n := l.count(t, "state:leased"); n != 3 {
		t.Errorf("after the undo %d of 3 items are leased", n)
	}
	b.key("n")
	b.comes("n goes to the note", "document.activeElement.id === 'note'")
	must(t, chromedp.Do(b.ctx, chromedp.KeyEvent("a note\x1b")))
	b.comes("Esc leaves it", "document.activeElement.id !== 'note'")
	b.update()
	if note := eval[string](b, "document.getElementById('note').value"); !strings.HasSuffix(note, "a note") {
		t.Errorf("after an update the note is %q", note)
	}
	b.keys("a")
	must(t, eventually("the item is done", func() (bool, error) { return l.count(t, "state:done") == 1, nil }))
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	must(t, err)
	b.open("/desk")
	b.press(`button[value="failed"]`)
	b.reads("failed, sent at")
	b.press(`form.undo button`)
	b.reads("of 3")
	if n := l.count(t, "state:leased"); n != 2 {
		t.Errorf("after the undo %d of 2 items are leased", n)
	}
	if found := b.complaints(); len(found) > 0 {
		t.Errorf("%q", found)
	}
}
