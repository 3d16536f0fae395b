package feed

import (
	"fmt"
	"net"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// forever sends s repeatedly until the other side closes the connection.
func forever(conn net.Conn, head, s string) {
	for _, err := conn.Write([]byte(head)); err == nil; {
		_, err = conn.Write([]byte(s))
	}
}

const okHead = "HTTP/1.1 200 OK\r\nContent-Type: text/xml\r\n\r\n"

// TestHostile: a hostile server or feed cannot take much more time than the deadline, or much more memory than a few
// times max_body.
func TestHostile(t *testing.T) {
	long := strings.Repeat("<item><a/><b/><c/><d/></item>", 5_000)
	grows := growing(300 << 10)
	most := "<p>"
	for i := range 500 {
		most += fmt.Sprintf("<b a%03d>", i)
	}
	most += strings.Repeat("<p>x", int(maxHTML-growth([]byte(most)))/500/(copySize+7*copyBytes))
	atom := func(attr, content string) func(*testing.T) string {
		return body(`<feed xmlns="http://www.w3.org/2005/Atom"` + attr + `><entry><id>1</id>` + content + `</entry></feed>`)
	}
	item := func(inner string) string { return rss("<item><guid>1</guid>" + inner + "</item>") }
	for _, tt := range []struct {
		name    string
		url     func(t *testing.T) string
		code    string // "" means that the feed is read
		message string
	}{
		{"endless body", talking(func(conn net.Conn) {
			forever(conn, okHead+"<rss>", strings.Repeat("<item>x</item>", 1000))
		}), "too_large", "max_body"},
		{"slow body", talking(func(conn net.Conn) {
			_, _ = conn.Write([]byte(okHead + "<rss>"))
			_, _ = conn.Read(make([]byte, 1))
		}), "timeout", ""},
		{"states how large it is", talking(func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n<rss>"))
		}), "too_large", "max_body"},
		{"breaks off", talking(func(conn net.Conn) {
			_, _ = conn.Write([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n<rss>"))
		}), "reset", "after 5 bytes"},
		{"a gzip bomb", handling(func(w http.ResponseWriter, _ *http.Request) {
			gzipped(w, strings.Repeat(" ", 1<<20), 1000)
		}), "too_large", "max_body"},
		{"a good gzip", handling(func(w http.ResponseWriter, _ *http.Request) { gzipped(w, rss(entry("1", "One")), 1) }), "",
			""},
		{"no gzip", handling(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			fmt.Fprint(w, rss(entry("1", "One")))
		}), "bad_response", "gzip"},
		{"a billion laughs",
			body(
				`<?xml version="1.0"?><!DOCTYPE rss [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"><!ENTITY c "&b;&b;&b;&b;&b;">]>` +
					strings.TrimPrefix(item("<title>&c;</title>"), `<?xml version="1.0"?>`)), "", ""},
		{"a file of this machine", body(`<!DOCTYPE rss [<!ENTITY a SYSTEM "file:///etc/passwd">]>` +
			strings.TrimPrefix(item("<title>&a;</title>"), `<?xml version="1.0"?>`)), "", ""},
		{"depth", body(item(strings.Repeat("<a:a>", 300_000))), "too_large", "inside of more than 100"},
		{"depth in JSON", body(`{"version":"https://jsonfeed.org/version/1","x":` + strings.Repeat("[", 300_000)),
			"too_large", "inside of more than 100"},
		{"entries", body(rss(long)), "", ""},
		{"more entries", body(rss(long + long + long)), "too_large", "entries"},
		{"objects", body(`{"version":"https://jsonfeed.org/version/1","items":[` + strings.Repeat("{},", 600_000) + "{}]}"),
			"too_large", "entries"},
		{"elements", body(item(strings.Repeat("<a/>", 300_000))), "too_large", "parts"},
		{"attributes", body("<rss" + strings.Repeat(" a='1'", 600_000) + "></rss>"), "too_large", "parts"},
		{"texts without end", body(item("<a:a>" + strings.Repeat("0123456789<!---->", 200_000) + "</a:a>")), "?", ""},
		{"one word", body(rss(entry("1", strings.Repeat("x", 1<<20)))), "", ""},
		{"what XML cannot hold", body(rss(entry("1", "a\x00\x01\x1b\ufffeb"))), "", ""},
		{"HTML that grows", body(item("<description><![CDATA[" + grows + "]]></description>")), "", ""},
		{"HTML that grows, with a base", atom(` xml:base="http://a.example/"`, `<content type="html"><![CDATA[`+grows+
			`]]></content>`), "", ""},
		{"as much as may grow", atom(` xml:base="http://a.example/"`, `<content type="html"><![CDATA[`+most+`]]></content>`),
			"", ""},
		{"just more", atom(` xml:base="http://a.example/"`, `<content type="html"><![CDATA[`+most+`<p>x<p>x]]></content>`),
			"", ""},
		{"XHTML that grows", atom("", `<content type="xhtml"><div>`+grows+`</div></content>`), "", ""},
		{"many that grow", atom("", strings.Repeat(`<content type="xhtml"><div>`+growing(30<<10)+`</div></content>`, 40)),
			"", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			deadline := time.Minute
			switch tt.code {
			case "timeout":
				deadline = 300 * time.Millisecond
			case "?":
				deadline = time.Second
			}
			h := reader(t, func(c *Config) { c.Deadline, c.MaxBody = deadline, 4<<20 })
			url := tt.url(t)
			began := time.Now()
			r := h.Run(sdktest.Task{Payload: In{URL: url}})
			if took := time.Since(began); took > 2*time.Minute {
				t.Errorf("took %s", took)
			}
			if tt.code == "?" { // the result depends on the speed of the machine
				return
			}
			if r.Code != tt.code || !strings.Contains(r.Error, tt.message) || (tt.code == "") != (r.Outcome == "done") {
				t.Fatalf("got %s %s %q, want %s with %q", r.Outcome, r.Code, r.Error, tt.code, tt.message)
			}
			for _, a := range articles(t, r) {
				if strings.Contains(a.Title, "root:") || strings.Contains(a.Title, "haha") || strings.ContainsRune(a.Title, 0) ||
					len(a.Title) > maxText {
					t.Errorf("title %q", a.Title)
				}
			}
		})
	}
	before := debug.SetMemoryLimit(512 << 20) // what lives is measured, not what was not collected yet
	t.Cleanup(func() {                        // after all subtests
		debug.SetMemoryLimit(before)
		var m runtime.MemStats
		if runtime.ReadMemStats(&m); m.Sys > 1<<30 {
			t.Errorf("took %d MiB", m.Sys>>20)
		}
	})
}

// growing returns HTML of this length. In its tree, each paragraph has 400 elements.
func growing(length int) string {
	var b strings.Builder
	b.WriteString("<p>")
	for i := range 400 {
		fmt.Fprintf(&b, "<b a='%d'/>", i)
	}
	b.WriteString("</p>")
	return b.String() + strings.Repeat("<p>x</p>", (length-b.Len())/8)
}

func talking(talk func(net.Conn)) func(*testing.T) string {
	return func(t *testing.T) string { return raw(t, talk) }
}

func handling(h http.HandlerFunc) func(*testing.T) string {
	return func(t *testing.T) string { return serve(t, h) }
}

func body(text string) func(*testing.T) string { return handling(say("application/xml", text)) }

// TestCancel: an item that is cancelled does not wait for its server.
func TestCancel(t *testing.T) {
	url := raw(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) })
	if r := reader(t).Run(sdktest.Task{Payload: In{URL: url}, Fault: sdktest.Cancel}); r.Outcome != "cancelled" {
		t.Errorf("%+v", r)
	}
}
