package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/semaphore"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/unicode"

	"github.com/ledgerd/ledgerd/internal/must"
	"github.com/ledgerd/ledgerd/plugins/internal/failure"
	"github.com/ledgerd/ledgerd/sdk/sdktest"
	"github.com/ledgerd/ledgerd/sdk/wire"
)

// TestParsersOwnFeeds reads every feed of the parser's own tests, except those that are broken on purpose. All of
// their entries can be emitted.
func TestParsersOwnFeeds(t *testing.T) {
	dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/mmcdole/gofeed").Output()
	must.OK(t, err)
	refused := map[string]string{}
	read, entries := 0, 0
	corpus := filepath.Join(strings.TrimSpace(string(dir)), "testdata", "parser")
	err = filepath.WalkDir(corpus, func(path string, d fs.DirEntry,
		err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) == ".json" && filepath.Base(filepath.Dir(path)) != "universal" {
			return err // the other JSON files are the expected results of the parser's tests
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parse(t.Context(), text, "", semaphore.NewWeighted(1))
		if err != nil {
			fail, _ := errors.AsType[*failure.Error](err)
			refused[filepath.Base(path)] = fail.Code
			return nil
		}
		read++
		children := fit(articlesOf(f.Feed, "http://a.example/", &url.URL{}))
		entries += len(children)
		for _, c := range children {
			if c.Key == "" || len(c.Key) > wire.MaxKey || !json.Valid(c.Payload.(json.RawMessage)) {
				t.Errorf("%s: %+v", path, c)
			}
		}
		return nil
	})
	must.OK(t, err)
	want := map[string]string{"empty_feed.xml": "not_a_feed", "unknown_feed.xml": "not_a_feed", "invalid.json": "bad_feed"}
	if d := cmp.Diff(want, refused); d != "" {
		t.Errorf("refused (-want +got):\n%s", d)
	}
	if read < 440 || entries < 220 {
		t.Errorf("read %d feeds with %d entries", read, entries)
	}
}

// TestCharsets: texts are decoded correctly from every character set, however it is declared.
func TestCharsets(t *testing.T) {
	const said, japan = "Grüße – 5 €", "日本"
	feed := func(declared, title string) string {
		return `<?xml version="1.0"` + declared + `?>` + strings.SplitAfterN(rss(entry("1", title)), "?>", 2)[1]
	}
	in := func(language, title string) string {
		return strings.Replace(feed("", title), "<channel>", "<channel>"+language, 1)
	}
	encode := func(e interface{ Bytes([]byte) ([]byte, error) }, s string) string {
		b, err := e.Bytes([]byte(s))
		must.OK(t, err)
		return string(b)
	}
	latin := charmap.Windows1252.NewEncoder()
	h := reader(t)
	for _, tt := range []struct {
		name, contentType, text, want, note string
	}{
		{"UTF-8 without a declaration", "text/xml", feed("", said), said, ""},
		{"with a mark", "text/xml", "\ufeff" + feed("", said), said, ""},
		{"declared by the document", "text/xml", encode(latin, feed(` encoding="windows-1252"`, said)), said, ""},
		{"declared by the server", "text/xml; charset=windows-1252", encode(latin, feed("", said)), said, ""},
		{"the document knows better", "text/xml; charset=iso-8859-1", feed(` encoding="utf-8"`, said), said, ""},
		{"not declared", "text/xml", encode(latin, feed("", said)), said, "read as windows-1252"},
		{"not declared, Russian", "text/xml", encode(charmap.Windows1251.NewEncoder(), in("<language>ru-RU</language>",
			"Привет")), "Привет", "read as windows-1251"},
		{"not declared, Japanese", "text/xml", encode(japanese.ShiftJIS.NewEncoder(), in("<x xml:lang='ja'/>", japan)),
			japan, "read as shift_jis"},
		{"it names a wrong language", "text/xml", encode(latin, in("<x xml:lang='zh'/>", said)), said,
			"read as windows-1252"},
		{"a lie", "text/xml", encode(latin, feed(` encoding="utf-8"`, "Gr\u00fc")), "Gr\ufffd", "not all of it is UTF-8"},
		{"UTF-16, it declares", "text/xml", feed(` encoding="utf-16"`, said), said, "it declares utf-16 and is not in it"},
		{"a name of its own", "text/xml", feed(` encoding="my-utf8"`, said), said, "my-utf8"},
		{"UTF-16 with a mark", "text/xml", encode(unicode.UTF16(unicode.BigEndian, unicode.UseBOM).NewEncoder(),
			feed(` encoding="utf-16"`, said)), said, ""},
		{"UTF-16 without", "text/xml", encode(unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM).NewEncoder(),
			feed("", said)), said, ""},
		{"seven bits", "text/xml", encode(japanese.ISO2022JP.NewEncoder(), feed(` encoding="iso-2022-jp"`, japan)), japan,
			""},
		{"JSON", "application/feed+json", "\ufeff" +
			`{"version":"https://jsonfeed.org/version/1.1","items":[{"id":1,"title":"` + said + `"}]}`, said, ""},
	} {
		r := h.Run(sdktest.Task{Payload: In{URL: serve(t, say(tt.contentType, tt.text))}})
		got := articles(t, r)
		if len(got) != 1 || got[0].ID != "1" || got[0].Title != tt.want ||
			!strings.Contains(sdktest.Decode[Out](t, r).Note, tt.note) {
			t.Errorf("%s: %s %q, articles %+v, want %q", tt.name, r.Outcome, r.Error, got, tt.want)
		}
	}
}

