package webtest

import (
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

var servedAt = regexp.MustCompile(`the pages are served.*at"?[=:]"?(http://[0-9.:]+)`)

const traceID = "4bf92f3577b34da6a3ce929d0e0e4736"

// daemon starts ledgerd serve with a config, until the test ends, and returns where it serves its pages.
func (l ledgerURL) daemon(t *testing.T, config string) (base *url.URL) {
	t.Helper()
	cmd := l.command("serve", "--listen", "", "--config", write(t, "ledgerd.toml", config))
	out, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = (&server{cmd: cmd}).stop() })
	late := time.AfterFunc(deadline, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	found, output := await(out, servedAt)
	if found == nil {
		t.Fatalf("ledgerd serve does not serve its pages: %s", output)
	}
	base, err = url.Parse(found[1])
	must(t, err)
	return base
}

// TestProxy: a daemon serves its pages below a prefix, behind a proxy with another host name that leaves the prefix or
// takes it away. A person logs in by a token. Each page of the menu and an item open, and each of their links and
// forms stays below the prefix. The script updates the page, an act is requested and undone, an export comes, an item
// links to its trace, and the browser has no complaints.
func TestProxy(t *testing.T) {
	t.Parallel()
	const prefix, name = "/x/y", "work.localhost"
	l := ledgerAt(t.Name())
	for _, args := range [][]string{{"db", "migrate"}, {"kind", "set", "page", "--input", "line"}} {
		_, err := l.do(nil, args...)
		must(t, err)
	}
	add := l.command("add", "page", "key-1", "key-2", "key-3")
	add.Env = append(add.Env, "TRACEPARENT=00-"+traceID+"-00f067aa0ba902b7-01")
	must(t, add.Run())
	tokens, err := l.claim("page", 1)
	must(t, err)
	must(t, l.finish(tokens, "--outcome", "permanent", "--code", "http_503", "--error", "no answer"))
	token, err := l.do(nil, "token", "new", "ann", "--scope", "admin")
	must(t, err)
	token = strings.TrimSpace(token)
	to := l.daemon(t, fmt.Sprintf(`trace_url = "https://jaeger.example/trace/{trace_id}"
[api]
listen = "127.0.0.1:0"
prefix = %q
hosts = [%q]
[api.tokens.ann]
sha256 = "%x"
scopes = ["admin"]
[ui]
serve = true
`, prefix, name, sha256.Sum256([]byte(token))))
	for way, at := range map[string]string{"left": "/x/y", "taken away": ""} {
		proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = to.Scheme, to.Host, r.In.Host
			r.Out.URL.Path, r.Out.URL.RawPath = at+strings.TrimPrefix(r.In.URL.Path, prefix), ""
			r.SetXForwarded()
		}})
		t.Cleanup(proxy.Close)
		b := newTab(t, strings.Replace(proxy.URL, "127.0.0.1", name, 1)+prefix)
		t.Run("the prefix is "+way, func(t *testing.T) {
			b.t = t
			b.behindProxy(prefix, token)
		})
	}
}

// behindProxy is what a person does in TestProxy.
func (b *tab) behindProxy(prefix, token string) {
	b.t.Helper()
	b.open("/items")
	must(b.t, chromedp.Do(b.ctx, chromedp.SetValue(`input[name="token"]`, token)))
	b.press(`main form button`)
	b.reads("key-1") // the page that was asked for
	menu := eval[[]string](b, `[...document.querySelectorAll("nav[aria-label=Pages] a")].map((a) => a.pathname)`)
	if len(menu) < 6 {
		b.t.Fatalf("the menu has only %q", menu)
	}
	for _, at := range append(menu, prefix+"/items/1", prefix+"/act?where=state:dead", prefix+"/items?where=state:dead") {
		at = strings.TrimPrefix(at, prefix)
		if status := b.open(at); status != 200 {
			b.t.Errorf("%s: status %d", at, status)
		}
		out := eval[[]string](b, `[...document.querySelectorAll("a:not([href^='https://jaeger']), link, script, form, button[formaction]")].map((e) =>
			e.href || e.src || (e.hasAttribute("formaction") ? e.formAction : e.getAttribute("action") && e.action) || "").filter(
			(to) => to && !to.startsWith(location.origin + "`+prefix+`/"))`)
		if len(out) > 0 {
			b.t.Errorf("%s leaves the prefix: %q", at, out)
		}
	}
	b.comes("the script updates the page", `document.getElementById("live").textContent === "live"`)
	b.press(`form.acts button[value="retry"]`)
	b.undoes("retry", "1 item")
	b.press(`.list a[href*="/items/"]`)
	b.reads("key-1", "no answer", traceID)
	if to := eval[string](b, `document.querySelector("dl.facts a.k").href`); to != "https://jaeger.example/trace/"+traceID {
		b.t.Errorf("the trace is at %q", to)
	}
	rows := eval[string](b, `fetch("`+prefix+`/export/csv?where=state:dead").then((r) => r.text())`)
	if !strings.Contains(rows, "key-1") {
		b.t.Errorf("the export has\n%s", rows)
	}
	if found := b.complaints(); found != nil {
		b.t.Errorf("%q", found)
	}
	b.press(`button[form="logout"]`)
	b.reads("Token of the API")
	if at := eval[string](b, "location.pathname"); !strings.HasPrefix(at, prefix+"/login") {
		b.t.Errorf("the logout leads to %s", at)
	}
}
