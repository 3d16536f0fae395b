package feed

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// TestRounds: a feed is read, and the next round asks only for changes.
func TestRounds(t *testing.T) {
	text, version := rss(entry("1", "One"), entry("2", "Two")), `"v1"`
	var asked []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("If-None-Match")+"|"+r.Header.Get("If-Modified-Since"))
		if r.Header.Get("If-None-Match") == version {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", version)
		w.Header().Set("Last-Modified", "Fri, 20 Nov 2026 08:00:00 GMT")
		fmt.Fprint(w, text)
	})
	h := reader(t)
	first := h.Run(sdktest.Task{Payload: In{URL: url}})
	if first.Outcome != "done" || keys(first) != "1 2" {
		t.Fatalf("%+v", first)
	}
	out := sdktest.Decode[Out](t, first)
	want := Out{Status: 200, FinalURL: url, ETag: `"v1"`, LastModified: "Fri, 20 Nov 2026 08:00:00 GMT",
		Digest: out.Digest,
		Format: "rss 2.0", Title: "A feed", Entries: 2, Bytes: len(text)}
	if diff := cmp.Diff(want, out); diff != "" || len(out.Digest) != 64 {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	if d := cmp.Diff(Article{Feed: url, FeedTitle: "A feed", ID: "1", Link: "http://a.example/1", Title: "One"},
		articles(t, first)[0]); d != "" {
		t.Errorf("article (-want +got):\n%s", d)
	}

	second := h.Run(sdktest.Task{Payload: In{URL: url}, Previous: out})
	want.Status = 304
	if diff := cmp.Diff(want, sdktest.Decode[Out](t, second)); second.Outcome != "skipped" || len(second.Emitted) > 0 ||
		diff != "" {
		t.Errorf("unchanged: %+v\n(-want +got):\n%s", second, diff)
	}

	text, version = rss(entry("1", "One"), entry("2", "Two, changed"), entry("3", "Three")), `"v2"`
	third := h.Run(sdktest.Task{Payload: In{URL: url}, Previous: sdktest.Decode[Out](t, second)})
	if third.Outcome != "done" || keys(third) != "1 2 3" || sdktest.Decode[Out](t, third).ETag != `"v2"` {
		t.Errorf("changed: %+v", third)
	}
	for i, a := range articles(t, third)[:2] { // the ledger drops items whose keys it already has
		if a.ID != first.Emitted[i].Key || third.Emitted[i].Key != a.ID || third.Emitted[i].Fingerprint != "" {
			t.Errorf("an entry that was changed has another identity: %+v", third.Emitted[i])
		}
	}
	if d := cmp.Diff([]string{"|", `"v1"|Fri, 20 Nov 2026 08:00:00 GMT`, `"v1"|Fri, 20 Nov 2026 08:00:00 GMT`},
		asked); d != "" {
		t.Errorf("asked (-want +got):\n%s", d)
	}
}

// TestSameBytes: if a server sends no versions, the feed is fetched in full. If its bytes are the same, nothing is
// emitted.
func TestSameBytes(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, rss(entry("1", "One"))) })
	h := reader(t)
	out := sdktest.Decode[Out](t, h.Run(sdktest.Task{Payload: In{URL: url}}))
	r := h.Run(sdktest.Task{Payload: In{URL: url}, Previous: out})
	if r.Outcome != "skipped" || len(r.Emitted) > 0 {
		t.Errorf("%+v", r)
	}
	if d := cmp.Diff(out, sdktest.Decode[Out](t, r)); d != "" {
		t.Errorf("output (-want +got):\n%s", d)
	}
	r = h.Run(sdktest.Task{Payload: In{URL: url}, Previous: []string{"of another version"}})
	if r.Outcome != "done" || !strings.Contains(strings.Join(r.Log, ""), "read anew") {
		t.Errorf("after an output that cannot be read: %+v", r)
	}
}