// TestIllegalReferences: a reference to a character that XML does not allow is dropped, and all entries are read.
func TestIllegalReferences(t *testing.T) {
	h := reader(t)
	for _, ref := range []string{"&#11;", "&#0;", "&#8;", "&#0031;", "&#x1F;", "&#xb;", "&#x0C;", "&#xFFFe;", "&#65535;"} {
		for i := range 2 {
			items := []string{entry("1", "One"), entry("2", "Two"), entry("3", "Three")}
			items[i] = entry(fmt.Sprint(i+1), "a"+ref+"b &#9;&#10;&#x0d;&#32;&#x20;&#110;&#xB0; c")
			r := h.Run(sdktest.Task{Payload: In{URL: serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("ETag", "v")
				fmt.Fprint(w, rss(items...))
			})}})
			out := sdktest.Decode[Out](t, r)
			if keys(r) != "1 2 3" || out.Note != "" || out.ETag != "v" {
				t.Errorf("%s in entry %d: %q, %+v", ref, i+1, keys(r), out)
			} else if got := articles(t, r)[i].Title; got != "ab \t\n\r  n\u00b0 c" {
				t.Errorf("%s in entry %d: title %q", ref, i+1, got)
			}
		}
	}
}

// TestOddParts: ids of a JSON Feed may be numbers, and a field may be null. A feed with another wrong type is refused.
func TestOddParts(t *testing.T) {
	h := reader(t)
	for text, want := range map[string]string{
		`"title":null,"items":[{"id":7,"title":null,"attachments":null},{"id":12345678901234567890}]`: "7 12345678901234567890",
		`"items":[{"id":"7","date_published":"9999-12-31T23:59:59-05:00"}]`:                           "7", // in UTC the year has five digits
		`"items":[{"id":"1","title":["x"]}]`:                                                          "",
		`"items":7`:                                                                                   "",
	} {
		r := h.Run(sdktest.Task{Payload: In{URL: serve(t, say("application/feed+json",
			`{"version":"https://jsonfeed.org/version/1.1",`+text+`}`))}})
		if keys(r) != want || want == "" && r.Code != "bad_feed" {
			t.Errorf("%s: %s %q %q", text, r.Outcome, keys(r), r.Error)
		}
	}
}

