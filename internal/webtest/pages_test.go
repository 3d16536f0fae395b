package webtest

import (
	"fmt"
	"testing"
)

// TestPages looks at every page of the menu, at pages below these and at pages with a problem, in light and dark, on a
// phone and on a screen: nothing complains, nothing breaks the rules of WCAG 2.2 AA, nothing scrolls sideways.
func TestPages(t *testing.T) {
	t.Parallel()
	b := newTab(t, work.base)
	if status := b.open("/login"); status != 200 {
		t.Fatalf("the page to log in has status %d", status)
	}
	b.fits("/login")
	if status := b.open(work.link); status != 200 {
		t.Fatalf("the link to log in leads to status %d", status)
	}
	menu := eval[[]string](b, `[...document.querySelectorAll("nav[aria-label=Pages] a")].map((a) => a.pathname)`)
	if len(menu) < 6 {
		t.Fatalf("the menu has only %q", menu)
	}
	dead := eval[string](b, `fetch("/items?where=state:dead").then((r) => r.text()).then((t) => t.match(/\/items\/\d+/)[0])`)
	for _, at := range append(menu, dead, "/items?where=state:dead", "/items?where=state:doubt", "/items/1",
		"/act?where=state:dead") {
		if status := b.open(at); status != 200 {
			t.Errorf("%s: status %d", at, status)
		}
		b.fits(at)
	}
	if all := b.complaints(); all != nil {
		t.Errorf("complaints: %q", all)
	}
	for at, want := range map[string]int64{"/items?where=state:ded": 400, "/items/4711000": 404, "/nowhere": 404} {
		if status := b.open(at); status != want {
			t.Errorf("%s: status %d", at, status)
		}
		b.fits(at)
	}
}

// fits checks how the page looks at each width and in each colour scheme. The rules of axe-core are about colours or
// about sizes, so it checks each width and each scheme of a page once. For every second page it is light on a phone and
// dark on a screen, for the others dark on a phone and light on a screen. All four checks of each page would take a
// third more time.
func (b *tab) fits(at string) {
	b.t.Helper()
	inWorld := b.loadAxe()
	b.fitted++
	for _, width := range []int64{360, 1280} {
		for _, colours := range []string{"light", "dark"} {
			b.looks(width, colours)
			name := fmt.Sprintf("%s at %d px in %s", at, width, colours)
			lightOnPhone := (width == 360) == (colours == "light") // or dark on a screen
			if lightOnPhone == (b.fitted%2 == 1) {
				for _, barrier := range b.barriers(inWorld) {
					b.t.Errorf("%s: %s", name, barrier)
				}
			}
			if over := eval[int](b, `document.documentElement.scrollWidth - innerWidth`); over > 0 {
				b.t.Errorf("%s: %d px stand out at the right: %s", name, over, eval[string](b, `[...document.querySelectorAll(
					"body *")].filter((e) => e.getBoundingClientRect().right > innerWidth + 1).slice(0, 5).map((e) =>
					e.outerHTML.slice(0, 120)).join("; ")`))
			}
		}
	}
}