// TestMoved: the target of permanent redirects is stored. If the target fails permanently, the given URL is used
// again.
func TestMoved(t *testing.T) {
	gone := false
	var asked []string
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, strings.TrimPrefix(r.URL.Path+" "+r.Header.Get("If-None-Match"), "/"))
		switch r.URL.Path {
		case "/old", "/good":
			http.Redirect(w, r, map[string]string{"/old": "/older", "/good": "/feed"}[r.URL.Path], http.StatusPermanentRedirect)
		case "/older":
			http.Redirect(w, r, "/feed", http.StatusMovedPermanently)
		case "/away":
			http.Redirect(w, r, "/good", http.StatusFound)
		case "/parked":
			fmt.Fprint(w, "<html><body>for sale</body></html>")
		case "/feed":
			if gone {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("ETag", "v")
			fmt.Fprint(w, rss(entry("1", "One")))
		}
	})
	h := reader(t)
	get := func(path string, before any) (Out, sdktest.Result) {
		asked = nil
		r := h.Run(sdktest.Task{Payload: In{URL: url + path}, Previous: before})
		return sdktest.Decode[Out](t, r), r
	}
	out, _ := get("/away", nil)
	if out.MovedTo != "" || out.FinalURL != url+"/feed" {
		t.Errorf("behind a redirect for now: %+v", out)
	}
	out, _ = get("/old", nil)
	if out.MovedTo != url+"/feed" || !slices.Equal(asked, []string{"old ", "older ", "feed "}) {
		t.Errorf("moved: %+v, asked %q", out, asked)
	}
	out, _ = get("/old", out)
	if out.MovedTo != url+"/feed" || !slices.Equal(asked, []string{"feed v"}) {
		t.Errorf("the next round: %+v, asked %q", out, asked)
	}
	gone = true
	failed, r := get("/old", out)
	if r.Code != "http_404" || !slices.Equal(asked, []string{"feed v", "old ", "older ", "feed v"}) {
		t.Errorf("when it is gone: %+v, %+v, asked %q", failed, r, asked)
	}
	gone = false
	out, r = get("/feed", Out{MovedTo: url + "/parked"})
	if r.Outcome != "done" || out.MovedTo != "" || !slices.Equal(asked, []string{"parked ", "feed "}) {
		t.Errorf("when it is no feed any more: %+v, %+v, asked %q", out, r, asked)
	}
	failed, r = get("/feed", Out{MovedTo: "http://127.0.0.1:1/"})
	if r.Code != "refused" || r.Final {
		t.Errorf("while moved_to is down, the given URL was asked: %+v, %+v", failed, r)
	}
}

func TestPasswordIsNotRemembered(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "ann" || password != "secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.URL.Path == "/" {
			http.Redirect(w, r, "/feed", http.StatusMovedPermanently)
			return
		}
		fmt.Fprint(w, rss(entry("1", "One")))
	})
	r := reader(t).Run(sdktest.Task{Payload: In{URL: strings.Replace(url, "//", "//ann:secret@", 1)}})
	if r.Outcome != "done" || strings.Contains(string(r.Output), "secret") ||
		strings.Contains(fmt.Sprintf("%s", r.Emitted[0].Payload), "secret") || sdktest.Decode[Out](t, r).MovedTo != "" {
		t.Errorf("%+v", r)
	}
}

// TestAnswers: answers that are not a feed, and their outcomes.
func TestAnswers(t *testing.T) {
	for _, tt := range []struct {
		name    string
		answer  http.HandlerFunc
		code    string
		mention string
	}{
		{"gone", status(410, ""), "http_410", "ledgerd cancel"},
		{"unasked 304", status(304, ""), "http_304", "304"},
		{"no content", status(204, ""), "http_204", "204"},
		{"empty", say("text/xml", ""), "not_a_feed", "empty"},
		{"a page",
			say("text/html",
				`<!doctype html><html><head><link rel=alternate type=application/rss+xml href="/feed.xml"><p>x<br>`), "not_a_feed", "its feed is at /feed.xml"},
		{"a page without", say("text/html; charset=utf-8", `<html><body>no`), "not_a_feed", `begins with "<html><body>no"`},
		{"a picture", say("image/png", "\x89PNG\r\n"), "not_a_feed", `PNG"`},
		{"another XML", say("text/xml", `<?xml version="1.0"?><svg/>`), "not_a_feed", `<svg/>"`},
		{"an API", say("application/json", `{"error":"no"}`), "not_a_feed", "no JSON Feed"},
		{"broken JSON", say("application/json", `{"version":"https://jsonfeed.org/version/1","items":[`), "bad_feed",
			"EOF"},
		{"broken XML", say("text/xml", "<rss version=\"2.0\"><channel>\n<item></channel>"), "bad_feed", "line 2"},
		{"a charset of its own",
			say("text/xml",
				"<?xml version=\"1.0\" encoding=\"x-mine\"?><rss><channel><title>\xff</title></channel></rss>"), "bad_charset", "x-mine"},
		{"packed unasked", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "br")
			fmt.Fprint(w, "x")
		}, "bad_encoding", "br"},
		{"nowhere", status(301, ""), "bad_redirect", "Location"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := reader(t).Run(sdktest.Task{Payload: In{URL: serve(t, tt.answer)}})
			if r.Outcome != "failed" || r.Code != tt.code || !r.Final || r.Delay != 0 ||
				!strings.Contains(r.Error, tt.mention) {
				t.Errorf("got %+v, want %s, final, with %q", r, tt.code, tt.mention)
			}
			if len(r.Emitted) > 0 {
				t.Errorf("emitted %d", len(r.Emitted))
			}
		})
	}
}