// TestIdentity: the id of an entry is its own id, else its link if no other entry has it, else a hash of its content.
func TestIdentity(t *testing.T) {
	h := reader(t)
	get := func(items ...string) []string {
		r := h.Run(sdktest.Task{Payload: In{URL: serve(t, say("text/xml", rss(items...)))}})
		if r.Outcome != "done" {
			t.Fatalf("%+v", r)
		}
		return strings.Fields(keys(r))
	}
	long := "http://a.example/" + strings.Repeat("x", wire.MaxKey)
	for _, tt := range []struct{ item, want string }{
		{"<item><guid> id </guid><link>http://a.example/</link></item>", "id"},
		{"<item><link>http://a.example/</link><title>a</title></item>", "http://a.example/"},
		{"<item><guid> </guid><link>http://a.example/</link></item>", "http://a.example/"},
		{"<item><title>only this</title></item>", "sha256:"},
		{"<item><guid>" + long + "</guid></item>", "sha256:"},
	} {
		got, again := get(tt.item), get(tt.item, "<item><guid>other</guid></item>")
		if len(got) != 1 || !strings.HasPrefix(got[0], tt.want) || again[0] != got[0] {
			t.Errorf("%.60s: got %q and %q, want %s", tt.item, got, again, tt.want)
		}
	}
	if got := get("<item><title>a</title></item>", "<item><title>b</title></item>"); len(got) != 2 || got[0] == got[1] {
		t.Errorf("two entries without ids: %q", got)
	}
	same := func(title string) string {
		return "<item><link> http://a.example/ </link><title>" + title + "</title></item>"
	}
	alone, both, later := get(same("a")), get(same("b"), same("a")), get(same("c"), same("b"), entry("1", "x"), same("c"))
	if slices.Contains(both, alone[0]) || len(later) != 3 || later[1] != both[0] || later[2] != "1" ||
		!strings.HasPrefix(both[1], "sha256:") || get(same("c"))[0] != alone[0] {
		t.Errorf("entries with one link: %q, %q, %q", alone, both, later)
	}
	r := h.Run(sdktest.Task{Payload: In{URL: serve(t, say("", rss(entry("1", "new"), entry("1", "old"))))}})
	if got := articles(t, r); len(got) != 1 || got[0].Title != "new" {
		t.Errorf("the same id twice: %+v", got)
	}
}

// TestArticles: the payload of an article from each format.
func TestArticles(t *testing.T) {
	h := reader(t)
	for _, tt := range []struct{ text, want string }{
		{
			`<feed xmlns="http://www.w3.org/2005/Atom"><title>F</title><entry><id>tag:1</id><title>T</title><link href="http://a.example/1"/>
<published>2026-11-20T09:00:00+01:00</published><updated>2026-11-20T10:00:00+01:00</updated><author><name>Ann</name></author><category term="news"/>
<summary>S</summary><content type="html">&lt;b>C&lt;/b></content></entry></feed>`,
			`{"feed":"URL","feed_title":"F","id":"tag:1","link":"http://a.example/1","title":"T","authors":["Ann"],"tags":["news"],"published":"2026-11-20T08:00:00Z","updated":"2026-11-20T09:00:00Z","summary":"S","content":"\u003cb\u003eC\u003c/b\u003e"}`},
		{
			`<rss version="2.0"><channel><title>F</title><item><guid>1</guid><title>T</title><pubDate>Fri, 20 Nov 2026 08:00:00 GMT</pubDate>
<enclosure url="http://a.example/1.mp3" type="audio/mpeg" length="1"/></item></channel></rss>`,
			`{"feed":"URL","feed_title":"F","id":"1","title":"T","published":"2026-11-20T08:00:00Z","files":[{"url":"http://a.example/1.mp3","type":"audio/mpeg"}]}`},
		{
			`<rss version="2.0"><channel><title>F</title><item><guid>1</guid><link>/posts/1?a=b</link><enclosure url="1.mp3" type="audio/mpeg"/></item></channel></rss>`,
			`{"feed":"URL","feed_title":"F","id":"1","link":"URL/posts/1?a=b","files":[{"url":"URL/1.mp3","type":"audio/mpeg"}]}`},
		{
			`{"version":"https://jsonfeed.org/version/1","title":"F","items":[{"id":"1","url":"http://a.example/1","content_text":"C"}]}`,
			`{"feed":"URL","feed_title":"F","id":"1","link":"http://a.example/1","content":"C"}`},
	} {
		url := serve(t, say("", tt.text))
		r := h.Run(sdktest.Task{Payload: In{URL: url}})
		if len(r.Emitted) != 1 {
			t.Fatalf("%+v", r)
		}
		if d := cmp.Diff(strings.ReplaceAll(tt.want, "URL", url), string(r.Emitted[0].Payload.(json.RawMessage))); d != "" {
			t.Errorf("article (-want +got):\n%s", d)
		}
	}
}

