package feed

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/ledgerd/ledgerd/sdk/sdktest"
)

// TestCutFeed: if a feed breaks off, its complete entries are read and the note reports it. The next round reads the
// whole feed again, even if the server's ETag is the same.
func TestCutFeed(t *testing.T) {
	atom := `<feed xmlns="http://www.w3.org/2005/Atom" xmlns:x="http://x.example/"><title>F</title>` +
		`<entry><id>1</id><title>One</title></entry><x:more/><entry><id>2</id><content type="xhtml"><div><entry/><br/></div></content></entry></feed>`
	rdf := `<r:RDF xmlns:r="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://purl.org/rss/1.0/"><channel><title>F</title></channel>` +
		`<item><title>One</title><link>1</link></item><item><title>Two</title><link>2</link></item></r:RDF>`
	inJSON := `{"version":"https://jsonfeed.org/version/1.1","title":"F","authors":[{"name":"Ann"}],` +
		`"items":[{"id":"1","title":"One","tags":["a"],"attachments":[{"url":"http://a.example/"}]},{"id":"2","title":"Two"}]}`
	h := reader(t)
	for name, tt := range map[string]struct{ text, second string }{
		"RSS":  {rss(entry("1", "One"), entry("2", "Two")), "<guid>2"},
		"Atom": {atom, "<id>2"}, "RDF": {rdf, "<title>Two"}, "JSON": {inJSON, `,"title":"Two"`},
	} {
		whole, upTo := tt.text, strings.Index(tt.text, tt.second)
		var ends = []int{upTo, upTo + 7, len(whole) - 1}
		for i, end := range ends {
			text := whole[:end]
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("ETag", `"always"`)
				if r.Header.Get("If-None-Match") != "" {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				fmt.Fprint(w, text)
			})
			first := h.Run(sdktest.Task{Payload: In{URL: url}})
			out, want := sdktest.Decode[Out](t, first), "1"
			if i == 2 { // only the end of the feed is cut
				want = "1 2"
			}
			if first.Outcome != "done" || keys(first) != want || !strings.Contains(out.Note, "breaks off") ||
				out.ETag+out.Digest != "" {
				t.Errorf("%s, cut at %d: %s %q %s, emitted %q, want %q and no version", name, end, first.Outcome, first.Error,
					first.Output, keys(first), want)
			}
			text = whole
			second := h.Run(sdktest.Task{Payload: In{URL: url}, Previous: out})
			if after := sdktest.Decode[Out](t, second); second.Outcome != "done" || keys(second) != "1 2" || after.Note != "" ||
				after.ETag == "" {
				t.Errorf("%s, whole again: %s %s, emitted %q", name, second.Outcome, second.Output, keys(second))
			}
		}
		r := h.Run(sdktest.Task{Payload: In{URL: serve(t, say("", whole[:strings.Index(whole, "One")]))}})
		if r.Code != "bad_feed" || len(r.Emitted) > 0 {
			t.Errorf("%s, cut in the first entry: %s %s, emitted %q", name, r.Outcome, r.Code, keys(r))
		}
	}
}

// TestLinks: an entry without a link uses its guid, unless isPermaLink is false. The URL of an enclosed file is its
// link only if there is no other. The id does not depend on this.
func TestLinks(t *testing.T) {
	const file = `<enclosure url="http://a.example/1.mp3" type="audio/mpeg"/>`
	h := reader(t)
	for _, tt := range []struct{ item, link, id string }{
		{`<guid>http://a.example/1</guid>`, "http://a.example/1", "http://a.example/1"},
		{`<guid isPermaLink="true"> https://a.example/1 </guid>`, "https://a.example/1", "https://a.example/1"},
		{`<guid isPermaLink="false">http://a.example/1</guid>`, "", "http://a.example/1"},
		{`<guid isPermaLink="False">http://a.example/1</guid>`, "", "http://a.example/1"},
		{`<guid>tag:a.example,2026:1</guid>`, "", "tag:a.example,2026:1"},
		{`<guid>1</guid>`, "", "1"},
		{`<guid>http://a.example/1</guid><link>http://a.example/2</link>`, "http://a.example/2", "http://a.example/1"},
		{file + `<guid>http://a.example/1.mp3</guid>`, "", "http://a.example/1.mp3"},
		{file + `<guid>http://a.example/1</guid><link>http://a.example/1.mp3</link>`, "http://a.example/1",
			"http://a.example/1"},
		{file + `<link>http://a.example/1.mp3</link>`, "http://a.example/1.mp3", "http://a.example/1.mp3"},
		{`<guid>1</guid><link href="http://a.example/1"/><link rel="enclosure" href="http://a.example/1.mp3"/>`,
			"http://a.example/1", "1"},
		{file + `<guid>1</guid><link>http://a.example/1.mp3</link><link>http://a.example/1</link>`, "http://a.example/1",
			"1"},
	} {
		r := h.Run(sdktest.Task{Payload: In{URL: serve(t, say("", rss("<item><title>T</title>"+tt.item+"</item>")))}})
		if got := articles(t, r); len(got) != 1 || got[0].Link != tt.link || got[0].ID != tt.id || r.Emitted[0].Key != tt.id {
			t.Errorf("%s: %+v, want the link %q and the id %q", tt.item, got, tt.link, tt.id)
		}
	}
}
