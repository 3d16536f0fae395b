package webtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/audits"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// deadline bounds the wait for one condition or page. It is far more than either takes: it ends a test that hangs.
const deadline = 3 * time.Minute

// A tab is one tab of the browser. It collects the complaints of the page and the browser.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string

	fitted int // number of pages that fits has checked

	mu       sync.Mutex
	problems []string
}

// patience is the longest that a tab may be open.
const patience = 6 * time.Minute

// newTab opens a tab of a person who has no cookies yet.
func newTab(t *testing.T, base string) *tab {
	t.Helper()
	ctx, end := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(end)
	ctx, stop := context.WithTimeout(ctx, patience) // a wait without end ends the test
	t.Cleanup(stop)
	return watch(t, ctx, base)
}

// watch opens the tab of a context and listens to complaints.
func watch(t *testing.T, ctx context.Context, base string) *tab {
	t.Helper()
	b := &tab{t: t, ctx: ctx, base: base}
	must(t, chromedp.Listen(ctx, b.heard))
	_, err := chromedp.Call(ctx, audits.Enable, cdp.Empty{})
	must(t, err)
	return b
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// hasFigures matches the pages that show figures of the whole ledger.
var hasFigures = regexp.MustCompile(`(/|/desk|/work|/limits)(\?.*)?$`)

// heard keeps complaints: errors in the console, exceptions, and reports of the policy for content.
func (b *tab) heard(event any) {
	problem := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			problem = e.Entry.Text
			if strings.Contains(problem, "status of 503") && hasFigures.MatchString(e.Entry.URL) {
				problem = "" // the page tells that the figures are being counted, see open
			}
		}
	case *runtime.EventConsoleAPICalled:
		problem = fmt.Sprint("console.", e.Type)
	case *runtime.EventExceptionThrown:
		problem = e.ExceptionDetails.Text
	case *page.EventJavascriptDialogOpening:
		problem = "a dialog: " + e.Message
	case *audits.EventIssueAdded:
		if d := e.Issue.Details; d != nil && d.ContentSecurityPolicyIssueDetails != nil {
			problem = "content security policy: " + d.ContentSecurityPolicyIssueDetails.ViolatedDirective
		}
	}
	if problem != "" {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.problems = append(b.problems, problem)
	}
}

// complaints returns the complaints since the last call.
func (b *tab) complaints() (all []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	all, b.problems = b.problems, nil
	return all
}

// open loads a page and returns its status.
func (b *tab) open(at string) int64 {
	b.t.Helper()
	if !strings.HasPrefix(at, "http") {
		at = b.base + at
	}
	ctx, done := context.WithTimeout(b.ctx, deadline)
	defer done()
	for {
		answer, err := chromedp.RunResponse(ctx, chromedp.Navigate(at))
		if err != nil {
			b.t.Fatalf("%s: %v", at, err)
		}
		if answer.Headers["Refresh"] == nil {
			return answer.Status
		}
		at = answer.URL // the figures are being counted, so the page would load again
		// Its own reload must not come beside the next one.
		if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil {
			b.t.Fatalf("%s: %v", at, err)
		}
	}
}

// eval evaluates an expression in the page.
func eval[T any](b *tab, expression string, opts ...chromedp.EvaluateOption) T {
	b.t.Helper()
	ctx, done := context.WithTimeout(b.ctx, deadline)
	defer done()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, append(opts, chromedp.EvalAwaitPromise)...))
	if err != nil {
		b.t.Fatalf("%.200s: %v", expression, err)
	}
	return value
}

// looks sets the width of the window and the colours that the person prefers.
func (b *tab) looks(width int64, colours string) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: width, Height: 900, DeviceScaleFactor: 1})
	must(b.t, err)
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: colours}}})
	must(b.t, err)
}

var axe = sync.OnceValues(func() ([]byte, error) { return os.ReadFile("node_modules/axe-core/axe.min.js") })

// loadAxe loads axe-core beside the page, into an isolated world: the page's policy does not hold there, and the page
// does not see it. inWorld is the option to evaluate an expression there.
func (b *tab) loadAxe() (inWorld chromedp.EvaluateOption) {
	b.t.Helper()
	script, err := axe()
	if err != nil {
		b.t.Fatalf("%v; make node-packages gets it", err)
	}
	tree, err := chromedp.Call(b.ctx, page.GetFrameTree, cdp.Empty{})
	must(b.t, err)
	world, err := chromedp.Call(b.ctx, page.CreateIsolatedWorld, page.CreateIsolatedWorldParams{
		FrameID: tree.FrameTree.Frame.ID, WorldName: "axe"})
	must(b.t, err)
	inWorld = func(p *runtime.EvaluateParams) { p.ContextID = world.ExecutionContextID }
	eval[bool](b, string(script)+"; true", inWorld)
	return inWorld
}

// barriers returns what breaks the rules of WCAG 2.2 AA in the page as it looks now. inWorld is from loadAxe.
func (b *tab) barriers(inWorld chromedp.EvaluateOption) []string {
	b.t.Helper()
	found := eval[string](b, `axe.run(document, { resultTypes: ["violations"], runOnly: ["wcag2a", "wcag2aa", "wcag21a",
		"wcag21aa", "wcag22a", "wcag22aa"] }).then((r) => JSON.stringify(r.violations.flatMap((v) => v.nodes.map((n) =>
		v.id + ": " + n.html.slice(0, 200) + " " + n.failureSummary.replace(/\s+/g, " ")))))`, inWorld)
	var all []string
	must(b.t, json.Unmarshal([]byte(found), &all))
	return all
}