// TestHTML: relative links in HTML are completed by xml:base, and XHTML loses its div. What could grow too much, also
// if it is short, stays as the feed has it.
func TestHTML(t *testing.T) {
	h := reader(t)
	for content, want := range map[string]string{
		`type="html">&lt;a href="b">&amp;amp;&lt;/a>MORE`:         `<a href="http://a.example/b">&amp;</a>MORE`,
		`type="html"><![CDATA[<a href="b">&amp;</a>MORE]]>`:       `<a href="http://a.example/b">&amp;</a>MORE`,
		`type="xhtml"><div><a href="b">&lt;</a>MORE</div>`:        `<a href="http://a.example/b">&lt;</a>MORE`,
		`mode="x" type=html>&lt;a href="b">&amp;amp;&lt;/a>LARGE`: `<a href="b">&amp;</a>LARGE`,
		`type="&#104;tml"><![CDATA[<a href="b">&amp;</a>LARGE]]>`: `<a href="b">&amp;</a>LARGE`,
		"\n type = 'XHTML'><div><a href='b'>&lt;</a>LARGE</div>":  `<div><a href='b'>&lt;</a>LARGE</div>`,
		`type="application/xhtml+xml"><a href="b">&lt;</a>LARGE`:  `<a href="b">&lt;</a>LARGE`,
	} {
		fill := strings.NewReplacer("MORE", strings.Repeat("<p>x</p>", 99), "LARGE", growing(30<<10))
		r := h.Run(sdktest.Task{Payload: In{URL: serve(t, say("", `<feed xmlns="http://www.w3.org/2005/Atom" `+
			`xml:base="http://a.example/"><entry><id>1</id><content `+fill.Replace(content)+`</content><rights type="html"/>`+
			`<title>T</title><link href="c"/></entry></feed>`))}})
		got := articles(t, r)
		if len(got) != 1 || got[0].Content != fill.Replace(want) || got[0].Title+got[0].Link != "Thttp://a.example/c" {
			t.Errorf("%s: %.200q", content, fmt.Sprint(got))
		}
	}
}

// TestLargeHTML: no ordinary feed is so large that its links are not completed.
func TestLargeHTML(t *testing.T) {
	const part = `<p class="x">It <b>is <i>so</i></b>:<br>a &lt; b, ` +
		`<a href="b" title="say &quot;b&quot;"><img src='c'></a></p><ul><li>x</ul>`
	for _, escape := range []func(string) string{
		html.EscapeString, func(s string) string { return "<![CDATA[" + s + "]]>" },
	} {
		entries := ""
		for i := range 20 {
			entries += fmt.Sprintf(`<entry><id>%d</id><content type="html">%s</content></entry>`, i,
				escape(strings.Repeat(part, 60_000/len(part))))
		}
		r := reader(t).Run(sdktest.Task{Payload: In{URL: serve(t, say("", `<feed xmlns="http://www.w3.org/2005/Atom" `+
			`xml:base="http://a.example/">`+entries+`</feed>`))}})
		got := articles(t, r)
		for _, a := range got {
			links := strings.Count(a.Content, `href="http://a.example/b"`) + strings.Count(a.Content, `src="http://a.example/c"`)
			if want := 2 * (60_000 / len(part)); links != want {
				t.Errorf("article %s has %d complete links, want %d", a.ID, links, want)
			}
		}
		if len(got) != 20 {
			t.Errorf("%d articles: %s %s", len(got), r.Code, r.Error)
		}
	}
}

