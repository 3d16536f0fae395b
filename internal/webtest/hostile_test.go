package webtest

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
)

// hostile makes 200 texts that a page must show as text, not as a part of itself.
func hostile() (all []string) {
	scripts := []string{"alert(1)", "globalThis.hit=1", "fetch('//evil.example')", "document.title='hit'"}
	frames := []string{"<script>%s</script>", "<img src=x onerror=%s>", "\"><svg onload=%s>", "'><body onload='%s'>",
		"javascript:%s", "\" onfocus=\"%s\" autofocus=\"", "</textarea><script>%s</script>", "</pre><script>%s</script>",
		"</style><script>%s</script>", "<!--<script>%s</script>", "{{%s}}", "${%s}", "&lt;script&gt;%s&lt;/script&gt;",
		"<a href=\"javascript:%s\">a</a>", "<iframe srcdoc=\"<script>%s</script>\">", "<form action=javascript:%s><button>",
		"<details open ontoggle=%s>", "<meta http-equiv=refresh content=\"0;url=javascript:%s\">", "<base href=//evil.example>%s",
		"<link rel=stylesheet href=//evil.example?%s>", "<style>*{background:url(//evil.example?%s)}</style>",
		"%%3Cscript%%3E%s%%3C/script%%3E", "\u202e%s\u202c", "a\u0085<script>%s</script>", "<math><mi xlink:href=javascript:%s>",
		"</title><script>%s</script>", "<object data=javascript:%s>", "<input onfocus=%s autofocus>", "a\tb<script>%s</script>",
		"+ADw-script+AD4-%s", "]]><script>%s</script>", "<svg><use href=\"data:image/svg+xml,%s\">", "'-%s-'", "\\\";%s;//",
		"<template><script>%s</script></template>", "<noscript><p title=\"</noscript><img src=x onerror=%s>\">",
		"<xss style=animation-name:x onanimationstart=%s>", "<video><source onerror=%s>", "<marquee onstart=%s>",
		"<keygen autofocus onfocus=%s>", "<portal src=javascript:%s>", "<image href=x onerror=%s>", "<select autofocus onfocus=%s>",
		"<a download=%s href=//evil.example>", "<button formaction=javascript:%s>", "<embed src=javascript:%s>",
		"<isindex action=javascript:%s>", "<frameset onload=%s>", "<plaintext>%s", "<dialog open onclose=%s>"}
	for _, frame := range frames {
		for _, script := range scripts {
			all = append(all, fmt.Sprintf(frame, script))
		}
	}
	return all
}

// hostileLedger has items with the texts as keys and payloads, the last 50 of which recur. The payload of each
// sixteenth has the next 15 texts, too, so that its page shows all of them. Each tenth text is the error of ten items
// and in their output; some are scopes, agents and logs.
func hostileLedger(t *testing.T, texts []string) *server {
	t.Helper()
	l, s := newLedger(t, 0, 0)
	var rows [4]strings.Builder
	for i, text := range texts {
		payload := map[string]any{"key": text, "title": text}
		if i%16 == 0 {
			payload["more"] = texts[i:min(i+16, len(texts))]
		}
		row, err := json.Marshal(payload)
		must(t, err)
		rows[i/50].Write(append(row, '\n'))
	}
	for i := range rows {
		flags := []string{"--scope", texts[8*i], "--key", "key", "--from", write(t, "rows.jsonl", rows[i].String())}
		if i == 3 {
			flags = append(flags, "--every", "day")
		}
		_, err := l.do(nil, append([]string{"add", "page"}, flags...)...)
		must(t, err)
	}
	for i := range 20 { // ten in one call: a call for each would take most of the time
		tokens, err := l.claim("page", 10, "--agent", texts[4+8*i])
		must(t, err)
		result, err := json.Marshal(map[string]string{"said": texts[10*i]})
		must(t, err)
		must(t, l.finish(tokens, "--outcome", "permanent", "--code", "boom", "--error", texts[10*i], "--result", string(result)))
	}
	shout := write(t, "shout.sh", "#!/bin/sh\necho \"$1\" >&2\nexit 65\n")
	must(t, os.Chmod(shout, 0o700))
	var lines strings.Builder
	for i := range 4 {
		lines.WriteString(texts[16*i] + "\n")
	}
	_, err := l.do(strings.NewReader(lines.String()), "run", "shout", "-", "--plugin", "exec", "--input", "line", "--with",
		"command="+shout+",{key}")
	if err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Fatalf("the logs are not made: %v", err)
	}
	return s
}

// TestHostile: 200 hostile texts, see hostileLedger, and twelve of them are filters, three on a page. On the lists and
// on the pages of the items with 16 texts no script runs, nothing is asked of another host, and the policy for content
// reports nothing.
func TestHostile(t *testing.T) {
	t.Parallel()
	texts := hostile()
	if len(texts) != 200 {
		t.Fatalf("there are %d texts", len(texts))
	}
	s := hostileLedger(t, texts)
	b := newTab(t, s.base)
	b.open(s.link)
	menu := eval[[]string](b, `[...document.querySelectorAll("nav[aria-label=Pages] a")].map((a) => a.pathname)`)
	for _, at := range append(menu, "/items?order=-id", "/items?where=code:boom", "/items/203") {
		b.open(at)
		b.unharmed(at)
	}
	b.reads("exited with 65", "Log")
	b.open("/rounds")
	b.reads("<script>", "still open")
	for i, text := range texts {
		switch {
		case i%16 == 0:
			at := fmt.Sprintf("/items/%d", i+1)
			b.open(at)
			b.unharmed(at)
			if key := eval[string](b, "document.querySelector('h1').textContent"); !strings.Contains(strings.Join(texts, "\n"), key) {
				t.Errorf("%s: the key is shown as %q", at, key)
			}
		case i%52 == 9:
			filter := strings.Join([]string{text, texts[i+13], texts[i+26]}, " ")
			at := "/items?where=" + url.QueryEscape(filter)
			b.open(at)
			b.unharmed(at)
			if shown := eval[string](b, "document.getElementById('w').value"); shown != filter {
				t.Errorf("the filter %q is shown as %q", filter, shown)
			}
		}
	}
}

// unharmed checks that no text became a part of the page.
func (b *tab) unharmed(at string) {
	b.t.Helper()
	for _, complaint := range b.complaints() {
		if !strings.Contains(complaint, "status of 400") { // most of the texts are no valid filters
			b.t.Errorf("%s: %s", at, complaint)
		}
	}
	harm := eval[string](b, `[globalThis.hit ? "a script ran" : "", document.title === "hit" ? "the title changed" : "",
		...[...document.querySelectorAll("main script, iframe, object, embed, main img, base, meta[http-equiv], main style, main link, [onload], [onerror], [onfocus], [autofocus]")].map((e) => e.outerHTML),
		...[...document.querySelectorAll("a, form, button")].filter((e) => /^\s*javascript:/i.test(e.getAttribute("href") ??
		e.getAttribute("action") ?? e.getAttribute("formaction") ?? "")).map((e) => e.outerHTML)].filter(Boolean).join("; ")`)
	if harm != "" {
		b.t.Errorf("%s: %s", at, harm)
	}
}