// TestAbortedHTTP2: a server that gives a request of HTTP/2 up in the middle may answer the next one.
func TestAbortedHTTP2(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			fmt.Fprint(w, "<rss>")
			w.(http.Flusher).Flush()
		}
		panic(http.ErrAbortHandler)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	cfg := Config{AllowPrivate: true, PerHost: 2, Deadline: time.Minute, MaxBody: 1 << 20}
	must.OK(t, cfg.Open(t.Context()))
	cfg.fetcher.Transport.TLSClientConfig.RootCAs = x509.NewCertPool()
	cfg.fetcher.Transport.TLSClientConfig.RootCAs.AddCert(srv.Certificate())
	for path, text := range map[string]string{"/": "INTERNAL_ERROR", "/body": "after 5 bytes"} {
		_, err := cfg.fetcher.fetch(t.Context(), srv.URL+path, Out{})
		if f, ok := errors.AsType[*failure.Error](err); !ok || f.Code != "reset" || f.Fate != failure.Again ||
			!strings.Contains(f.Error(), text) {
			t.Errorf("%s: %+v, want reset, tried again", path, err)
		}
	}
	must.OK(t, cfg.Close())
}

// TestPackings: a feed is refused only if it is packed in a way that was not asked for.
func TestPackings(t *testing.T) {
	h := reader(t)
	for encoding, code := range map[string]string{"identity": "", "UTF-8": "", "none": "", "break": "",
		"gzip, br": "bad_encoding", "X-Gzip": "bad_encoding", "zstd": "bad_encoding"} {
		r := h.Run(sdktest.Task{Payload: In{URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", encoding)
			fmt.Fprint(w, rss(entry("1", "One")))
		})}})
		if r.Code != code || (keys(r) == "1") != (code == "") {
			t.Errorf("%s: %s %q, emitted %q", encoding, r.Outcome, r.Code, keys(r))
		}
	}
}

func status(code int, after string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(code)
	}
}

func say(contentType, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		fmt.Fprint(w, text)
	}
}

// TestPrivateAddresses: private addresses are refused, also if a feed has moved to one.
func TestPrivateAddresses(t *testing.T) {
	h := sdktest.New(t, Plugin(), sdktest.Options{InProcess: true})
	for _, url := range []string{"http://127.0.0.1/", "http://[::1]/", "http://169.254.169.254/latest",
		"http://10.0.0.1/"} {
		for _, task := range []sdktest.Task{{Payload: In{URL: url}}, {Payload: In{URL: url}, Previous: Out{MovedTo: url}}} {
			if r := h.Run(task); r.Code != "private_address" || !r.Final {
				t.Errorf("%s: %+v", url, r)
			}
		}
	}
	for _, url := range []string{"ftp://a.example/", "http://", "http://2130706433/", "x"} {
		if r := h.Run(sdktest.Task{Payload: json.RawMessage(fmt.Sprintf(`{"url":%q}`, url))}); r.Code != "bad_url" ||
			!r.Final {
			t.Errorf("%s: %+v", url, r)
		}
	}
}

// TestPoliteness: only a few feeds of a host are read at a time. A feed that is refused for an hour does not delay the
// other feeds of its host.
func TestPoliteness(t *testing.T) {
	var mu sync.Mutex
	now, most, refused := 0, 0, 0
	hold := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		defer func() {
			mu.Lock()
			now--
			mu.Unlock()
		}()
		if r.URL.Path == "/enough" {
			refused++
			status(429, "3600")(w, r)
			return
		}
		<-hold
		fmt.Fprint(w, rss(entry("1", "One")))
	})
	h := reader(t)
	var wg sync.WaitGroup
	results := make(chan sdktest.Result, 8)
	for i := range 8 {
		wg.Go(func() { results <- h.Run(sdktest.Task{Payload: In{URL: fmt.Sprint(url, "/", i)}}) })
	}
	for range 6 { // the feeds that have to wait are snoozed
		if r := <-results; r.Outcome != "snoozed" || r.Delay <= 0 {
			t.Errorf("%+v", r)
		}
	}
	close(hold)
	wg.Wait()
	for range 2 {
		if r := <-results; r.Outcome != "done" {
			t.Errorf("%+v", r)
		}
	}
	if most != 2 {
		t.Errorf("%d at a time", most)
	}
	if r := h.Run(sdktest.Task{Payload: In{URL: url + "/enough"}}); r.Code != "http_429" || r.Delay != time.Hour {
		t.Errorf("%+v", r)
	}
	if r := h.Run(sdktest.Task{Payload: In{URL: url + "/another"}}); r.Outcome != "done" || r.Delay > 0 {
		t.Errorf("another feed of the host: %+v", r)
	}
}