// TestGrowth: elements that are not closed count, with what hides it, too; others do not.
func TestGrowth(t *testing.T) {
	after := strings.Repeat("<p>x", 1000)
	for text, unclosed := range map[string]int{
		"":                                   0,
		"<p>a < b <3 <b>x</b><I a='>'>y</i>": 0,
		"<b><br><br/><hr></b>":               0,
		`<a href=a/b title="b > c"class=d>x</a><p><ul><li>`: 0,
		"<b a>":                                1,
		"<B\n/>&lt;i a&gt;":                    2,
		"&lt;b a=&quot;b&quot;>x&lt;/b>":       0,
		"<b a><!--</b>-->":                     1,
		"<b a><td></b></td>":                   1,
		"<b a><img b='</b>'>":                  1,
		"<b a></x </b>>":                       1,
		`<b a=x" b='"' c='></b>'>`:             1,
		"<![CDATA[<b a>]]>&lt;/b><![CDATA[<u>": 1,
	} {
		const least = 1000 * copySize
		if got := growthOf([]byte(text + after)); got < int64(unclosed*least) || unclosed == 0 && got >= least {
			t.Errorf("%s: %d, with %d unclosed", text, got, unclosed)
		}
	}
}

// TestMuchText: if a feed is too large for one attempt, articles lose texts, but no article is lost.
func TestMuchText(t *testing.T) {
	var items []string
	for i := range 40 {
		items = append(items, fmt.Sprintf("<item><guid>%d</guid><title>T</title><description>%s</description></item>", i,
			strings.Repeat("x", 450_000*(i%2))))
	}
	h := reader(t, func(c *Config) { c.MaxBody = 64 << 20 })
	r := h.Run(sdktest.Task{Payload: In{URL: serve(t, say("", rss(items...)))}})
	for i, a := range articles(t, r) {
		if a.ID != fmt.Sprint(i) || a.Cut != (i%2 == 1) || a.Cut != (a.Summary == "" && i%2 == 1) {
			t.Errorf("article %d: id %s, %d bytes, cut %v", i, a.ID, len(a.Summary), a.Cut)
		}
	}
	if len(r.Emitted) != 40 {
		t.Errorf("%d articles: %s %s", len(r.Emitted), r.Code, r.Error)
	}
	r = h.Run(sdktest.Task{Payload: In{URL: serve(t, say("", rss(entry("one", "more")+manyEntries(wire.MaxEmit))))}})
	if r.Code != "too_large" || !strings.Contains(r.Error, "more than 10000 entries") {
		t.Errorf("%s %q", r.Code, r.Error)
	}
	r = h.Run(sdktest.Task{Payload: In{URL: serve(t, say("", rss(manyEntries(wire.MaxEmit))))}})
	if len(r.Emitted) != wire.MaxEmit {
		t.Errorf("%d articles: %s %s", len(r.Emitted), r.Code, r.Error)
	}
}

func manyEntries(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(entry(fmt.Sprintf("e%d", i), strings.Repeat("long ", 5)))
	}
	return b.String()
}

// FuzzParse: no feed makes the parser panic, and every article can be emitted.
func FuzzParse(f *testing.F) {
	f.Add([]byte(rss(entry("1", "One"))))
	f.Add([]byte(`{"version":"https://jsonfeed.org/version/1","items":[{"id":1}]}`))
	f.Add(
		[]byte(
			`<feed xmlns="http://www.w3.org/2005/Atom"><entry><id>1</id><content type="xhtml"><div>x</div></content></entry></feed>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		feed, err := parse(t.Context(), bytes.Clone(text), "", semaphore.NewWeighted(1))
		if err != nil {
			return
		}
		for _, c := range fit(articlesOf(feed.Feed, "http://a.example/", &url.URL{})) {
			if c.Key == "" || len(c.Key) > wire.MaxKey || strings.ContainsRune(c.Key, 0) ||
				!json.Valid(c.Payload.(json.RawMessage)) {
				t.Errorf("%+v", c)
			}
		}
	})
}
