package ui_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"testing"

	"github.com/ledgerd/ledgerd/internal/api/access"
	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/ledger"
	"github.com/ledgerd/ledgerd/ledger/scheduler"
)

// TestSizes: a first visit takes at most 40 KB in three or four requests, and each page at most 12 KB, as they come
// over the wire.
func TestSizes(t *testing.T) {
	b := newBrowser(t, "", access.Admin)
	b.get("/login?code=" + b.login.Code(b.token))
	for i := range 200 { // i*i*7919: keys that gzip cannot shorten much
		n := ledger.NewItem{Kind: fmt.Sprintf("kind-%d", i%10), Key: fmt.Sprintf("https://assets.example/%d/%d", i*i*7919, i)}
		must.Do(t)(b.l.Add(t.Context(), n))
	}
	must.OK(t, b.l.SetKind(t.Context(), "test", ledger.Kind{Name: "k", Limits: scheduler.Limits{MaxRunning: 40}}))
	for i := range 40 { // as many kinds and scopes as the page Rounds has, and more
		b.add(ledger.NewItem{Key: fmt.Sprint("report-", i), Scope: fmt.Sprint("customer-", i*i*7919), Every: "day"})
		b.finish(b.claim("w"), ledger.Result{Outcome: ledger.OutcomeFailed, Error: "boom", Final: true})
	}
	first := b.size("/")
	_, text := b.get("/")
	loaded := regexp.MustCompile(`(?:src|rel="icon" href)="([^"]+)"`).FindAllStringSubmatch(text, -1)
	for _, at := range loaded {
		first += b.size(at[1])
	}
	if requests := 1 + len(loaded); first > 40<<10 || requests > 4 || requests < 3 {
		t.Errorf("the first visit takes %d bytes in %d requests", first, requests)
	}
	for _, at := range []string{"/", "/items", "/items/1", "/causes", "/leases", "/machines", "/journal",
		"/desk", "/work", "/rounds", "/limits"} {
		if size := b.size(at); size > 12<<10 {
			t.Errorf("%s takes %d bytes", at, size)
		}
	}
}

// size is the length of an answer to a browser that accepts gzip.
func (b *browser) size(at string) int {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, b.server.URL+at, nil)
	must.OK(b.t, err)
	r.Header.Set("Accept-Encoding", "gzip")
	answer, err := b.client.Do(r)
	must.OK(b.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK || answer.Header.Get("Content-Encoding") != "gzip" {
		b.t.Fatalf("%s: status %d, %q, %v", at, answer.StatusCode, answer.Header.Get("Content-Encoding"), err)
	}
	b.t.Logf("%s: %d bytes", at, len(text))
	return len(text)
}
